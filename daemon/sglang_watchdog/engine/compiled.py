"""The library as the engine uses it: signatures by what wakes them, conditions compiled once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..model.series import GPU_SERIES, LOG_SERIES
from ..model.signature import Condition, Library, Milestone, Pattern, Signature
from ..model.words import Kind, ScopeKind
from .conditions import CompiledCondition, wanted_keys

_WORDINGS_SHOWN = 2


@dataclass(frozen=True, slots=True)
class CompiledSignature:
    """A signature with its conditions compiled and its needs worked out."""

    signature: Signature
    applies: tuple[CompiledCondition, ...]
    when: tuple[CompiledCondition, ...]
    resolve_when: tuple[CompiledCondition, ...]
    uses_gpus: bool
    uses_log: bool
    is_windowed: bool
    gpu_series: tuple[str, ...] = ()  # readings of GPUs that its windows look at
    awaited: str = ""  # an absence: the wordings that would end it, as a person would search for them

    @property
    def fact_paths(self) -> tuple[str, ...]:
        """Arguments, model and run facts that the verdict rests on, in the order of the conditions."""
        paths = [path for condition in (*self.applies, *self.when) for path in condition.paths]
        named = [*self.signature.evidence_facts, *paths]
        return tuple(dict.fromkeys(path for path in named if path.split(".", 1)[0] in ("args", "model", "run", "gpu")))


@dataclass(frozen=True, slots=True)
class Roles:
    """What one pattern means to whom."""

    match: tuple[CompiledSignature, ...] = ()
    unless: tuple[CompiledSignature, ...] = ()
    resolve: tuple[CompiledSignature, ...] = ()
    milestones: tuple[Milestone, ...] = ()
    watched: bool = False  # awaited, witness or opportunity: the first one of each rank is kept


@dataclass(frozen=True, slots=True)
class CompiledLibrary:
    """Everything indexed."""

    library: Library
    signatures: Mapping[str, CompiledSignature]
    roles: Mapping[str, Roles]
    absences: tuple[CompiledSignature, ...]
    windowed: tuple[CompiledSignature, ...]
    wanted: Mapping[str, frozenset[str]] = field(default_factory=dict)


def compile_library(library: Library) -> CompiledLibrary:
    """Index a library. Raises ValueError naming the signature if a condition does not parse."""
    compiled = {s.id: _compile(s, library) for s in library.signatures.values() if s.kind is not Kind.FLAG}
    roles: dict[str, dict[str, list[CompiledSignature]]] = {}
    watched: set[str] = set()
    milestones: dict[str, list[Milestone]] = {}
    for item in compiled.values():
        s = item.signature
        for role, patterns in (("match", s.match), ("unless", s.unless), ("resolve", s.resolve)):
            for pattern in patterns:
                roles.setdefault(pattern, {}).setdefault(role, []).append(item)
        watched |= set(s.await_)
        if s.absence is not None:
            watched |= {*s.absence.opportunity, *s.absence.witness}
    for milestone in library.milestones:
        for pattern in milestone.patterns:
            milestones.setdefault(pattern, []).append(milestone)
    every = set(roles) | watched | set(milestones)
    expressions = [c.expression for item in compiled.values() for c in (*item.applies, *item.when, *item.resolve_when)]
    templates = [path for s in library.signatures.values() for path in _template_paths(s.summary)]
    return CompiledLibrary(
        library=library,
        signatures=compiled,
        roles={
            pattern: Roles(
                **{role: tuple(found) for role, found in roles.get(pattern, {}).items()},
                milestones=tuple(milestones.get(pattern, ())),
                watched=pattern in watched,
            )
            for pattern in every
        },
        absences=tuple(item for item in compiled.values() if item.signature.absence is not None),
        windowed=tuple(_specific_first([item for item in compiled.values() if item.is_windowed])),
        wanted=wanted_keys([*expressions, *templates]),
    )


def _compile(signature: Signature, library: Library) -> CompiledSignature:
    def conditions(found: tuple[Condition, ...]) -> tuple[CompiledCondition, ...]:
        out = []
        for condition in found:
            try:
                out.append(CompiledCondition(condition))
            except ValueError as error:
                raise ValueError(f"{signature.id}: {condition.expression}: {error}") from error
        return tuple(out)

    applies, when = conditions(signature.applies_when), conditions(signature.when)
    names = {window.series for window in signature.windows}
    readings = tuple(sorted(name for name in names if name in GPU_SERIES or name.startswith(("extra.", "throttle."))))
    uses_gpus = bool(readings)
    reads_load = any(path.startswith("load.") for condition in (*when, *applies) for path in condition.paths)
    uses_log = reads_load or any(name in LOG_SERIES for name in names) or "steady" in signature.needs
    # With a match and no window over it, the line itself asks the question; otherwise every second does.
    asked_by_line = bool(signature.match) and not any(name == "match" or name.startswith("match.") for name in names)
    in_kind = signature.kind in (Kind.RATE, Kind.TELEMETRY, Kind.CORRELATION) and signature.absence is None
    windowed = in_kind and not asked_by_line
    awaited = _wordings([library.patterns[name] for name in signature.await_ if name in library.patterns])
    return CompiledSignature(signature, applies, when, conditions(signature.resolve_when), uses_gpus, uses_log, windowed, readings, awaited)


def _specific_first(items: Sequence[CompiledSignature]) -> list[CompiledSignature]:
    """Those that others yield to before these, so that the order of the files does not let two begin in the same second."""
    named: dict[str, list[CompiledSignature]] = {}
    for item in items:
        for name in (item.signature.id, item.signature.topic):
            named.setdefault(name, []).append(item)
    ordered: dict[str, CompiledSignature] = {}
    begun: set[str] = set()

    def place(item: CompiledSignature) -> None:
        if item.signature.id in begun:
            return
        begun.add(item.signature.id)
        for name in item.signature.yields_to:
            for other in named.get(name, ()):
                place(other)
        ordered[item.signature.id] = item

    for item in items:
        place(item)
    return list(ordered.values())


def _wordings(patterns: Sequence[Pattern]) -> str:
    """`Running FlashInfer autotune` or one of 2 other wordings."""
    texts = list(dict.fromkeys(text for pattern in patterns if (text := _wording(pattern))))
    if not texts:
        return ""
    more = len(texts) - _WORDINGS_SHOWN
    shown = " or ".join(f"`{text}`" for text in texts[:_WORDINGS_SHOWN])
    return f"{shown} or one of {more} more wordings" if more > 1 else f"{shown} or one more wording" if more == 1 else shown


def _wording(pattern: Pattern) -> str:
    if pattern.starts:
        return pattern.starts[0].strip()
    return " … ".join(part.strip() for part in pattern.contains) or pattern.example or (pattern.regex or "")


def _template_paths(template: str) -> list[str]:
    out = []
    for part in template.split("{")[1:]:
        name = part.split("}", 1)[0].split(":", 1)[0]
        if "." in name:
            out.append(name)
    return out


def is_hardware(signature: Signature) -> bool:
    """Hardware findings carry no run."""
    return signature.scope is ScopeKind.GPU


def spans_runs(signature: Signature) -> bool:
    """Whether it is about the row of a server's starts, not about one of them: such findings carry no run either."""
    return any("run.starts_30m" in condition.expression for condition in signature.when)


__all__ = ["CompiledLibrary", "CompiledSignature", "Roles", "compile_library", "is_hardware", "spans_runs"]
