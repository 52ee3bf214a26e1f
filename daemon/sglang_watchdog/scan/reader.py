"""Reads one text, unwrapped and cleaned, into observations, and keeps what must outlive it: time, tracebacks, bars, secrets."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..model.finding import Release
from ..model.observation import Dump, Hit, LogObservation, Position, Progress, Raised, Tally
from ..parse.access import Answer, answer_of
from ..parse.batch import BatchReader, read_batch
from ..parse.progress import last_bar
from ..parse.record import PREFIX, PREFIXED_LINE, Form, Record, split_odd
from ..parse.redact import Redactor
from ..parse.release import inferred_release
from ..parse.server_args import read_server_args
from ..parse.stamp import StampReader
from .answers import AnswerCounts
from .batches import make_batch
from .lines import Lines
from .marks import Marker
from .moments import Moments, Text, line_at
from .patterns import DECODE, TRACEBACK, Compiled, PatternSet
from .quotes import without_sentences
from .tracebacks import Tracebacks

_QUOTED: Final = 2000  # characters
_MATCHED: Final = 16 * 1024  # bytes of a message that patterns see: two `.*` in one regex take the square of it


@dataclass(slots=True)
class Counts:
    """Lines since the last reset: SGLang's own, and those among them without its prefix (a custom logging configuration)."""

    sglang: int = 0
    odd: int = 0

    def reset(self) -> None:
        self.sglang = self.odd = 0


@dataclass(frozen=True, slots=True)
class ReleaseTable:
    """What the library knows of the fields that each release's dump prints."""

    fields: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    releases: tuple[str, ...] = ()

    def of(self, args: Mapping[str, Any], form: str, *, complete: bool) -> Release:
        """The releases whose dump has exactly such fields; a dump that was cut tells nothing."""
        return inferred_release(args, self.fields, self.releases, form=form) if complete else Release()


@dataclass(slots=True)
class _Line:
    """A record with the texts in which patterns may match."""

    record: Record
    stamp: bytes
    rank: str
    any_pattern: tuple[str, ...]
    undated_only: tuple[str, ...]  # for patterns that may match lines without SGLang's prefix
    is_odd: bool = False
    is_clean: bool | None = None  # None: not looked at yet

    def texts_for(self, one: Compiled) -> tuple[str, ...]:
        """Return the texts in which a pattern may match.

        One that may stand anywhere in another writer's line (a kernel's, torch's) is not looked for inside SGLang's own
        records, where the names of models and requests stand.
        """
        if not one.pattern.undated:
            return self.any_pattern
        return self.any_pattern + self.undated_only if one.is_anchored or self.is_odd else self.undated_only


@dataclass(frozen=True, slots=True)
class _UnusualBatch:
    """A batch line that is glued, coloured, foreign-headed or of a custom logging configuration."""

    is_decode: bool
    known: Mapping[str, int | float]
    extra: Mapping[str, float]
    text: bytes
    message: bytes
    stamp: bytes
    rank: str


