"""Where in its source a line of the scanned text stands, whatever was unwrapped or removed on the way."""

from bisect import bisect_right
from itertools import accumulate
from typing import Protocol

from ..model.observation import Position
from ..parse.framing import Unwrapped


class Lines(Protocol):
    """Answers for the start of any line of one text; cheapest when asked in ascending order."""

    has_times: bool

    def position(self, start: int) -> Position:
        """Return where the line that begins at index `start` of the text stands in its source."""

    def time_s(self, start: int) -> float | None:
        """Return the framing's time of that line, None where the source has none."""


class PlainLines:
    """The text is the source's own bytes."""

    has_times = False

    def __init__(self, source: str, text: bytes, offset: int, line: int) -> None:
        self._source = source
        self._text = text
        self._offset = offset
        self._at = 0
        self._line = line

    def position(self, start: int) -> Position:
        if start >= self._at:
            self._line += self._text.count(b"\n", self._at, start)
        else:
            self._line -= self._text.count(b"\n", start, self._at)
        self._at = start
        return Position(self._source, self._line, self._offset + start)

    def time_s(self, _start: int) -> float | None:
        return None


class CleanedLines:
    """The text is the source's bytes without colours and NULs: line numbers hold, offsets come from the raw bytes."""

    has_times = False

    def __init__(self, source: str, text: bytes, raw: bytes, offset: int, line: int) -> None:
        self._plain = PlainLines(source, text, 0, 0)
        self._source = source
        self._first_line = line
        self._starts = list(accumulate((len(part) + 1 for part in raw.split(b"\n")), initial=offset))

    def position(self, start: int) -> Position:
        index = self._plain.position(start).line
        return Position(self._source, self._first_line + index, self._starts[index])

    def time_s(self, _start: int) -> float | None:
        return None


class FramedLines:
    """The text was unwrapped from a framing."""

    has_times = True

    def __init__(self, source: str, unwrapped: Unwrapped) -> None:
        self._source = source
        self._unwrapped = unwrapped

    def position(self, start: int) -> Position:
        index = self._index(start)
        return Position(self._source, self._unwrapped.numbers[index], self._unwrapped.offsets[index])

    def time_s(self, start: int) -> float | None:
        return self._unwrapped.times[self._index(start)]

    def _index(self, start: int) -> int:
        return bisect_right(self._unwrapped.starts, start) - 1
