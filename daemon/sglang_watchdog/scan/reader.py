"""Reads one text, unwrapped and cleaned, into observations; what must outlive it (time, tracebacks, bars) is kept here."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from ..model.finding import Release
from ..model.observation import Access, Batch, Dump, Hit, LogObservation, Position, Progress
from ..parse.access import Answer, answer_of, kind_of_path
from ..parse.batch import BatchFields, BatchReader, read_batch
from ..parse.framing import LONGEST_LINE
from ..parse.progress import last_bar
from ..parse.record import PREFIX, PREFIXED_LINE, RANKS, STAMP, Form, Record, split_odd, split_record
from ..parse.redact import Redactor
from ..parse.release import inferred_release
from ..parse.server_args import read_server_args
from ..parse.stamp import StampReader
from .lines import Lines
from .patterns import BAR_FAST, BAR_SLOW, DUMP, DUMP_UPDATE, TRACEBACK, Compiled, PatternSet
from .tracebacks import Tracebacks

# The two lines that a busy server prints all day, in their plain form; every other form goes through split_record.
_COMMON: Final = re.compile(
    rb"^(?:\[(" + STAMP + rb")(" + RANKS + rb")\] )?(?:(?<=\] )(Prefill|Decode) batch[.,] ([^\r\n]*)|"
    rb'INFO:     \S+ - "[A-Z]+ ([^\s"]+) HTTP/[\d.]+" (\d{3})(?: [^"\r\n]*)?\r?$)',
    re.MULTILINE,
)
_BATCH_NEEDLE: Final = re.compile(rb"(?:Prefill|Decode) batch[.,( ]")
_ACCESS_NEEDLE: Final = re.compile(rb' HTTP/[\d.]+" \d{3}')
_LONGEST_RECORD: Final = 64 * 1024
_QUOTED: Final = 2000  # characters


class _Mark(IntEnum):
    """Why a line is looked at, in the order in which one line's observations come."""

    DUMP = 0
    TRACEBACK = 1
    BAR = 2
    BATCH = 3
    ACCESS = 4
    PATTERNS = 5


@dataclass(slots=True)
class Counts:
    """Lines since the last reset: SGLang's own, and those among them without its prefix (a custom logging configuration)."""

    sglang: int = 0
    odd: int = 0

    def reset(self) -> None:
        self.sglang = self.odd = 0


@dataclass(slots=True)
class _Text:
    """The text being read."""

    bytes: bytes
    lines: Lines
    base: int                     # bytes scanned before it
    prefixed_from: int            # where the first line with SGLang's prefix begins
    accesses: dict[tuple[int | None, str, int], list[int]] = field(default_factory=dict)   # index into out, count
    out: list[LogObservation] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ReleaseTable:
    """What the library knows of the fields that each release's dump prints."""

    fields: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    releases: tuple[str, ...] = ()

    def of(self, args: Mapping[str, Any], form: str, *, complete: bool) -> Release:
        """The releases whose dump has exactly such fields; a dump that was cut tells nothing."""
        return inferred_release(args, self.fields, self.releases, form=form) if complete else Release()


