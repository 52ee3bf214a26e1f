"""Joins the lines of a traceback to the dated record that began it.

Only the first line of a traceback has a prefix, and the ranks of a crashing server write theirs into each other. So a traceback
reaches from its `Traceback (most recent call last):` to the first line at column 0 of the form `SomeError: text`; what follows
it directly, a chained traceback included, still belongs to it.
"""

import re
from dataclasses import dataclass
from typing import Final

from ..model.observation import Position

_LAST_LINE: Final = re.compile(
    rb"^(?!(?:TRACE|DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|Traceback)\b)"
    rb"(?:(?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*(?::|\r?$)|[A-Z_]\w*(?:: |:\r?$)"
    rb"|[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Empty|Full|Warning)\r?$)",
    re.MULTILINE,
)
_LONGEST: Final = 256 * 1024  # bytes; a traceback without a last line is given up
_MOST_OPEN: Final = 64


@dataclass(slots=True)
class Traceback:
    """One traceback. Positions of its lines are counted in scanned bytes since the source began."""

    header: Position  # its record, or its own first line where a process never got to log
    rank: str
    began: int
    at_s: float | None = None  # when it was printed
    ended: int = -1  # where its last line begins


class Tracebacks:
    """The tracebacks that are open at a point of the text, newest last."""

    def __init__(self) -> None:
        self._open: list[Traceback] = []
        self._closed: Traceback | None = None
        self._searched = 0  # no last line is left undiscovered before this point
        self._ended: list[Traceback] = []  # since they were last taken

    def take_ended(self) -> list[Traceback]:
        """The tracebacks whose last line was found since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def begin(
        self, text: bytes, base: int, start: int, position: Position, rank: str | None, *, at_s: float | None, dated_at: int
    ) -> None:
        """Take the line at `start`, and `position`, that holds `Traceback`; `rank` is that of its record, None if it has no stamp."""
        joined = self.around(text, base, start, dated_at=dated_at)
        if rank is None and joined is not None and not self._open:
            new = Traceback(joined.header, joined.rank, base + start, joined.at_s)  # chained: "During handling of the above exception"
        else:
            new = Traceback(position, rank or "", base + start, at_s)
        self._open.append(new)
        del self._open[:-_MOST_OPEN]
        end = text.find(b"\n", start)
        self._searched = base + (end + 1 if end >= 0 else len(text))

    def around(self, text: bytes, base: int, start: int, *, dated_at: int) -> Traceback | None:
        """Return the traceback that the undated line at `start` belongs to. `dated_at`: the last dated line before it."""
        self.advance(text, base, start)
        if self._open:
            return self._open[-1]
        closed = self._closed
        return closed if closed is not None and dated_at <= closed.ended else None

    def advance(self, text: bytes, base: int, start: int) -> None:
        """Close what ended before the line at `start`."""
        while self._open and base + start - self._open[-1].began > _LONGEST:
            self._open.pop()
        while self._open and self._searched < base + start:
            found = _LAST_LINE.search(text, max(self._searched - base, 0), start)
            if found is None:
                break
            ended = self._open.pop()
            ended.ended = base + found.start()
            self._closed = ended
            self._ended.append(ended)
            end = text.find(b"\n", found.start(), start)
            self._searched = base + (end + 1 if end >= 0 else start)
        self._searched = max(self._searched, base + start)