class TextReader:
    """Keeps what reaches from one text of a source into the next."""

    def __init__(self, patterns: PatternSet, stamps: StampReader, releases: ReleaseTable | None = None) -> None:
        self.counts = Counts()
        self.moments = Moments(stamps)
        self._releases = releases or ReleaseTable()
        self._patterns = patterns
        self._marker = Marker(patterns)
        self._redact = Redactor()
        self._batches = BatchReader()
        self._tracebacks = Tracebacks()
        self._base = 0
        self._saw_prefix = False
        self._last_bar: tuple[str, int, int] | None = None
        self._batch_hits: dict[tuple[int, str], int] = {}
        self._out: list[LogObservation] = []
        self._answers = AnswerCounts()

    def use(self, patterns: PatternSet) -> None:
        """Look for other patterns from here on."""
        self._patterns = patterns

    def read(self, data: bytes, lines: Lines) -> list[LogObservation]:
        """Return the observations of a text of whole lines, in their order; answers of one second are counted together."""
        first = None if self._saw_prefix else PREFIXED_LINE.search(data)
        prefixed_from = 0 if self._saw_prefix else first.start() if first else len(data)
        text = Text(data, lines, self._base, prefixed_from)
        self._out, self._answers = [], AnswerCounts()
        self.moments.begin()
        self.counts.sglang += _count_prefixed(data)
        take = (self._dump, self._traceback, self._bar, self._batch, self._access, self._pattern_hits)
        marks, bare_answers = self._marker.marks(data, has_times=lines.has_times)
        self.counts.sglang += bare_answers
        for start, why, what in marks:
            take[why](text, start, what)
        self.moments.before(text, len(data))
        self._tracebacks.advance(data, self._base, len(data))
        if raised := self._raised(text):  # found later than the lines behind them: put in their place
            self._out = sorted([*self._out, *raised], key=_line_of)
        self._base += len(data)
        self._saw_prefix = self._saw_prefix or first is not None
        return self._out

    # --- batch lines

    def _batch(self, text: Text, start: int, found: re.Match[bytes] | None) -> None:
        if found is None:
            if (unusual := self._unusual_batch(text, start)) is not None:
                self._add_batch(text, start, unusual)
            return
        stamp, ranks, kind, body = found.group(1, 2, 3, 4)
        known, extra = self._batches.read(kind == b"Decode", body)
        at_s, _ = self.moments.of(text, start, stamp)
        rank = ranks[1:].decode("ascii")
        quoted = found[0][:_QUOTED].decode("utf-8", "replace")
        position = text.lines.position(start)
        self._out.append(make_batch(at_s, position, rank, quoted, kind == b"Decode", known, extra))
        if self._patterns.on_decode if kind == b"Decode" else self._patterns.on_prefill:
            self._batch_pattern_hits(at_s, position, rank, quoted, quoted[found.start(3) - start :])

    def _unusual_batch(self, text: Text, start: int) -> _UnusualBatch | None:
        record = text.record(start)
        if record.form is Form.SGLANG:
            found = read_batch(record.message)
            if found is None:
                return None
            return _UnusualBatch(found.is_decode, found.known, found.extra, record.text, record.message, record.stamp, record.rank)
        if not text.may_be_odd(start, record) or (odd := split_odd(record.text)) is None:
            return None
        for message in odd.messages:
            if found := read_batch(message):
                self._count_odd()
                return _UnusualBatch(found.is_decode, found.known, found.extra, odd.text, message, odd.stamp, odd.rank)
        return None

    def _add_batch(self, text: Text, start: int, line: _UnusualBatch) -> None:
        at_s, _ = self.moments.of(text, start, line.stamp)
        position = text.lines.position(start)
        quoted = self._quote(line.text)
        self._out.append(make_batch(at_s, position, line.rank, quoted, line.is_decode, line.known, line.extra))
        message = line.message.decode("utf-8", "replace")
        self._batch_pattern_hits(at_s, position, line.rank, quoted, message)

    def _batch_pattern_hits(self, at_s: float | None, position: Position, rank: str, text: str, message: str) -> None:
        """Patterns aimed at batch lines: one hit for each second and rank, for the numbers come as Batch anyway."""
        for index in self._patterns.on_decode if message.startswith(DECODE) else self._patterns.on_prefill:
            if at_s is not None and self._batch_hits.get((index, rank)) == int(at_s):
                continue
            one = self._patterns.compiled[index]
            captures = one.match(message)
            if captures is None:
                continue
            if at_s is not None:
                self._batch_hits[index, rank] = int(at_s)
            self._out.append(Hit(at_s=at_s, position=position, pattern=one.pattern.id, rank=rank, text=text, captures=captures))

    # --- HTTP answers

    def _access(self, text: Text, start: int, counted: list[Any] | None) -> None:
        if counted is not None:
            stamp, answer, count = counted
            self._add_answer(text, start, stamp, answer, count)
            return
        record = text.record(start)
        if record.form is Form.ACCESS:
            found = answer_of(record.message)
            if found is not None:
                self.counts.sglang += not record.stamp
                self._add_answer(text, start, record.stamp, found, 1)
        elif text.may_be_odd(start, record) and (odd := split_odd(record.text)) is not None:
            found = next(filter(None, map(answer_of, odd.messages)), None)
            if found is not None:
                self._count_odd()
                self._add_answer(text, start, odd.stamp, found, 1)

    def _add_answer(self, text: Text, start: int, stamp: bytes, answer: Answer, count: int) -> None:
        at_s, _ = self.moments.of(text, start, stamp)
        self._answers.add(self._out, at_s, text.lines.position(start), answer, count)

    # --- bars, tracebacks, dumps

    def _bar(self, text: Text, start: int, _: None) -> None:
        line = line_at(text.bytes, start)
        if text.record(start).form is Form.REQUEST_LOG or PREFIX.match(line):
            return
        bar = last_bar(line)
        if bar is None or (bar.what, bar.done, bar.total) == self._last_bar:
            return
        self._last_bar = (bar.what, bar.done, bar.total)
        at_s, _own = self.moments.of(text, start, b"")
        position = text.lines.position(start)
        self._out.append(Progress(at_s=at_s, position=position, what=bar.what, done=bar.done, total=bar.total, elapsed_s=bar.elapsed_s))

    def _traceback(self, text: Text, start: int, _: None) -> None:
        record = text.record(start)
        if record.form in (Form.REQUEST_LOG, Form.ACCESS):
            return
        rank = record.rank if record.stamp else None
        if rank is None and not record.message.startswith(TRACEBACK.text):
            return
        at_s = self.moments.of(text, start, record.stamp)[0]
        self.moments.before(text, start)
        position = text.lines.position(start)
        self._tracebacks.begin(text.bytes, text.base, start, position, rank, at_s=at_s, dated_at=self.moments.dated_at)

    def _raised(self, text: Text) -> list[Raised]:
        """The last lines of the tracebacks that ended in this text."""
        out = []
        for one in self._tracebacks.take_ended():
            start = one.ended - text.base
            quoted = self._quote(text.record(start).text)
            out.append(
                Raised(
                    at_s=one.at_s,
                    position=text.lines.position(start),
                    rank=one.rank,
                    text=quoted,
                    words=without_sentences(quoted),
                    header=one.header,
                )
            )
        return out

    def _dump(self, text: Text, start: int, _: None) -> None:
        record = text.record(start)
        messages: tuple[bytes, ...] = (record.message,) if record.form is Form.SGLANG else ()
        stamp = record.stamp
        if not messages and text.may_be_odd(start, record) and (odd := split_odd(record.text)) is not None:
            messages, stamp = odd.messages, odd.stamp
        for message in messages:
            read = read_server_args(message.decode("utf-8", "replace"))
            if read is None:
                continue
            if record.form is not Form.SGLANG:
                self._count_odd()
            self._redact.learn(read.secrets)
            at_s, _own = self.moments.of(text, start, stamp)
            form = "repr" if b"ServerArgs(" in message[:200] else "dict"
            release = self._releases.of(read.args, form, complete=read.complete)
            self._out.append(
                Dump(
                    at_s=at_s,
                    position=text.lines.position(start),
                    args=read.args,
                    digest=read.digest,
                    text=self._quote(record.text),
                    complete=read.complete,
                    release_min=release.min,
                    release_max=release.max,
                    update=read.is_update,
                )
            )
            return

    # --- the library's patterns

    def _pattern_hits(self, text: Text, start: int, indices: list[int]) -> None:
        record = text.record(start)
        if record.form in (Form.REQUEST_LOG, Form.ACCESS):
            return
        line = self._matchable(text, start, record)
        hits: list[tuple[Compiled, Mapping[str, str]]] = []
        for index in sorted(set(indices).difference(self._on_batches(record.message))):
            one = self._patterns.compiled[index]
            for message in line.texts_for(one):
                captures = self._match(one, message, line)
                if captures is not None:
                    hits.append((one, captures))
                    break
        if hits:
            if line.is_odd:
                self._count_odd()
            self._add_hits(text, start, line, hits)

    def _on_batches(self, message: bytes) -> tuple[int, ...]:
        """Return the patterns that were looked at already when the line was read as a batch line."""
        if message.startswith((b"Prefill batch", b"Decode batch")):
            return self._patterns.on_prefill + self._patterns.on_decode
        return ()

    def _matchable(self, text: Text, start: int, record: Record) -> _Line:
        message = _decoded(record.message)
        texts = (message, _decoded(record.inner)) if record.inner else (message,)
        if record.form in (Form.SGLANG, Form.UVICORN):
            return _Line(record, record.stamp, record.rank, texts, ())
        if text.may_be_odd(start, record) and (odd := split_odd(record.text)) is not None:
            guessed = tuple(map(_decoded, odd.messages))
            return _Line(record, odd.stamp or record.stamp, odd.rank, guessed, texts, is_odd=True)
        return _Line(record, record.stamp, record.rank, (), texts)

    def _add_hits(self, text: Text, start: int, line: _Line, hits: list[tuple[Compiled, Mapping[str, str]]]) -> None:
        at_s, dated = self.moments.of(text, start, line.stamp)
        header, rank = None, line.rank
        if not line.stamp and line.record.form is Form.BARE:
            self.moments.before(text, start)
            joined = self._tracebacks.around(text.bytes, text.base, start, dated_at=self.moments.dated_at)
            if joined is not None:
                header, rank = joined.header, joined.rank
        position = text.lines.position(start)
        quoted = _cut(_decoded(line.record.text)) if line.is_clean else self._quote(line.record.text)
        for one, captures in hits:
            self._out.append(
                Hit(
                    at_s=at_s,
                    position=position,
                    pattern=one.pattern.id,
                    rank=rank,
                    text=quoted,
                    captures=captures,
                    header=header,
                    dated=dated,
                )
            )

    # --- what may be shown

    def _quote(self, text: bytes) -> str:
        """Return a record as it may be shown: decoded, redacted, cut."""
        return _cut(self._redact(text[: 4 * _QUOTED].decode("utf-8", "replace")))

    def _match(self, one: Compiled, message: str, line: _Line) -> Mapping[str, str] | None:
        """Match a message, with the captures of its redacted form.

        A pattern that may stand anywhere must match without what users wrote: what redaction cuts, and quoted sentences.
        """
        captures = one.match(message)
        if captures is None:
            return None
        if one.is_anchored:
            return captures if not captures or self._is_clean(line) else one.match(self._redact(message)) or {}
        clean = message if self._is_clean(line) else self._redact(message)
        bare = without_sentences(clean)
        return captures if bare == message else one.match(bare)

    def _is_clean(self, line: _Line) -> bool:
        """Whether redaction leaves a record as it is."""
        if line.is_clean is None:
            whole = _decoded(line.record.text)
            line.is_clean = self._redact(whole) == whole
        return line.is_clean

    def _count_odd(self) -> None:
        self.counts.odd += 1
        self.counts.sglang += 1


def _line_of(one: LogObservation) -> int:
    return 0 if isinstance(one, Tally) else one.position.line


def _decoded(message: bytes) -> str:
    return message[:_MATCHED].decode("utf-8", "replace")


def _cut(text: str) -> str:
    return text if len(text) <= _QUOTED else text[: _QUOTED - 1] + "…"


def _count_prefixed(text: bytes) -> int:
    if count := text.count(b"\n[20") + text.startswith(b"[20"):
        return count
    return sum(1 for _ in PREFIXED_LINE.finditer(text)) if b"[" in text else 0  # 0.3.0 prints the time of day alone
