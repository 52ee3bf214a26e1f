"""Findings on standard output as the ledger takes them down: what a restart only finds again is no news there.

Printed by a thread of its own: whoever reads the output may stop (a pager, Ctrl-Z), and that must hold up nothing.
"""

import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from ..model.words import State
from ..sinks.ledger_reads import FindingRow
from ..sinks.ledger_writes import Recorded

_COLOURS: Final = {"critical": "31;1", "warning": "33;1", "info": "36"}
_FIRING: Final = State.FIRING.value
_WAITING: Final = 1000  # batches that nobody reads; more are left out and counted
_LAST_WORDS_S: Final = 2.0


class Printer:
    """Prints state, severity, title, summary, cause and the first line of evidence."""

    def __init__(self, *, is_colour: bool) -> None:
        self._is_colour = is_colour
        self._titles: dict[str, str] = {}
        self._explained: set[tuple[str, str]] = set()
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(_WAITING)
        self._left_out = 0
        self._output = sys.stdout.fileno()
        self._thread = threading.Thread(target=self._work, name="print", daemon=True)
        self._thread.start()

    def still(self, rows: Iterable[FindingRow]) -> None:
        """What was firing when an earlier daemon ended; each is told again when it moves."""
        known = list(rows)
        self._put(lambda: self._still(known))

    def news(self, recorded: Sequence[Recorded]) -> None:
        """What was just recorded. Returns at once, from any thread."""
        self._put(lambda: self._news(recorded))

    def close(self) -> None:
        """Print what waits, if somebody reads."""
        try:
            self._jobs.put(None, timeout=_LAST_WORDS_S)
        except queue.Full:
            return
        self._thread.join(_LAST_WORDS_S)

    def _put(self, job: Callable[[], None]) -> None:
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            self._left_out += 1

    def _work(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                job()
                if self._left_out:
                    self._print(f"{self._left_out} changes were not printed, because nobody read; they are in the API")
                    self._left_out = 0
        except OSError:  # the reader went away; the interpreter would complain once more when it flushes at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._output)

    def _print(self, line: str) -> None:
        """Write past sys.stdout: its buffer has a lock, and a thread that waits for a reader would hold it when the interpreter ends."""
        rest = f"{line}\n".encode()
        while rest:
            rest = rest[os.write(self._output, rest) :]

    def _still(self, rows: Iterable[FindingRow]) -> None:
        for row in rows:
            document = json.loads(row.doc)
            self._titles[document["id"]] = document["title"]
            if document["explained_by"]:
                self._explained.add((document["id"], document["explained_by"]))
            if document["state"] == _FIRING:
                self._print(f"{self._word('still firing', document)}{document['title']} (since {document['first_seen']})")

    def _news(self, recorded: Sequence[Recorded]) -> None:
        for each in recorded:
            if each.kind == "finding":
                self._show(json.loads(each.doc), moved=each.was != each.state)

    def _show(self, document: Mapping[str, Any], *, moved: bool) -> None:
        self._titles[document["id"]] = document["title"]
        is_firing = document["state"] == _FIRING
        if not moved:
            self._show_cause(document)
            return
        self._print(f"{self._word(document['state'], document)}{document['title']}")
        if is_firing:
            if document["summary"].rstrip(".") != document["title"].rstrip("."):
                self._print(f"{'':18}{document['summary']}")
            quoted = next((item for item in document["evidence"] if item["kind"] == "line"), None)
            if quoted is not None:
                self._print(f"{'':18}{quoted['source']}:{quoted['line']}: {quoted['text'][:140]}")

    def _show_cause(self, document: Mapping[str, Any]) -> None:
        cause = document["explained_by"]
        if cause in self._titles and document["state"] == _FIRING and (document["id"], cause) not in self._explained:
            self._explained.add((document["id"], cause))
            self._print(f"{'explained':<18}{document['title']}: because {self._titles[cause]}")

    def _word(self, state: str, document: Mapping[str, Any]) -> str:
        word = f"{state:<9}{' ' if len(state) > 8 else ''}{document['severity'].upper():<9}"
        return f"\x1b[{_COLOURS[document['severity']]}m{word}\x1b[0m" if self._is_colour else word
