"""Blocks of whole lines in, recognised records out.

Pure and synchronous. A block is searched as a whole, because most lines of a log say nothing and touching each in Python costs
a factor of a hundred; only lines that may matter are split and checked. The results do not depend on where blocks are cut, nor
on the matching engine. Secrets and the text of users are cut here, before anything else sees a line.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..model.observation import LogObservation, Opened, Position, Tally
from ..model.signature import Library
from ..parse.framing import FORMATS, LONGEST_LINE, UNDECIDED_LINES, Unframer, Unwrapped, detect, unframer
from ..parse.record import PREFIX, PREFIXED_LINE, Form, split_record, without_noise
from ..parse.stamp import StampReader
from ..parse.zone import Zone, measured
from .lines import CleanedLines, FramedLines, Lines, PlainLines
from .patterns import PatternSet, compile_patterns
from .reader import ReleaseTable, TextReader


class Scanner:
    """Reads one source. `format` is auto or one of framing.FORMATS, `engine` one of auto, hyperscan, re2, plain.

    Raises:
        ValueError: unknown format or engine, with the names that would do.
    """

    def __init__(
        self,
        library: Library,
        source: str,
        *,
        zone: Zone,
        format: str = "auto",
        engine: str = "auto",
        patterns: PatternSet | None = None,
    ) -> None:
        if format not in ("auto", *FORMATS):
            raise ValueError(f"no log format called {format!r}: choose one of auto, {', '.join(FORMATS)}")
        self.source = source
        self._format = "" if format == "auto" else format
        self._unframer: Unframer | None = unframer(format) if format not in ("auto", "plain") else None
        self._undecided = 0
        self._stamps = StampReader(zone)
        self._reader = TextReader(
            patterns or compile_patterns(library, engine), self._stamps, ReleaseTable(library.release_fields, library.releases)
        )
        self._expected = -1  # offset at which the next block continues this one; -1: nothing was read yet
        self._torn = _Torn()
        self._rest: _Rest | None = None

    @property
    def zone(self) -> Zone:
        """The zone in use; a guess is corrected from the times of a framing, or by whoever knows better."""
        return self._stamps.zone

    @zone.setter
    def zone(self, zone: Zone) -> None:
        self._stamps.zone = zone

    @property
    def format(self) -> str:
        """The format found so far; plain until a line shows another."""
        return self._format or "plain"

    def use(self, patterns: PatternSet) -> None:
        """Look for other patterns from here on; time, tracebacks and half lines are kept."""
        self._reader.use(patterns)

    def feed(self, block: bytes, *, offset: int, line: int) -> list[LogObservation | Opened]:
        """Take a block of whole lines that begins at byte `offset` and line number `line` of the unpacked source.

        A last line without its newline is held back until the rest of it, a block from elsewhere, or `finish` comes.
        """
        out: list[LogObservation | Opened] = []
        if offset != self._expected:
            out.extend(self.finish() if self._expected >= 0 else ())
            self._rest = None
            opened_at = len(out)
            self._scan(block, offset, line, out)
            first_s = next((one.at_s for one in out[opened_at:] if not isinstance(one, Tally) and one.at_s is not None), None)
            out.insert(opened_at, Opened(at_s=first_s, source=self.source, from_start=offset == 0, format=self.format))
        else:
            self._scan(block, offset, line, out)
        self._expected = offset + len(block)
        return out

    def finish(self) -> list[LogObservation | Opened]:
        """Give what was held back: a last line without a newline, parts of a line whose end will not come.

        If more of that line does come, its next redraw after a carriage return is read; other text is the middle of
        something, perhaps of a user's prompt, and is passed over.
        """
        out: list[LogObservation | Opened] = []
        if self._torn.is_open:
            torn = self._torn.close()
            is_prompt = split_record(torn.text).form is Form.REQUEST_LOG
            self._rest = _Rest(torn.offset, torn.line, is_prompt=is_prompt)
            self._whole_lines(torn.text, torn.offset, torn.line, out, size=torn.size, was_counted=torn.was_counted)
        if self._unframer is not None:
            unwrapped = Unwrapped()
            self._unframer.finish(unwrapped)
            self._unwrapped(unwrapped, out)
        return out

    def _scan(self, block: bytes, offset: int, line: int, out: list[LogObservation | Opened]) -> None:
        if self._rest is not None:
            skipped, opens = self._rest.skip(block)
            if skipped == 0:
                skipped = len(block)
            elif opens:
                self._torn.open(self._rest.offset, self._rest.line, was_counted=True)
                self._rest = None
            else:
                line, self._rest = self._rest.line + 1, None
            at_s = self._reader.moments.carried_s
            out.append(Tally(at_s=at_s, source=self.source, lines=0, bytes=skipped, sglang_lines=0, odd_lines=0))
            block, offset = block[skipped:], offset + skipped
        if self._torn.is_open:
            end = block.find(b"\n")
            if end < 0:
                self._torn.add(block)
                return
            self._torn.add(block[:end])
            torn = self._torn.close()
            text, size = torn.text + b"\n", torn.size + 1
            self._whole_lines(text, torn.offset, torn.line, out, size=size, was_counted=torn.was_counted)
            block, offset, line = block[end + 1 :], offset + end + 1, torn.line + 1
        end = block.rfind(b"\n") + 1
        if end < len(block):
            self._torn.open(offset + end, line + block.count(b"\n"))
            self._torn.add(block[end:])
            block = block[:end]
        if block:
            self._whole_lines(block, offset, line, out, size=len(block))

    def _whole_lines(
        self, block: bytes, offset: int, line: int, out: list[LogObservation | Opened], *, size: int, was_counted: bool = False
    ) -> None:
        """Scan whole lines; `size` is what they took in the source, more than `block` if a long line was cut."""
        begin_s = len(out)
        counts = self._reader.counts
        counts.reset()
        for part, part_offset, part_line in self._decided(block, offset, line):
            if self._unframer is None:
                self._plain(part, part_offset, part_line, out)
            else:
                unwrapped = Unwrapped()
                for raw, raw_offset, raw_line in _physical_lines(part, part_offset, part_line):
                    self._unframer.line(raw, raw_offset, raw_line, unwrapped)
                self._unwrapped(unwrapped, out)
        at_s = self._reader.moments.carried_s or next((one.at_s for one in reversed(out[begin_s:]) if one.at_s is not None), None)
        out.append(
            Tally(
                at_s=at_s,
                source=self.source,
                lines=block.count(b"\n") + (not block.endswith(b"\n")) - was_counted,
                bytes=size,
                sglang_lines=counts.sglang,
                odd_lines=counts.odd,
                first_position=Position(self.source, line, offset),
            )
        )

    def _decided(self, block: bytes, offset: int, line: int) -> Iterator[tuple[bytes, int, int]]:
        """Cut a block where the format becomes known; line by line, so that cuts of blocks change nothing."""
        if self._format:
            yield block, offset, line
            return
        at = 0
        for raw, raw_offset, raw_line in _physical_lines(block, offset, line):
            found = detect(raw)
            self._undecided += 1
            if found is None and self._undecided < UNDECIDED_LINES:
                continue
            at = raw_offset - offset
            if at:
                yield block[:at], offset, line
            self._format = found or "plain"
            self._unframer = unframer(self._format) if self._format != "plain" else None
            yield block[at:], raw_offset, raw_line
            return
        yield block, offset, line

    def _plain(self, block: bytes, offset: int, line: int, out: list[LogObservation | Opened]) -> None:
        lines: Lines
        if b"\x1b" in block or b"\0" in block:
            text = without_noise(block)
            lines = CleanedLines(self.source, text, block, offset, line)
        else:
            text = block
            lines = PlainLines(self.source, block, offset, line)
        out.extend(self._reader.read(text, lines))

    def _unwrapped(self, unwrapped: Unwrapped, out: list[LogObservation | Opened]) -> None:
        if not unwrapped.starts:
            return
        text = bytes(unwrapped.text)
        lines = FramedLines(self.source, unwrapped)
        if not self._stamps.zone.certain:
            self._measure_zone(text, lines)
        out.extend(self._reader.read(text, lines))

    def _measure_zone(self, text: bytes, lines: FramedLines) -> None:
        """A framing's times are UTC: the first line that also has a stamp of its own tells the zone of the stamps."""
        first = first_stamp(text)
        if first is None:
            return
        start, stamp = first
        stamp_s, true_s = StampReader(Zone.utc()).read(stamp), lines.time_s(start)
        if stamp_s is None or true_s is None:
            return
        found = measured(stamp_s, true_s)
        if found is not None:
            self._stamps.zone = Zone(found.name, found.info, certain=True, day=self._stamps.zone.day)


