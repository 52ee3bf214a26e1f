"""The life of a finding: states as a table, evidence kept within bounds, causes folded over their symptoms."""

import hashlib
from collections.abc import Callable, Container, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Final

from ..model.finding import Change, Evidence, Finding, FindingChanged, LineEvidence
from ..model.signature import Library, Pattern, Signature
from ..model.words import Answer, ScopeKind, Severity, State
from .compiled import spans_runs

MAX_LINES: Final = 12  # quoted lines of one finding: the first ones, then the newest
STALE_AFTER_S: Final = 900.0  # firing, and nobody could judge it for this long: expired
REOPEN_WITHIN_S: Final = 300.0
NEAR_S: Final = 120.0  # between a lesser fault of a GPU and the graver thing that it explains
DEFAULT_CLEAR_S: Final = 15.0  # of the opposite, before a windowed finding counts as cleared

# What a verdict does to a finding in a state. `after hold` and `after clear` are the signature's hysteresis.
NEXT_STATE: Final[Mapping[tuple[State | None, Answer], tuple[State | None, str]]] = {
    (None, Answer.YES): (State.PENDING, ""),
    (State.PENDING, Answer.YES): (State.FIRING, "after hold"),
    (State.PENDING, Answer.NO): (None, ""),
    (State.PENDING, Answer.UNKNOWN): (None, ""),
    (State.PENDING, Answer.NOT_APPLICABLE): (None, ""),
    (State.FIRING, Answer.NO): (State.RESOLVED, "after clear"),
    (State.FIRING, Answer.NOT_APPLICABLE): (State.RESOLVED, "after clear"),
    (State.FIRING, Answer.UNKNOWN): (State.EXPIRED, "after stale"),
    (State.RESOLVED, Answer.YES): (State.FIRING, "after hold"),
    (State.EXPIRED, Answer.YES): (State.FIRING, "after hold"),
}


@dataclass(frozen=True, slots=True)
class Key:
    """Fingerprint of a finding: server, run (None for hardware), signature, GPU (hardware only)."""

    server: str
    run: str | None
    signature: str
    gpu: str | None = None

    @property
    def id(self) -> str:
        text = "|".join((self.server, self.run or "", self.signature, self.gpu or ""))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(slots=True, kw_only=True)
class Statement:
    """What a finding says when it is made or said again."""

    summary: str | Callable[[int, tuple[str, ...]], str]  # a function of count and ranks where it names them
    lines: tuple[LineEvidence, ...] = ()
    other: tuple[Evidence, ...] = ()
    ranks: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()
    gpu_uuid: str | None = None
    count: int = 1


@dataclass(slots=True)
class _Record:
    key: Key
    signature: Signature
    severity: Severity
    state: State
    since_s: float | None  # when the state began, for hold and clear
    finding: Finding
    opposite_since_s: float | None = None  # first "no" (or unknown) in a row
    lines: list[LineEvidence] = field(default_factory=list)
    newest: list[LineEvidence] = field(default_factory=list)
    withdrawn: tuple[Pattern | None, ...] | None = None  # it fired when its signature went; what that searched for then


