"""Lines that were said: what a match means now, what waits for the rest of its traceback, what it is counted for."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..model.finding import Change, FactEvidence, LineEvidence, Verdict
from ..model.observation import Hit, Position, Raised
from ..model.signature import Signature
from ..model.words import Answer, State
from .absence import applicability
from .compiled import CompiledSignature, is_hardware
from .lifecycle import Key, Statement
from .roots import Roots
from .runs import RunState, line_at, line_of
from .series import Series
from .state import EngineState, in_phase
from .values import typed
from .windowed import WindowJudge
from .windows import BY_RANK

_Kept = TypeVar("_Kept")
_DEFER_S = 2.0  # a traceback has ended by then
_RAISED = "{raised"  # in a summary: the signature cites the last line of its traceback
_HEAD = re.compile(r"\[\d[^\]]{0,80}\] ")
_MOST_BLOCKS = 256
_MOST_CHAINED = 3
_MOST_WORDS = 240  # characters of an exception in a summary


@dataclass(slots=True)
class _Deferred:
    item: CompiledSignature
    hit: Hit
    run: RunState | None
    due_s: float


class SaidJudge:
    """Judges signatures by a line that was said."""

    def __init__(self, state: EngineState, roots: Roots, windowed: WindowJudge) -> None:
        self.state = state
        self.roots = roots
        self.windowed = windowed
        self._deferred: list[_Deferred] = []  # a later line of the same traceback may make it another matter
        self._unless: dict[tuple[str, int], set[str]] = {}
        self._last_counted: dict[tuple[str, str], Position] = {}
        self._raised: dict[tuple[str, int], tuple[Raised, ...]] = {}  # record that holds a traceback -> its last lines, of a chain several
        self._raising: dict[tuple[str, int], list[_Deferred]] = {}  # the same -> what was said by it and cites that line
        self._first_raised: dict[tuple[str, str], tuple[str, int]] = {}  # (run, signature) -> the record nearest to the cause

    def forget(self, run: str) -> None:
        """Drop what was counted for a run that is over."""
        for table in (self.state.matches, self.state.recent, self._last_counted, self._first_raised):
            for key in [key for key in table if key[0] == run]:
                del table[key]

    def matches_of(self, hit: Hit, run: RunState | None, items: Sequence[CompiledSignature]) -> list[Change]:
        """A line matched `items`: count it, and fire what needs no more."""
        changes: list[Change] = []
        for item in items:
            if run is None and not is_hardware(item.signature):
                continue
            if not in_phase(item.signature, run):
                continue
            one = (run.id if run is not None else "", item.signature.id)
            if self._last_counted.get(one) == hit.position:
                continue  # another pattern of the same signature matched the same line: said once
            self._last_counted[one] = hit.position
            self._count_match(item, hit, run)
            if item.is_windowed:
                continue
            if item.signature.unless or item.signature.yields_to:
                if not self._unless.get(_block(hit), set()) & set(item.signature.unless):
                    self._deferred.append(_Deferred(item, hit, run, (hit.at_s if hit.at_s is not None else self.state.now_s) + _DEFER_S))
                continue
            changes += self._fire(item, hit, run)
        return changes

    def _count_match(self, item: CompiledSignature, hit: Hit, run: RunState | None) -> None:
        at_s = hit.at_s if hit.at_s is not None else self.state.at()
        if at_s is None:
            return
        table = self.state.matches.setdefault((run.id if run else "", item.signature.id), {})
        table.setdefault("match", Series()).add(at_s, 1.0)
        if hit.rank and item.is_windowed:
            table.setdefault(BY_RANK + hit.rank, Series()).add(at_s, 1.0)
        for name, text in hit.captures.items():
            value = typed(text, "float")
            if isinstance(value, float):
                table.setdefault(f"match.{name}", Series()).add(at_s, value)
        if run is not None and item.is_windowed:
            run.first_hits.setdefault((f"match:{item.signature.id}", ""), line_of(hit))
            recent = self.state.recent.setdefault((run.id, item.signature.id), [])
            recent.append(line_of(hit))
            del recent[8:-4]

    def on_raised(self, raised: Raised) -> list[Change]:
        """A traceback has ended: findings that rest on its record name what was raised."""
        block = (raised.header.source, raised.header.line)
        _put(self._raised, block, (*self._raised.get(block, ())[-_MOST_CHAINED:], raised))
        return [
            change
            for said in self._raising.get(block, ())
            if self.state.findings.state_of(self._key(said.item.signature, said.hit, said.run)) is State.FIRING
            for change in self._fire(said.item, said.hit, said.run, count=0)
        ]

    def _exception(self, item: CompiledSignature, hit: Hit, run: RunState | None) -> tuple[list[LineEvidence], str | None]:
        """The last lines of the traceback that a line belongs to, and the words of the first one of this finding."""
        if _RAISED not in item.signature.summary:
            return [], None
        block, key = _block(hit), (run.id if run is not None else "", item.signature.id)
        raised = self._raised.get(block, ())
        if raised:
            self._first_raised.setdefault(key, block)
        first = self._raised.get(self._first_raised.get(key, block), ())
        words = first[-1].words.rstrip(" .:") if first else None
        if words is not None and len(words) > _MOST_WORDS:
            words = words[: _MOST_WORDS - 1] + "…"
        return [line_at(one.position, one.text, one.at_s) for one in raised], words

    def _key(self, signature: Signature, hit: Hit, run: RunState | None) -> Key:
        return self.state.key(signature, run, gpu=hit.captures.get("bus") or hit.captures.get("gpu"))

    def _fire(self, item: CompiledSignature, hit: Hit, run: RunState | None, *, count: int = 1) -> list[Change]:
        signature, at_s = item.signature, hit.at_s if hit.at_s is not None else self.state.at()
        context = self.roots.context(run, at_s)
        w: Mapping[str, float] = {}
        verdict = applicability(signature, item.applies, context)
        if verdict is None and (item.when or signature.windows or signature.needs):
            judged = self.windowed.judged_now(item, run, at_s if at_s is not None else 0.0, context)
            verdict, w = (None if judged.verdict.answer is Answer.YES else judged.verdict), judged.w
        if run is not None:
            self.state.verdicts[run.id, signature.id] = verdict or Verdict(Answer.YES, "it was said")
        if verdict is not None:
            return []
        if run is not None:
            for name, value in signature.concludes.items():
                run.learn(FactEvidence(name=name, value=value, source=hit.position.source, line=hit.position.line))

        last_lines, raised = self._exception(item, hit, run)

        def state() -> Statement:
            lines: list[LineEvidence] = [line_of(hit), *last_lines]
            if run is not None and item.uses_log and item.when:
                lines += self._batch_lines(run, 3)

            def summary(count: int, ranks: tuple[str, ...]) -> str:
                of_ranks = {"rank": hit.rank, "ranks": ", ".join(ranks) or "the server", "count": count, "raised": raised, "said": _message(hit.text)}
                return self.roots.words(signature, context, {**hit.captures, **of_ranks}, w)

            return Statement(
                summary=summary,
                lines=tuple(lines),
                ranks=(hit.rank,),
                other=self.roots.fact_evidence(item, run),
                gpu_uuid=None,
                gpus=_gpu_of(hit),
                count=count,
            )

        if count and _RAISED in signature.summary:
            _put(self._raising, _block(hit), [*self._raising.get(_block(hit), ()), _Deferred(item, hit, run, 0.0)])
        key = self._key(signature, hit, run)
        changes = self.state.findings.judge(key, signature, Answer.YES, at_s, state, hold_s=0.0)
        return changes + (self.state.fold() if changes else [])

    def not_that(self, hit: Hit) -> None:
        """A pattern that makes the record another matter: drop what waits on the same record or traceback."""
        _put(self._unless, _block(hit), {*self._unless.get(_block(hit), ()), hit.pattern})
        self._deferred = [d for d in self._deferred if not (_block(d.hit) == _block(hit) and hit.pattern in d.item.signature.unless)]

    def flush_deferred(self, now_s: float, run: RunState | None = None) -> list[Change]:
        """Fire what has waited long enough for a line that would make it another matter."""
        changes: list[Change] = []
        while due := [d for d in self._deferred if d.due_s <= now_s and (run is None or d.run is run)]:
            waiting = self._waiting()
            free = [d for d in due if self.state.gives_way(d.item.signature, d.run) or not _waits(d, waiting)]
            if not free and len(due) < len(self._deferred):
                break  # for one whose time has not come
            taken = {id(d) for d in free or due}
            self._deferred = [d for d in self._deferred if id(d) not in taken]
            for d in free or due:  # those that wait for each other come in their order
                if not self.state.gives_way(d.item.signature, d.run):
                    changes += self._fire(d.item, d.hit, d.run)
        return changes

    def _waiting(self) -> dict[tuple[int, str], CompiledSignature]:
        return {(id(d.run), d.item.signature.id): d.item for d in self._deferred}

    @staticmethod
    def _batch_lines(run: RunState, n: int) -> list[LineEvidence]:
        return [line_at(b.position, b.text, b.at_s) for b in list(run.load.recent_batches)[-n:]]


def _waits(one: _Deferred, waiting: Mapping[tuple[int, str], CompiledSignature]) -> bool:
    """Whether a line of the same run waits too to which `one` would give way, and not the other way round."""
    own = one.item.signature
    return any(
        run == id(one.run) and _yields(own, other.signature) and not _yields(other.signature, own)
        for (run, _), other in waiting.items()
    )


def _yields(one: Signature, other: Signature) -> bool:
    return other.topic in one.yields_to or other.id in one.yields_to


def _put(table: dict[tuple[str, int], _Kept], block: tuple[str, int], value: _Kept) -> None:
    """Keep something of the newest records."""
    table[block] = value
    if len(table) > _MOST_BLOCKS:
        table.pop(next(iter(table)))


def _block(hit: Hit) -> tuple[str, int]:
    """The record that a line belongs to: its header's, if it is a part of a traceback."""
    position = hit.header or hit.position
    return position.source, position.line


def _message(text: str) -> str:
    """A record without its `[time ranks] `, as far as a summary has room."""
    message = _HEAD.sub("", text, count=1).strip().rstrip(".")
    return message if len(message) <= _MOST_WORDS else message[: _MOST_WORDS - 1] + "…"


def _gpu_of(hit: Hit) -> tuple[int, ...]:
    text = hit.captures.get("gpu", "")
    return (int(text),) if text.isdigit() else ()
