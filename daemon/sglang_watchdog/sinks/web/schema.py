"""The shapes of the API as OpenAPI describes them. Answers are not built from these classes (encode.py writes them); a
test holds every answer against them.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from ...model.words import Answer, Kind, Phase, ScopeKind, Severity, State, Status


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


Time = Annotated[str, Field(json_schema_extra={"format": "date-time"}, examples=["2026-02-19T08:10:03Z"])]


class ProblemDetails(Shape):
    """RFC 9457."""

    type: str = Field(examples=["urn:sglang-watchdog:problem:not-found"])
    title: str
    status: int
    detail: str
    instance: str
    do: str | None = Field(None, description="What to do about it.")
    errors: list[dict[str, str]] | None = None


class Pointer(Shape):
    source: str
    line: int
    offset: int
    text: str


class LineEvidence(Shape):
    kind: Literal["line"]
    source: str
    line: int = Field(description="Counts newlines from 1.")
    offset: int = Field(description="Byte offset of the line in the unpacked source.")
    text: str = Field(description="Secrets and user text are cut.")
    at: Time | None


class AbsenceEvidence(Shape):
    kind: Literal["absence"]
    awaited: str
    from_: Time | None = Field(alias="from")
    until: Time | None
    witness: Pointer | None
    opportunity: Pointer | None


class SamplesEvidence(Shape):
    kind: Literal["samples"]
    metric: str
    gpus: list[int]
    from_: Time = Field(alias="from")
    until: Time
    median: float | None
    n: int


class FactEvidence(Shape):
    kind: Literal["fact"]
    name: str
    value: JsonValue
    source: str
    line: int | None


Evidence = Annotated[LineEvidence | AbsenceEvidence | SamplesEvidence | FactEvidence, Field(discriminator="kind")]


class Scope(Shape):
    kind: ScopeKind
    ranks: list[str]
    gpus: list[int]
    gpu_uuid: str | None


class Acknowledgement(Shape):
    by: str
    note: str
    at: Time
    until: Time | None


class Silenced(Shape):
    id: str
    until: Time


class Finding(Shape):
    """What a signature concluded about one scope of one run, with its evidence."""

    id: str
    signature: str
    revision: int
    topic: str
    severity: Severity
    state: State
    server: str
    run: str | None
    scope: Scope
    title: str
    summary: str
    first_seen: Time | None
    last_seen: Time | None
    resolved_at: Time | None
    count: int
    reopened: int
    evidence: list[Evidence]
    explains: list[str]
    explained_by: str | None
    explanation: str
    remediation: str
    references: list[str]
    acknowledgement: Acknowledgement | None
    silenced: Silenced | None
    display_state: Literal["pending", "firing", "resolved", "expired", "acknowledged", "silenced"]


class Release(Shape):
    min: str | None
    max: str | None
    source: str = Field(description="stated, probed, inferred or unknown")


class PlacedGpu(Shape):
    gpu: int
    rank: str


class Placement(Shape):
    gpus: list[PlacedGpu]
    source: str


class Bounds(Shape):
    """Least and most; null where the inputs give no bound."""

    low: float | None
    high: float | None


class RooflineInput(Shape):
    name: str
    low: float | None
    high: float | None
    unit: str
    source: str = Field(description="A log and its line, a probe, config.json, NVML or a table of the library")
    assumed: bool = Field(description="Not read of this server: a default, or a bound")


class OwnBest(Shape):
    """The best that this run reached under a like load."""

    running: list[int] = Field(description="Requests, first and last of the bucket")
    context: list[int] = Field(description="Tokens in context for each request, first and last of the bucket")
    tokens_per_s: float | None
    windows: int


class Roofline(Shape):
    """What the memory allows decode under the load of the newest steady window, and what was reached of it."""

    at: Time | None
    running: float | None
    tokens_per_s: float | None
    ceiling_tokens_per_s: Bounds
    share: Bounds = Field(description="tokens_per_s over the ceiling, 0 to 1")
    step_bytes: Bounds = Field(description="Read by one GPU in one step")
    precision: float | None = Field(description="What the formula leaves out, as a share beside the range")
    inputs: list[RooflineInput]
    missing: list[str]
    do: list[str] = Field(description="How what is missing can be had")
    assumptions: list[str]
    own_best: list[OwnBest]
    text: str


class Run(Shape):
    """One life of a server."""

    id: str
    server: str
    started_at: Time | None
    ended_at: Time | None
    phase: Phase
    sglang_version: Release
    model: str
    args: dict[str, JsonValue]
    facts: dict[str, JsonValue]
    timings_s: dict[str, float | None]
    load: dict[str, float | None]
    ranks: dict[str, Phase]
    placement: Placement
    sources: list[str]
    roofline: Roofline | None


class Fact(Shape):
    name: str
    value: JsonValue
    source: str
    line: int | None


class Launch(Shape):
    arguments: list[str] = Field(description="Values of secret options are masked.")
    source: str = Field(description="process command line or --command")


class RunFlag(Shape):
    flag: str
    field: str
    was_asked: bool = Field(description="False: the command line is not known, the dump shows that somebody set it.")
    asked: JsonValue
    runs_with: JsonValue = Field(description="As the args dump shows it; null where the dump does not hold the field.")
    verdict: str = Field(description="acts, redundant, no-op, dead, condition-unmet, overridden, deprecated, conflict or unknown")
    because: str
    do: str
    source: str = Field(description="release, file::function")


class Decision(Shape):
    """What the server decides without saying it in its dump."""

    name: str
    about: str
    argument: str
    in_dump: JsonValue
    value: JsonValue
    how: Literal["seen", "derived", "unknown"] = Field(description="seen: a line says it. derived: by the rule of that release.")
    because: str
    source: str
    seen_by: str
    evidence: list[Evidence]


class Suggestion(Shape):
    flag: str
    because: str
    do: str
    source: str


class RunFlags(Shape):
    """The launch flags of one run."""

    run: str
    launch: Launch | None
    releases: list[str]
    because: str = Field(description="Why nothing was judged, or what the judgement lacks.")
    flags: list[RunFlag]
    decisions: list[Decision]
    suggestions: list[Suggestion]
    flags_described: int = Field(description="Flags of this release that the library describes.")
    flags_declared_only: int = Field(description="Flags of this release known by their declaration only.")


class Difference(Shape):
    name: str
    a: JsonValue
    b: JsonValue
    ratio: float | None = Field(description="b over a, where both are numbers and a is not 0")


class ComparedFinding(Shape):
    id: str
    signature: str
    topic: str
    severity: Severity
    title: str


class Comparison(Shape):
    """What is different between two runs; what is equal is left out."""

    a: str
    b: str
    sglang_version: list[Difference]
    args: list[Difference]
    facts: list[Difference]
    timings_s: list[Difference]
    load: list[Difference]
    findings_only_a: list[ComparedFinding]
    findings_only_b: list[ComparedFinding]


class Sample(Shape):
    model_config = ConfigDict(extra="allow")
    at: Time
    gpu: int
    power_w: float | None
    power_limit_w: float | None
    sm_util: float | None = Field(description="0 to 100")
    temp_c: float | None
    mem_used_mib: float | None
    throttle_reasons: list[str] | None


class GpuPlacement(Shape):
    server: str
    rank: str


class Gpu(Shape):
    gpu: int
    uuid: str | None
    name: str | None
    power_ratio: float | None
    placements: list[GpuPlacement]
    latest: Sample


class Condition(Shape):
    when: str
    because: str


class Signature(Shape):
    id: str
    revision: int
    status: Status
    kind: Kind
    topic: str
    severity: Severity
    releases: str
    scope: ScopeKind
    title: str
    explanation: str
    remediation: str
    references: list[str]
    applies_when: list[Condition]
    explains: list[str]
    blind_spots: str
    tags: list[str]


class Coverage(Shape):
    server: str
    signature: str
    topic: str
    run: str | None
    verdict: Answer
    because: str
    do: str


class Gap(Shape):
    from_: Time | None = Field(alias="from")
    until: Time | None
    reason: str
    from_offset: int | None
    to_offset: int | None


class Source(Shape):
    name: str
    format: str
    lines: int
    bytes: int
    gaps: list[Gap]
    sglang_lines: int
    timezone: str
    kind: str
    server: str
    state: Literal["reading", "waiting", "failed", "ended"]
    why: str
    do: str
    path: str
    offset: int | None
    size_bytes: int | None
    lag_bytes: int | None
    rotations: int
    gap_count: int
    from_start: bool | None
    last_line_at: Time | None
    watermark: Time | None


class Silence(Shape):
    id: str
    state: Literal["pending", "active", "expired"]
    matchers: dict[str, str]
    by: str
    reason: str
    starts_at: Time
    ends_at: Time


class Counts(Shape):
    critical: int
    warning: int
    info: int


class ServerStatus(Shape):
    name: str
    phase: Phase
    run: str | None
    model: str
    sglang_version: Release
    firing: Counts


class LedgerStatus(Shape):
    durable: bool
    because: str
    do: str
    bytes: int
    backlog: int
    oldest_change: int
    newest_change: int


class ReloadStatus(Shape):
    successful: bool
    at: Time | None
    error: str
    changed: list[str]
    needs_restart: list[str]


class ChannelStatus(Shape):
    channel: str
    sent: int
    failed: int
    waiting: int
    dead_letters: int
    error: str
    sent_at: Time | None


class DaemonStatus(Shape):
    version: str
    library: str
    started_at: Time
    now: Time
    clock: str
    ready: bool
    awaited: str
    servers: list[ServerStatus]
    ledger: LedgerStatus
    reload: ReloadStatus
    notifications: list[ChannelStatus]
    tokens_fault: str
    engine_errors: int
    nvml_up: bool


class Resource(Shape):
    path: str
    methods: list[Literal["GET", "POST", "DELETE"]]
    summary: str


class Index(Shape):
    resources: list[Resource]
    description: str
    documentation: str


class Health(Shape):
    status: Literal["ok", "waiting"]
    because: str


class FindingPage(Shape):
    findings: list[Finding]
    next_cursor: str | None


class RunPage(Shape):
    runs: list[Run]
    next_cursor: str | None


class FactPage(Shape):
    facts: list[Fact]
    next_cursor: str | None


class GpuPage(Shape):
    gpus: list[Gpu]
    next_cursor: str | None


class SamplePage(Shape):
    samples: list[Sample]
    next_cursor: str | None


class SignaturePage(Shape):
    signatures: list[Signature]
    next_cursor: str | None


class CoveragePage(Shape):
    coverage: list[Coverage]
    next_cursor: str | None


class SourcePage(Shape):
    sources: list[Source]
    next_cursor: str | None


class SilencePage(Shape):
    silences: list[Silence]
    next_cursor: str | None


PROBLEM: dict[str, Any] = {"content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}}


def answers(model: type[BaseModel] | None, *problems: int, status: int = 200) -> dict[str, Any]:
    """What an operation answers, for its route's decorator: the success with its shape (None: no body), and the problems that are its
    own; those that every operation knows are added by openapi.py. Answers are written as text already, so FastAPI makes no model."""
    success = {status: {"model": model}} if model is not None else {}
    return {"status_code": status, "response_model": None, "responses": {**success, **dict.fromkeys(problems, PROBLEM)}}