class Findings:
    """All findings of one server, by fingerprint."""

    def __init__(self, overrides: Mapping[str, Severity] | None = None) -> None:
        self._records: dict[Key, _Record] = {}
        self._overrides = overrides or {}
        self.historic_before_s: float | None = None
        self._unreported: set[Key] = set()

    def __iter__(self) -> Iterable[Finding]:
        return (record.finding for record in self._records.values() if record.state is not State.PENDING)

    def all(self) -> list[Finding]:
        """Pending ones left out, in order of first sight."""
        found = [record.finding for record in self._records.values() if record.state is not State.PENDING]
        return sorted(found, key=lambda f: (f.first_seen_s if f.first_seen_s is not None else float("-inf"), f.signature, f.id))

    def updates(self) -> list[Change]:
        """Findings that were seen again since the last report: no change of state, but new counts and evidence."""
        records = [self._records[key] for key in self._unreported if key in self._records]
        self._unreported.clear()
        told = [record for record in records if record.state is not State.PENDING]
        return [FindingChanged(r.finding.last_seen_s, r.finding, r.state) for r in sorted(told, key=lambda r: r.key.id)]

    def stands(self, run: str | None, names: tuple[str, ...], *, own: Key | None = None, counts_pending: bool = False) -> bool:
        """Whether a finding of one of these topics or signatures fires in the run, or as hardware: with `own`, of the same GPU.

        `counts_pending`: one that waits out its hold counts too, so that what yields does not speak first and take it back.
        """
        states = (State.FIRING, State.PENDING) if counts_pending else (State.FIRING,)
        return any(
            r.state in states
            and r.key.run in (run, None)
            and r.key != own
            and (r.signature.topic in names or r.signature.id in names)
            and not _is_another_gpu(r.key, own)
            for r in self._records.values()
        )

    def state_of(self, key: Key) -> State | None:
        record = self._records.get(key)
        return record.state if record else None

    def judge(
        self,
        key: Key,
        signature: Signature,
        answer: Answer,
        at_s: float | None,
        state: Callable[[], Statement],
        *,
        hold_s: float | None = None,
    ) -> list[Change]:
        """Apply one verdict. `state` is asked for the words and evidence only if they are needed."""
        record = self._records.get(key)
        now = at_s if at_s is not None else 0.0
        if answer is Answer.YES:
            return self._yes(record, key, signature, at_s, now, state, signature.hold_s if hold_s is None else hold_s)
        if record is None:
            return []
        return self._not_yes(record, answer, now, at_s)

    def _yes(
        self,
        record: _Record | None,
        key: Key,
        signature: Signature,
        at_s: float | None,
        now: float,
        state: Callable[[], Statement],
        hold_s: float,
    ) -> list[Change]:
        if record is None:
            record = _Record(
                key,
                signature,
                self._overrides.get(signature.id, signature.severity),
                State.PENDING,
                now,
                self._new(key, signature, at_s),
            )
            self._records[key] = record
        record.opposite_since_s = None
        was = record.state
        if was in (State.RESOLVED, State.EXPIRED):
            reopened = record.finding.reopened + 1
            record.state, record.since_s = State.PENDING, now
            record.finding = replace(record.finding, reopened=reopened, resolved_s=None)
        if record.state is State.PENDING and now - (record.since_s if record.since_s is not None else now) >= hold_s:
            record.state, record.since_s = State.FIRING, now
        self._say(record, state(), at_s, again=was is State.FIRING)
        record.finding = replace(record.finding, state=record.state, stale_since_s=None)
        if record.state is was and was is not None:
            self._unreported.add(key)
            return []
        if record.state is State.PENDING:
            return []
        return [FindingChanged(at_s, record.finding, None if was is State.PENDING else was)]

    def _not_yes(self, record: _Record, answer: Answer, now: float, at_s: float | None) -> list[Change]:
        step = NEXT_STATE.get((record.state, answer))
        if step is None:
            return []
        to, when = step
        if to is None:
            del self._records[record.key]
            return []
        since = record.opposite_since_s
        if since is None:
            record.opposite_since_s = since = now
            if answer is Answer.UNKNOWN:
                record.finding = replace(record.finding, stale_since_s=now)
        wait = STALE_AFTER_S if when == "after stale" else self._clear_s(record.signature)
        return self._move(record, to, at_s) if now - since >= wait else []

    @staticmethod
    def _clear_s(signature: Signature) -> float:
        return DEFAULT_CLEAR_S if signature.clear_after_s is None else signature.clear_after_s

    def resolve(self, key: Key, at_s: float | None) -> list[Change]:
        """Something was said that shows it cleared."""
        record = self._records.get(key)
        return self._move(record, State.RESOLVED, at_s) if record and record.state is State.FIRING else []

    def withdraw(self, old: Library, new: Library, at_s: float | None) -> list[Change]:
        """The signatures of these findings are gone: nobody will see them clear."""
        changes: list[Change] = []
        for record in list(self._records.values()):
            if record.signature.id not in new.signatures and record.state is State.FIRING:
                changes += self._move(record, State.EXPIRED, at_s)
                record.withdrawn = _searched(record.signature, old)
        return changes

    def bring_back(self, library: Library, judged_anyway: Container[str], over: Container[str], at_s: float | None) -> list[Change]:
        """Signatures that were gone are there again, and say what they said: what they concluded from a run that goes on still holds.

        `judged_anyway`: signatures that look at windows and so find again by themselves. `over`: runs that have ended.
        """
        changes: list[Change] = []
        for record in list(self._records.values()):
            signature = library.signatures.get(record.signature.id)
            if record.withdrawn is None or signature is None:
                continue
            is_same = _judges_alike(record.signature, signature) and record.withdrawn == _searched(signature, library)
            record.withdrawn = None
            if record.state is not State.EXPIRED or not is_same or signature.id in judged_anyway or record.key.run in over:
                continue
            record.signature, record.severity = signature, self._overrides.get(signature.id, signature.severity)
            record.opposite_since_s = None
            record.finding = replace(record.finding, severity=record.severity, reopened=record.finding.reopened + 1)
            changes += self._move(record, State.FIRING, at_s)
        return changes

    def close_run(self, run: str, at_s: float | None) -> list[Change]:
        """The run is over: what fires in it has nobody left to see it clear."""
        changes: list[Change] = []
        for record in list(self._records.values()):
            if record.key.run == run and record.state is State.FIRING:
                changes += self._move(record, State.EXPIRED, at_s)
            elif record.key.run == run and record.state is State.PENDING:
                del self._records[record.key]
        return changes

    def forget(self, keep_runs: frozenset[str]) -> None:
        """Drop findings of runs that the engine no longer holds; the ledger keeps them."""
        for key in [key for key in self._records if key.run is not None and key.run not in keep_runs]:
            del self._records[key]

    def restore(self, finding: Finding, signature: Signature, key: Key) -> None:
        """Take up a finding known from the ledger, so that it is not opened twice."""
        self._records[key] = _Record(key, signature, finding.severity, finding.state, finding.first_seen_s, finding)

    def overlay(self, finding_id: str, **changes: object) -> list[Change]:
        """Acknowledgement or silence: changes who hears, never what is evaluated."""
        for record in self._records.values():
            if record.finding.id == finding_id:
                record.finding = replace(record.finding, **changes)  # type: ignore[arg-type]
                return [FindingChanged(record.finding.last_seen_s, record.finding, record.state)]
        return []

    def _move(self, record: _Record, to: State, at_s: float | None) -> list[Change]:
        was, record.state = record.state, to
        record.since_s = at_s
        cleared = at_s if to is State.RESOLVED else None
        record.finding = replace(record.finding, state=to, resolved_s=cleared)
        return [FindingChanged(at_s, record.finding, was), *self.fold(record.key.server, record.key.run)]

    def _new(self, key: Key, signature: Signature, at_s: float | None) -> Finding:
        return Finding(
            id=key.id,
            signature=signature.id,
            revision=signature.revision,
            topic=signature.topic,
            severity=self._overrides.get(signature.id, signature.severity),
            state=State.PENDING,
            server=key.server,
            run=key.run,
            scope=signature.scope,
            ranks=(),
            gpus=(),
            gpu_uuid=key.gpu if signature.scope is ScopeKind.GPU else None,
            title=signature.title,
            summary="",
            first_seen_s=at_s,
            last_seen_s=at_s,
            count=0,
            evidence=(),
            explains=(),
            explained_by=None,
            explanation=signature.explanation,
            remediation=signature.remediation,
            references=signature.references,
        )

    @staticmethod
    def _say(record: _Record, statement: Statement, at_s: float | None, *, again: bool) -> None:
        for line in statement.lines:
            if line in record.lines or line in record.newest:
                continue
            if len(record.lines) < MAX_LINES - 2:
                record.lines.append(line)
            else:
                record.newest = [*record.newest[-1:], line]
        old = record.finding
        kept = old.evidence if again and not statement.other else statement.other
        others = tuple(e for e in kept if not isinstance(e, LineEvidence))
        ranks = tuple(sorted({*old.ranks, *(rank for rank in statement.ranks if rank)}, key=_rank_order))
        count = old.count + statement.count
        summary = statement.summary if isinstance(statement.summary, str) else statement.summary(count, ranks)
        record.finding = replace(
            old,
            summary=summary or old.summary,
            last_seen_s=at_s if at_s is not None else old.last_seen_s,
            count=count,
            ranks=ranks,
            gpus=tuple(sorted({*old.gpus, *statement.gpus})),
            gpu_uuid=statement.gpu_uuid or old.gpu_uuid,
            evidence=(*record.lines, *record.newest, *others),
        )

    # --- folding -----------------------------------------------------------------------------------------------------

    def fold(self, server: str, run: str | None, gpus: Set[int] = frozenset()) -> list[Change]:
        """Recompute which finding explains which; a symptom points at its innermost cause. Only changed ones are reported.

        `gpus` are the indices of the server's GPUs, empty where they are not known: what befalls another GPU explains nothing of a run.
        """
        standing = [r for r in self._records.values() if r.state in (State.FIRING, State.EXPIRED) and r.key.server == server]
        all_runs = run is None or any(spans_runs(r.signature) for r in standing)
        alive = [r for r in standing if all_runs or r.key.run in (run, None)]
        parent: dict[Key, _Record] = {}
        for symptom in alive:
            causes = [
                c
                for c in alive
                if c is not symptom
                and c.signature.kind.value != "flag"
                and _explains(c, symptom)
                and not (symptom.key.run is not None and gpus and c.finding.gpus and gpus.isdisjoint(c.finding.gpus))
                and (c.key.run == symptom.key.run or c.key.run is None)
                and not (spans_runs(c.signature) and symptom.key.run == run)  # the newest failure stands for itself
            ]
            if causes:
                parent[symptom.key] = min(causes, key=lambda c: (-c.severity.rank, not _is_earlier(c, symptom), c.signature.id))
        for key in list(parent):  # two that name each other: the one seen first is the cause
            other = parent.get(key)
            if other is not None and parent.get(other.key) is self._records[key]:
                later = max((self._records[key], other), key=lambda r: (r.finding.first_seen_s or 0.0, r.signature.id))
                parent.pop((other if later is self._records[key] else self._records[key]).key)
        changes: list[Change] = []
        for record in alive:
            cause = parent.get(record.key)
            explains = tuple(sorted(self._records[k].finding.id for k, c in parent.items() if c is record))
            by = cause.finding.id if cause else None
            if record.finding.explained_by != by or record.finding.explains != explains:
                record.finding = replace(record.finding, explained_by=by, explains=explains)
                changes.append(FindingChanged(record.finding.last_seen_s, record.finding, record.state))
        return changes


