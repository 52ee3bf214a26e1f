"""Findings on standard output as the ledger takes them down: what a restart only finds again is no news there."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ..model.words import State
from ..sinks.ledger_reads import FindingRow
from ..sinks.ledger_writes import Recorded

_COLOURS: Final = {"critical": "31;1", "warning": "33;1", "info": "36"}
_FIRING: Final = State.FIRING.value


class Printer:
    """Prints state, severity, title, summary, cause and the first line of evidence."""

    def __init__(self, *, is_colour: bool) -> None:
        self._is_colour = is_colour
        self._titles: dict[str, str] = {}
        self._explained: set[tuple[str, str]] = set()

    def still(self, rows: Iterable[FindingRow]) -> None:
        """What was firing when an earlier daemon ended; each is told again when it moves."""
        for row in rows:
            document = json.loads(row.doc)
            self._titles[document["id"]] = document["title"]
            if document["explained_by"]:
                self._explained.add((document["id"], document["explained_by"]))
            if document["state"] == _FIRING:
                print(f"{self._word('still firing', document)}{document['title']} (since {document['first_seen']})")
        sys.stdout.flush()

    def news(self, recorded: Sequence[Recorded]) -> None:
        """What was just recorded."""
        for each in recorded:
            if each.kind == "finding":
                self._show(json.loads(each.doc), moved=each.was != each.state)
        sys.stdout.flush()

    def _show(self, document: Mapping[str, Any], *, moved: bool) -> None:
        self._titles[document["id"]] = document["title"]
        is_firing = document["state"] == _FIRING
        if not moved:
            self._show_cause(document)
            return
        print(f"{self._word(document['state'], document)}{document['title']}")
        if is_firing:
            print(f"{'':18}{document['summary']}")
            quoted = next((item for item in document["evidence"] if item["kind"] == "line"), None)
            if quoted is not None:
                print(f"{'':18}{quoted['source']}:{quoted['line']}: {quoted['text'][:140]}")

    def _show_cause(self, document: Mapping[str, Any]) -> None:
        cause = document["explained_by"]
        if cause in self._titles and document["state"] == _FIRING and (document["id"], cause) not in self._explained:
            self._explained.add((document["id"], cause))
            print(f"{'explained':<18}{document['title']}: because {self._titles[cause]}")

    def _word(self, state: str, document: Mapping[str, Any]) -> str:
        word = f"{state:<9}{' ' if len(state) > 8 else ''}{document['severity'].upper():<9}"
        return f"\x1b[{_COLOURS[document['severity']]}m{word}\x1b[0m" if self._is_colour else word
