"""Dates the lines of one text: by their own stamp, by the framing's time, else by the last stamp before them."""

from dataclasses import dataclass
from typing import Final

from ..parse.framing import LONGEST_LINE
from ..parse.record import PREFIX, Form, Record, split_odd, split_record
from ..parse.stamp import StampReader, needs_context
from .lines import Lines
from .patterns import DUMP

_LONGEST_RECORD: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Text:
    """The text being read."""

    bytes: bytes
    lines: Lines
    base: int  # bytes scanned before it
    prefixed_from: int  # where the first line with SGLang's prefix begins; 0 if an earlier text had one

    def record(self, start: int) -> Record:
        return split_record(line_at(self.bytes, start))

    def may_be_odd(self, start: int, record: Record) -> bool:
        """Whether a line may be SGLang's without its prefix.

        A server with its own logging configuration never prints the prefix, so one line that has it ends the guessing.
        """
        return record.form in (Form.BARE, Form.FOREIGN) and start < self.prefixed_from


class Moments:
    """Keeps the last stamp from one text into the next."""

    def __init__(self, stamps: StampReader) -> None:
        self.carried_s: float | None = None  # the time of the last stamp seen
        self.dated_at = -1  # where that line begins, in scanned bytes since the source began
        self._stamps = stamps
        self._known_to = 0  # before this index of the text both are up to date

    def begin(self) -> None:
        """Begin with another text."""
        self._known_to = 0

    def read(self, raw: bytes) -> float | None:
        """Return the Unix seconds of a raw stamp; None for none."""
        return self._stamps.read(raw) if raw else None

    def of(self, text: Text, start: int, stamp: bytes) -> tuple[float | None, bool]:
        """Return when the line at `start` was written, and whether it says so itself."""
        if stamp and needs_context(stamp):
            self.before(text, start)
        at_s = self.read(stamp)
        if at_s is None:
            at_s = text.lines.time_s(start)
        if at_s is not None:
            return at_s, True
        return self.before(text, start), False

    def before(self, text: Text, start: int) -> float | None:
        """Return the time of the last line before `start` that has a stamp. Each line is looked at once at most."""
        end = start
        found: list[tuple[int, bytes]] = []
        while end > self._known_to:
            begin = max(text.bytes.rfind(b"\n", self._known_to, end - 1) + 1, self._known_to)
            if stamp := _stamp_of(text, begin, end):
                found.append((begin, stamp))
                if not needs_context(stamp):
                    break
            end = begin
        for begin, stamp in reversed(found):  # one without a year or a day is dated by the one before it
            at_s = self.read(stamp)
            if at_s is not None:
                self.carried_s = at_s
                self.dated_at = text.base + begin
        self._known_to = max(self._known_to, start)
        return self.carried_s


def _stamp_of(text: Text, begin: int, end: int) -> bytes:
    data = text.bytes
    if prefix := PREFIX.match(data, begin, end):
        return prefix[1]
    if data[begin] in b" \t\n" and data.find(b"\r", begin, end) < 0 and data.find(b"%|", begin, end) < 0:
        return b""  # the body of a traceback
    record = text.record(begin)
    if not record.stamp and text.may_be_odd(begin, record) and (odd := split_odd(record.text)) is not None:
        return odd.stamp
    return record.stamp


def line_at(text: bytes, start: int) -> bytes:
    """Return a line without its newline; of a long one its last redraw, up to the longest record."""
    end = text.find(b"\n", start)
    end = len(text) if end < 0 else end
    if end - start <= _LONGEST_RECORD:
        return text[start:end]
    while end > start and text[end - 1] == 13:
        end -= 1
    head = text[start : start + 4096]
    if split_record(head).form is Form.REQUEST_LOG:
        return head
    begin = text.rfind(b"\r", start, end) + 1 or start
    most = LONGEST_LINE if text.find(DUMP.text, begin, min(begin + 200, end)) >= 0 else _LONGEST_RECORD
    return text[begin : min(end, begin + most)]