def _searched(signature: Signature, library: Library) -> tuple[Pattern | None, ...]:
    return tuple(library.patterns.get(name) for name in (*signature.match, *signature.unless, *signature.await_))


def _judges_alike(one: Signature, other: Signature) -> bool:
    """Whether a mend between two reloads left alone what a conclusion rests on."""
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("revision", "kind", "scope", "releases", "match", "unless", "await_", "absence", "applies_when", "when", "windows")
    )


def _is_another_gpu(one: Key, other: Key | None) -> bool:
    """Of two hardware findings. The kernel's bus address and the sampler's UUID cannot be compared: taken as the same."""
    if other is None or one.gpu is None or other.gpu is None:
        return False
    return one.gpu != other.gpu and (":" in one.gpu) == (":" in other.gpu)


def _explains(cause: _Record, symptom: _Record) -> bool:
    names = cause.signature.explains
    if cause.key.gpu is not None and cause.severity.rank < symptom.severity.rank and not _is_near(cause.finding, symptom.finding):
        return False
    return symptom.signature.topic in names or symptom.signature.id in names


def _is_near(cause: Finding, symptom: Finding) -> bool:
    """A lesser finding of a GPU, such as a program's fault, outlives the run in which it was seen: it explains what came with it only."""
    if symptom.first_seen_s is None or cause.first_seen_s is None or cause.last_seen_s is None:
        return True
    return cause.first_seen_s - NEAR_S <= symptom.first_seen_s <= cause.last_seen_s + NEAR_S


def _is_earlier(cause: _Record, symptom: _Record) -> bool:
    return (cause.finding.first_seen_s or 0.0) <= (symptom.finding.first_seen_s or 0.0)


def _rank_order(rank: str) -> tuple[tuple[str, int], ...]:
    """TP2 before TP10."""
    parts = []
    for word in rank.split():
        name = word.rstrip("0123456789")
        digits = word[len(name) :]
        parts.append((name, int(digits) if digits else -1))
    return tuple(parts)
