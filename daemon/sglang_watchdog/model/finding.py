"""What the engine concludes: verdicts, findings with their evidence, runs, and the changes it reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from .observation import Json
from .words import Answer, Phase, ScopeKind, Severity, State

if TYPE_CHECKING:
    from .flags import FlagTable


@dataclass(frozen=True, slots=True, kw_only=True)
class LineEvidence:
    source: str
    line: int
    offset: int
    text: str
    at_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsenceEvidence:
    """Nothing of `awaited` was said between two moments although `witness` shows that such lines reach us."""

    awaited: str
    from_s: float | None
    until_s: float | None
    witness: LineEvidence | None = None
    opportunity: LineEvidence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplesEvidence:
    metric: str
    gpus: tuple[int, ...]
    from_s: float
    until_s: float
    median: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FactEvidence:
    name: str  # "args.moe_runner_backend"
    value: Json
    source: str  # where the fact is from: a log's name, "/server_info", "config.json" …
    line: int | None = None


Evidence: TypeAlias = LineEvidence | AbsenceEvidence | SamplesEvidence | FactEvidence


@dataclass(frozen=True, slots=True)
class Verdict:
    """yes, no, unknown or not-applicable, always with its reason; `do` says how an unknown is cured."""

    answer: Answer
    because: str
    do: str = ""
    reason: str = ""  # machine word of an unknown: read_since, log_level, witness, releases …


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a signature concluded about one scope of one run. Times Unix seconds; None where the log has no stamps."""

    id: str  # fingerprint: server, run (or GPU), signature
    signature: str
    revision: int
    topic: str
    severity: Severity
    state: State
    server: str
    run: str | None
    scope: ScopeKind
    ranks: tuple[str, ...]
    gpus: tuple[int, ...]
    gpu_uuid: str | None
    title: str
    summary: str
    first_seen_s: float | None
    last_seen_s: float | None
    count: int
    evidence: tuple[Evidence, ...]
    explains: tuple[str, ...]  # ids of the findings folded under this one
    explained_by: str | None
    explanation: str
    remediation: str
    references: tuple[str, ...]
    resolved_s: float | None = None
    reopened: int = 0
    stale_since_s: float | None = None
    acknowledged_by: str | None = None
    acknowledged_note: str = ""
    silenced_until_s: float | None = None
    historic: bool = False  # its run ended before this daemon first started: recorded, never notified


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The SGLang release of a run as a range. `source`: stated (the log says it), probed, inferred (from the dump's
    fields and wordings) or unknown (then min and max are None)."""

    min: str | None = None
    max: str | None = None
    source: str = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineInput:
    """One number that a ceiling rests on, as a range in `unit`, with where it is from."""

    name: str
    low: float
    high: float
    unit: str
    source: str  # a log's name and line, "/server_info", "config.json", "NVML", "signatures/models.yaml" …
    is_assumed: bool = False  # not read of this server: a default, or a bound


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnBest:
    """The best that this run reached with so many requests and so long contexts."""

    running_from: int
    running_to: int
    context_from: int  # tokens for each request
    context_to: int
    tokens_per_s: float  # 90th percentile of the medians of its windows
    windows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """What the memory allows decode under the load of the newest steady window, and what was reached of it.

    A bound that the inputs do not give is None; then `missing` says what is not known and `do` how to cure it.
    """

    at_s: float
    running: float
    tokens_per_s: float
    ceiling_low: float | None = None  # tokens/s
    ceiling_high: float | None = None
    share_low: float | None = None  # tokens_per_s over ceiling_high
    share_high: float | None = None
    step_bytes_low: float | None = None  # read by one GPU in one step
    step_bytes_high: float | None = None
    precision: float | None = None  # what the formula leaves out, as a share of the ceiling beside its range
    inputs: tuple[RooflineInput, ...] = ()
    missing: tuple[str, ...] = ()
    do: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    own_best: tuple[OwnBest, ...] = ()
    text: str = ""  # one sentence with all of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One life of a server."""

    id: str
    server: str
    started_at_s: float | None
    ended_at_s: float | None
    phase: Phase
    release: Release
    args: Mapping[str, Json]
    facts: Mapping[str, FactEvidence]
    timings_s: Mapping[str, float]
    load: Mapping[str, float]
    ranks: Mapping[str, Phase] = field(default_factory=dict)
    gpus: Mapping[int, str] = field(default_factory=dict)  # placement: GPU index to rank ("" = unknown rank)
    placement_source: str = "unknown"
    model: str = ""
    sources: tuple[str, ...] = ()
    flags: "FlagTable | None" = None  # None: not judged yet
    roofline: Roofline | None = None  # None: never under steady load


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    signature: str
    topic: str
    run: str | None
    verdict: Answer
    because: str
    do: str = ""
    reason: str = ""  # machine word of an unknown: read_since, witness, releases …


@dataclass(frozen=True, slots=True)
class FindingChanged:
    at_s: float | None
    finding: Finding
    was: State | None  # None: it is new


@dataclass(frozen=True, slots=True)
class RunChanged:
    at_s: float | None
    run: Run
    was: Phase | None  # None: it is new


Change: TypeAlias = FindingChanged | RunChanged