def first_stamp(text: bytes) -> tuple[int, bytes] | None:
    """Return where the first line with SGLang's prefix begins, and its raw stamp."""
    found = PREFIXED_LINE.search(text)
    prefix = PREFIX.match(text, found.start()) if found else None
    return (prefix.start(), prefix[1]) if prefix else None


@dataclass(frozen=True, slots=True)
class _Rest:
    """A line that was given before its end came; where it stands."""

    offset: int
    line: int
    is_prompt: bool  # it holds the text of users: nothing of it is read before its newline

    def skip(self, block: bytes) -> tuple[int, bool]:
        """Return how many bytes to pass over (0: all), and whether a redraw of the same line begins there."""
        end = block.find(b"\n")
        if not self.is_prompt:
            redraw = block.find(b"\r", 0, len(block) if end < 0 else end)
            if redraw >= 0 and redraw != end - 1:
                return redraw + 1, True
        return end + 1, False


@dataclass(frozen=True, slots=True)
class _Closed:
    """A torn line, as far as it came, without its newline."""

    text: bytes
    offset: int
    line: int
    size: int  # bytes that it took in the source
    was_counted: bool  # an earlier part of it was given as a line


class _Torn:
    """A line whose newline has not come yet. Of a long one its last redraw is kept, up to the longest line."""

    def __init__(self) -> None:
        self.is_open = False
        self._kept = bytearray()
        self._size = 0
        self._offset = 0
        self._line = 0
        self._was_counted = False

    def open(self, offset: int, line: int, *, was_counted: bool = False) -> None:
        self.is_open, self._offset, self._line, self._was_counted = True, offset, line, was_counted

    def add(self, part: bytes) -> None:
        self._size += len(part)
        self._kept += part
        if len(self._kept) <= LONGEST_LINE:
            return
        redraw = self._kept.rstrip(b"\r").rfind(b"\r")
        if redraw >= 0 and split_record(bytes(self._kept[:4096])).form is not Form.REQUEST_LOG:
            del self._kept[: redraw + 1]
        del self._kept[LONGEST_LINE:]

    def close(self) -> _Closed:
        closed = _Closed(bytes(self._kept), self._offset, self._line, self._size, self._was_counted)
        self.is_open, self._size = False, 0
        self._kept.clear()
        return closed


def _physical_lines(block: bytes, offset: int, line: int) -> Iterator[tuple[bytes, int, int]]:
    at = 0
    while at < len(block):
        end = block.find(b"\n", at)
        end = len(block) if end < 0 else end
        yield block[at:end], offset + at, line
        at, line = end + 1, line + 1