class TextReader:
    """Keeps what reaches from one text into the next."""

    def __init__(self, patterns: PatternSet, stamps: StampReader, releases: "ReleaseTable | None" = None) -> None:
        self.counts = Counts()
        self._releases = releases or ReleaseTable()
        self.carried_s: float | None = None
        self._patterns = patterns
        self._stamps = stamps
        self._redact = Redactor()
        self._batches = BatchReader()
        self._tracebacks = Tracebacks()
        self._base = 0
        self._saw_prefix = False
        self._dated_at = -1           # the last line with a stamp, in scanned bytes
        self._carry_from = 0          # before this index of the text the carried time is up to date
        self._last_bar: tuple[str, int, int] | None = None
        self._batch_hits: dict[tuple[int, str], int] = {}

    def read(self, text: bytes, lines: Lines) -> list[LogObservation]:
        """Return the observations of a text of whole lines, in order; answers of one second are counted together."""
        first = None if self._saw_prefix else PREFIXED_LINE.search(text)
        prefixed_from = 0 if self._saw_prefix else first.start() if first else len(text)
        now = _Text(text, lines, self._base, prefixed_from)
        self._carry_from = 0
        self.counts.sglang += _count_prefixed(text)
        for start, mark, what in self._marks(now):
            self._take(now, start, mark, what)
        self._carry(now, len(text))
        self._tracebacks.advance(text, self._base, len(text))
        self._base += len(text)
        self._saw_prefix = self._saw_prefix or first is not None
        return now.out

    def first_stamp(self, text: bytes) -> tuple[int, bytes] | None:
        """Return where the first line with SGLang's prefix begins, and its raw stamp."""
        found = PREFIXED_LINE.search(text)
        prefix = PREFIX.match(text, found.start()) if found else None
        return (prefix.start(), prefix[1]) if prefix else None

    # --- which lines to look at

    def _marks(self, now: _Text) -> list[tuple[int, int, Any]]:
        marks: list[tuple[int, int, Any]] = []
        self._mark_common(now.bytes, marks)
        self._mark_found(now.bytes, marks)
        marks.sort()  # a line has one mark of each kind, so the third item is never compared
        return marks

    def _mark_common(self, text: bytes, marks: list[tuple[int, int, Any]]) -> None:
        """Mark batch and access lines; answers of the same time, kind and status are counted at the first of them.

        An access line without a stamp (up to 0.3.6) has the time of the line before; where that one is not of the common
        forms it is looked up later, once for each run of such lines.
        """
        counted: dict[tuple[bytes | int, str, bytes], list[Any]] = {}
        batches = accesses = 0
        time_of: bytes | int = b""      # of the common line before: its stamp, or where a run without stamps begins
        end = -2
        for found in _COMMON.finditer(text):
            stamp, _, batch, _, path, status = found.groups()
            start = found.start()
            if stamp is not None:
                time_of = stamp
            elif start > end + 1:
                time_of = start
            end = found.end()
            if batch is not None:
                batches += 1
                marks.append((start, _Mark.BATCH, found))
                continue
            accesses += 1
            key = (time_of, kind_of_path(path), status)
            seen = counted.get(key)
            if seen is None:
                counted[key] = seen = [b"" if isinstance(time_of, int) else time_of, Answer(key[1], int(status)), 0]
                marks.append((start, _Mark.ACCESS, seen))
            seen[2] += 1
        if text.count(b"Prefill batch") + text.count(b"Decode batch") != batches:
            marks.extend(_unusual(text, _BATCH_NEEDLE, _Mark.BATCH))
        if text.count(b" HTTP/") != accesses:
            marks.extend(_unusual(text, _ACCESS_NEEDLE, _Mark.ACCESS))

    def _mark_found(self, text: bytes, marks: list[tuple[int, int, Any]]) -> None:
        own = self._patterns.own
        last: list[int] = []
        last_start = -1
        kinds = {
            own[DUMP]: _Mark.DUMP, own[DUMP_UPDATE]: _Mark.DUMP, own[TRACEBACK]: _Mark.TRACEBACK,
            own[BAR_SLOW]: _Mark.BAR, own[BAR_FAST]: _Mark.BAR,
        }
        marked: set[tuple[int, int]] = set()
        for start, literal in self._patterns.search.find(text):
            kind = kinds.get(literal)
            if kind is not None and (start, kind) not in marked:
                marked.add((start, kind))
                marks.append((start, kind, None))
            if indices := self._patterns.patterns_of[literal]:
                if start != last_start:
                    last_start, last = start, []
                    marks.append((start, _Mark.PATTERNS, last))
                last.extend(indices)
        if self._patterns.always:
            marks.extend(self._every_line(text, marks))

    def _every_line(self, text: bytes, marks: list[tuple[int, int, Any]]) -> Iterable[tuple[int, int, Any]]:
        """Patterns without any literal are tried on every line; lint warns about them."""
        by_start = {start: what for start, mark, what in marks if mark == _Mark.PATTERNS}
        fresh: list[tuple[int, int, Any]] = []
        at = 0
        while at < len(text):
            indices = by_start.get(at)
            if indices is None:
                fresh.append((at, _Mark.PATTERNS, list(self._patterns.always)))
            else:
                indices.extend(self._patterns.always)
            at = text.find(b"\n", at) + 1 or len(text)
        return fresh

    # --- one line

    def _take(self, now: _Text, start: int, mark: int, what: Any) -> None:
        if mark == _Mark.BATCH:
            self._take_batch(now, start, what)
        elif mark == _Mark.ACCESS:
            self._take_access(now, start, what)
        elif mark == _Mark.PATTERNS:
            self._take_patterns(now, start, what)
        elif mark == _Mark.BAR:
            self._take_bar(now, start)
        elif mark == _Mark.TRACEBACK:
            self._take_traceback(now, start)
        else:
            self._take_dump(now, start)

    def _take_batch(self, now: _Text, start: int, found: re.Match[bytes] | None) -> None:
        if found is not None:
            stamp, ranks, kind, body = found.group(1, 2, 3, 4)
            is_decode = kind == b"Decode"
            known, extra = self._batches.read(is_decode, body)
            at_s = self._stamps.read(stamp)
            rank = ranks.strip().decode("ascii")
            text, message_at = found[0], found.start(3) - start
        else:
            unusual = self._unusual_batch(now, start)
            if unusual is None:
                return
            fields, text, message_at, stamp, rank = unusual
            is_decode, known, extra = fields.is_decode, fields.known, fields.extra
            at_s = self._stamps.read(stamp) if stamp else None
        if at_s is None:
            at_s = now.lines.time_s(start)
            if at_s is None:
                at_s = self._carry(now, start)
        position = now.lines.position(start)
        quoted = text[:_QUOTED].decode("utf-8", "replace")
        now.out.append(
            Batch(at_s=at_s, position=position, rank=rank, text=quoted, is_decode=is_decode, extra=extra, **known)  # type: ignore[arg-type]
        )
        if self._patterns.on_batches:
            self._hit_batch(now, position, at_s, rank, quoted, quoted[message_at:])

    def _unusual_batch(self, now: _Text, start: int) -> tuple[BatchFields, bytes, int, bytes, str] | None:
        """Read a batch line that is glued, coloured, foreign-headed or of a custom logging configuration."""
        record = self._record(now, start)
        if record.form is Form.SGLANG:
            fields = read_batch(record.message)
            return (fields, record.text, len(record.text) - len(record.message), record.stamp, record.rank) if fields else None
        if not self._may_be_odd(now, start, record) or (odd := split_odd(record.text)) is None:
            return None
        for message in odd.messages:
            if fields := read_batch(message):
                self._count_odd()
                return fields, odd.text, len(odd.text) - len(message), odd.stamp, odd.rank
        return None

    def _hit_batch(self, now: _Text, position: Position, at_s: float | None, rank: str, text: str, message: str) -> None:
        """Patterns aimed at batch lines: one hit a second and rank, for the numbers come as Batch anyway."""
        for index in self._patterns.on_batches:
            if at_s is not None and self._batch_hits.get((index, rank)) == int(at_s):
                continue
            one = self._patterns.compiled[index]
            captures = one.match(message)
            if captures is None:
                continue
            if at_s is not None:
                self._batch_hits[index, rank] = int(at_s)
            now.out.append(Hit(at_s=at_s, position=position, pattern=one.pattern.id, rank=rank, text=text, captures=captures))

    def _take_access(self, now: _Text, start: int, counted: list[Any] | None) -> None:
        if counted is not None:
            self._add_answer(now, start, *counted)
            return
        record = self._record(now, start)
        if record.form is Form.ACCESS:
            answer = answer_of(record.message)
            self.counts.sglang += not record.stamp
        elif self._may_be_odd(now, start, record) and (odd := split_odd(record.text)) is not None:
            answer = next((found for found in map(answer_of, odd.messages) if found), None)
            if answer is not None:
                self._count_odd()
                record = Record(Form.ACCESS, record.text, record.text, odd.stamp, odd.rank)
        else:
            return
        if answer is not None:
            self._add_answer(now, start, record.stamp, answer, 1)

    def _add_answer(self, now: _Text, start: int, stamp: bytes, answer: Answer, count: int) -> None:
        at_s = self._stamps.read(stamp) if stamp else None
        if at_s is None:
            at_s = now.lines.time_s(start)
        if at_s is None:
            at_s = self._carry(now, start)
        key = (None if at_s is None else int(at_s // 1), answer.kind, answer.status)
        seen = now.accesses.get(key)
        if seen is None:
            now.accesses[key] = [len(now.out), count]
        else:
            seen[1] += count
            count = seen[1]
        index = now.accesses[key][0]
        if seen is None:
            now.out.append(
                Access(at_s=None if key[0] is None else float(key[0]), position=now.lines.position(start), status=answer.status, kind=answer.kind, count=count)
            )
        else:
            before = now.out[index]
            assert isinstance(before, Access)  # noqa: S101 the index was kept when it was put there
            now.out[index] = Access(at_s=before.at_s, position=before.position, status=before.status, kind=before.kind, count=count)

    def _take_bar(self, now: _Text, start: int) -> None:
        line = self._line(now.bytes, start)
        record = split_record(line)
        if record.form is Form.REQUEST_LOG or PREFIX.match(line):
            return
        bar = last_bar(line)
        if bar is None or (bar.what, bar.done, bar.total) == self._last_bar:
            return
        self._last_bar = (bar.what, bar.done, bar.total)
        at_s, _ = self._time(now, start, b"")
        now.out.append(
            Progress(at_s=at_s, position=now.lines.position(start), what=bar.what, done=bar.done, total=bar.total, elapsed_s=bar.elapsed_s)
        )

    def _take_traceback(self, now: _Text, start: int) -> None:
        record = self._record(now, start)
        if record.form in (Form.REQUEST_LOG, Form.ACCESS):
            return
        owner = (now.lines.position(start), record.rank) if record.stamp else None
        if owner is None and not record.message.startswith(TRACEBACK.text):
            return
        self._carry(now, start)
        self._tracebacks.begin(now.bytes, now.base, start, owner, dated_at=self._dated_at)

    def _take_dump(self, now: _Text, start: int) -> None:
        record = self._record(now, start)
        messages: tuple[bytes, ...] = (record.message,) if record.form is Form.SGLANG else ()
        stamp = record.stamp
        if not messages and self._may_be_odd(now, start, record) and (odd := split_odd(record.text)) is not None:
            messages, stamp = odd.messages, odd.stamp
        for message in messages:
            read = read_server_args(message.decode("utf-8", "replace"))
            if read is None:
                continue
            if record.form is not Form.SGLANG:
                self._count_odd()
            self._redact.learn(read.secrets)
            at_s, _ = self._time(now, start, stamp)
            release = self._releases.of(read.args, "repr" if b"ServerArgs(" in message[:200] else "dict", complete=read.complete)
            now.out.append(
                Dump(
                    at_s=at_s, position=now.lines.position(start), args=read.args, digest=read.digest,
                    text=self._quote(record.text), complete=read.complete, update=read.is_update,
                    release_min=release.min, release_max=release.max,
                )
            )
            return

    def _take_patterns(self, now: _Text, start: int, indices: list[int]) -> None:
        record = self._record(now, start)
        if record.form in (Form.REQUEST_LOG, Form.ACCESS):
            return
        dated, undated = self._texts(now, start, record)
        hits: list[tuple[Compiled, Mapping[str, str]]] = []
        is_odd = False
        for index in sorted(set(indices)):
            one = self._patterns.compiled[index]
            texts = dated.texts + undated if one.pattern.undated else dated.texts
            for text in texts:
                captures = one.match(text)
                if captures is not None:
                    hits.append((one, self._clean_captures(one, text, captures)))
                    is_odd = is_odd or (dated.is_odd and text in dated.texts)
                    break
        if hits:
            if is_odd:
                self._count_odd()
            self._add_hits(now, start, record, dated.stamp, dated.rank, hits)

    def _add_hits(
        self, now: _Text, start: int, record: Record, stamp: bytes, rank: str, hits: list[tuple[Compiled, Mapping[str, str]]]
    ) -> None:
        at_s, has_time = self._time(now, start, stamp)
        header = None
        if not stamp and record.form is Form.BARE:
            self._carry(now, start)
            joined = self._tracebacks.around(now.bytes, now.base, start, dated_at=self._dated_at)
            if joined is not None:
                header, rank = joined.header, joined.rank
        position, text = now.lines.position(start), self._quote(record.text)
        now.out.extend(
            Hit(at_s=at_s, position=position, pattern=one.pattern.id, rank=rank, text=text, captures=captures, header=header, dated=has_time)
            for one, captures in hits
        )

    # --- helpers

    @dataclass(slots=True)
    class _Dated:
        texts: tuple[str, ...]
        stamp: bytes
        rank: str
        is_odd: bool = False

    def _texts(self, now: _Text, start: int, record: Record) -> tuple["TextReader._Dated", tuple[str, ...]]:
        """Return the texts in which any pattern may match, and those only for patterns of undated lines."""
        message = record.message.decode("utf-8", "replace")
        inner = (record.inner.decode("utf-8", "replace"),) if record.inner else ()
        if record.form in (Form.SGLANG, Form.UVICORN):
            return self._Dated((message, *inner), record.stamp, record.rank), ()
        if self._may_be_odd(now, start, record) and (odd := split_odd(record.text)) is not None:
            texts = tuple(text.decode("utf-8", "replace") for text in odd.messages)
            return self._Dated(texts, odd.stamp or record.stamp, odd.rank, is_odd=True), (message, *inner)
        return self._Dated((), record.stamp, record.rank), (message, *inner)

    def _may_be_odd(self, now: _Text, start: int, record: Record) -> bool:
        """A server with its own logging configuration never prints the prefix, so one such line ends the guessing."""
        return record.form in (Form.BARE, Form.FOREIGN) and start < now.prefixed_from and not self._saw_prefix

    def _count_odd(self) -> None:
        self.counts.odd += 1
        self.counts.sglang += 1

    def _record(self, now: _Text, start: int) -> Record:
        return split_record(self._line(now.bytes, start))

    def _line(self, text: bytes, start: int) -> bytes:
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

    def _time(self, now: _Text, start: int, stamp: bytes) -> tuple[float | None, bool]:
        """Return a line's time and whether it is its own: its stamp, else its framing's time, else the last one seen."""
        at_s = self._stamps.read(stamp) if stamp else None
        if at_s is None:
            at_s = now.lines.time_s(start)
        if at_s is not None:
            return at_s, True
        return self._carry(now, start), False

    def _carry(self, now: _Text, start: int) -> float | None:
        """Return the time of the last line before `start` that has a stamp; each line is looked at once at most."""
        end = start
        while end > self._carry_from:
            begin = max(now.bytes.rfind(b"\n", self._carry_from, end - 1) + 1, self._carry_from)
            stamp = self._stamp_of(now, begin, end)
            at_s = self._stamps.read(stamp) if stamp else None
            if at_s is not None:
                self.carried_s = at_s
                self._dated_at = now.base + begin
                break
            end = begin
        self._carry_from = max(self._carry_from, start)
        return self.carried_s

    def _stamp_of(self, now: _Text, begin: int, end: int) -> bytes:
        text = now.bytes
        if prefix := PREFIX.match(text, begin, end):
            return prefix[1]
        if text[begin] in b" \t\n" and text.find(b"\r", begin, end) < 0 and text.find(b"][", begin, end) < 0:
            return b""  # the body of a traceback
        record = self._record(now, begin)
        if not record.stamp and self._may_be_odd(now, begin, record) and (odd := split_odd(record.text)) is not None:
            return odd.stamp
        return record.stamp

    def _quote(self, text: bytes) -> str:
        """Return a record as it may be shown: decoded, redacted, cut."""
        quoted = self._redact(text[: 4 * _QUOTED].decode("utf-8", "replace"))
        return quoted if len(quoted) <= _QUOTED else quoted[: _QUOTED - 1] + "…"

    def _clean_captures(self, one: Compiled, text: str, captures: Mapping[str, str]) -> Mapping[str, str]:
        """Take captures from the redacted text; if the pattern matches only what was cut, there is nothing to show."""
        if not captures:
            return captures
        clean = self._redact(text)
        return captures if clean == text else one.match(clean) or {}


def _count_prefixed(text: bytes) -> int:
    if count := text.count(b"\n[20") + text.startswith(b"[20"):
        return count
    return sum(1 for _ in PREFIXED_LINE.finditer(text)) if b"[" in text else 0  # 0.3.0 prints the time of day alone


def _unusual(text: bytes, needle: re.Pattern[bytes], mark: int) -> Iterable[tuple[int, int, Any]]:
    """Mark the lines that hold a needle and are not of the common form."""
    at = 0
    while found := needle.search(text, at):
        start = text.rfind(b"\n", 0, found.start()) + 1
        end = text.find(b"\n", found.end())
        if not _COMMON.match(text, start):
            yield start, mark, None
        if end < 0:
            return
        at = end + 1
