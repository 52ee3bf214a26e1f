"""The shape of a signature file. One model for all kinds, so that a misplaced key gets one clear sentence;
which kind needs which block is a lint rule of its own (SIG011)."""

# ruff: noqa: RUF012  (pydantic copies defaults; none is shared)
import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from ..config.shapes import Shape
from ..model.words import Kind, Phase, ScopeKind, Severity, Status
from .flag_schema import FlagBody

Scalar = bool | int | float | str
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)]
FactName = Annotated[str, StringConstraints(pattern=r"^(args|model|gpu|run|load)\.[a-z][a-zA-Z0-9_]*$")]
Level = Literal["debug", "info", "warning", "error", "critical", "raise", "print", "progress"]
Gate = Literal["ready", "steady", "load", "idle", "telemetry", "alive"]


def one_or_more(value: Any) -> Any:
    """A list of one may be written without its list."""
    return value if isinstance(value, list) or value is None else [value]


def as_group(value: Any) -> Any:
    """One pattern, or a list of them, may stand where `any_of` is expected."""
    if isinstance(value, list):
        return {"any_of": value}
    return {"any_of": [value]} if isinstance(value, dict) and "any_of" not in value else value


def as_condition(value: Any) -> Any:
    """A bare expression is a condition without a reason of its own."""
    return {"when": value} if isinstance(value, str) else value


Texts = Annotated[list[str], BeforeValidator(one_or_more)]


class PatternBody(Shape):
    """What one record's message holds; all that is given must be true."""

    starts: Texts = []
    contains: Texts = []
    regex: str | None = None
    anywhere: str = Field(default="", description="Why it is safe without an anchor at the message's start")
    ignore_case: bool = False
    level: Level | None = None
    releases: str = ""
    undated: bool = False
    example: str = ""

    @model_validator(mode="after")
    def _says_something(self) -> "PatternBody":
        if not (self.starts or self.contains or self.regex):
            raise ValueError("a pattern needs `starts`, `contains` or `regex`")
        return self


class GroupBody(Shape):
    any_of: list[PatternBody] = Field(min_length=1)


Group = Annotated[GroupBody, BeforeValidator(as_group)]


class ConditionBody(Shape):
    when: str
    because: str = ""


Conditions = Annotated[list[Annotated[ConditionBody, BeforeValidator(as_condition)]], BeforeValidator(one_or_more)]


class AbsenceBody(Shape):
    """When a silence may be taken as an answer, beyond what always holds."""

    read_since: Literal["run_start"] = "run_start"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    until: str = "ready"
    grace: str = "10s"
    opportunity: Group | None = None
    witness: Group | None = None
    per_rank: bool = False


class EvidenceBody(Shape):
    series: Texts = []
    facts: Texts = []


class OriginBody(Shape):
    """Where an example is from; exactly one of the three."""

    captured: str | None = None
    source: str | None = None
    synthetic: str | None = None

    @model_validator(mode="after")
    def _is_one(self) -> "OriginBody":
        if sum(value is not None for value in (self.captured, self.source, self.synthetic)) != 1:
            raise ValueError("`from` needs exactly one of `captured`, `source`, `synthetic`")
        return self


def as_outcome(value: Any) -> Any:
    """`then: firing` or `then: {unknown: read_since}`."""
    return (
        {"verdict": value}
        if isinstance(value, str)
        else ({"verdict": "unknown", "reason": value["unknown"]} if isinstance(value, dict) and set(value) == {"unknown"} else value)
    )


class OutcomeBody(Shape):
    verdict: Literal["firing", "nothing", "unknown", "not-applicable"]
    reason: str = ""


class ExampleBody(Shape):
    """A story and what this signature makes of it."""

    name: str = ""
    from_: OriginBody | None = Field(default=None, alias="from")
    given: dict[FactName, Any] = {}
    replay: str | None = Field(default=None, description="The story itself, or the name of a file in replays/")
    line: str | None = Field(default=None, description="Short form: one line of the log")
    then: Annotated[OutcomeBody, BeforeValidator(as_outcome)]
    captures: dict[str, str] = {}
    because: str = ""
    release: str | None = None  # the SGLang release of the story, where the story does not say it

    @field_validator("captures", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return {key: str(inner) for key, inner in value.items()} if isinstance(value, dict) else value


class SignatureBody(Shape):
    """One rule in the library."""

    id: Slug
    revision: int = Field(ge=1)
    status: Status
    kind: Kind
    topic: str
    severity: Severity | None = Field(default=None, description="Default: the topic's")
    releases: str = Field(default="", description="PEP 440 specifier of the releases whose sources were read")
    title: str = Field(min_length=1, max_length=160)
    summary: str = ""
    explanation: str = Field(min_length=1)
    remediation: str = ""
    references: Texts = []
    applies_when: Conditions = []
    during: Annotated[list[Phase], BeforeValidator(one_or_more)] = []
    not_during: Annotated[list[Phase], BeforeValidator(one_or_more)] = []
    scope: ScopeKind = ScopeKind.RUN
    match: Group | None = None
    unless: Group | None = None
    await_: Group | None = Field(default=None, alias="await")
    absence_valid_only_if: AbsenceBody | None = None
    concludes: dict[FactName, Scalar] = {}
    threshold: float | None = Field(default=None, description="What the word `threshold` stands for in conditions and let")
    let: dict[Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")], str] = {}
    when: Conditions = []
    needs: Annotated[list[Gate], BeforeValidator(one_or_more)] = []
    each: Literal["gpu", ""] = ""
    hold: str = "0s"
    clear_after: str | None = None
    resolve: Group | None = None
    resolve_when: Conditions = []
    explains: Texts = []
    all_gpus: bool = Field(default=False, description="With `scope: gpu`: a fault of the hardware, watched on GPUs of no server too")
    yields_to: Texts = Field(default=[], description="Topics or ids; while one of their findings stands in the run, this one is not raised")
    evidence: EvidenceBody = EvidenceBody()
    blind_spots: str = ""
    tags: Texts = []
    flag: FlagBody | None = None
    examples: list[ExampleBody] = []


class FactSource(Shape):
    """What a line teaches: a capture of it, or that the line was there at all (`value`), which never replaces what is known."""

    capture: str = ""
    type: Literal["int", "float", "text"] = "text"
    value: bool | str | None = None

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "FactSource":
        if (self.value is None) == (not self.capture):
            raise ValueError("give either `capture` or `value`")
        return self

    def compiled(self) -> str:
        """As `model.signature.Milestone` holds it: `capture:type`, or the value as JSON and `:const`."""
        return f"{self.capture}:{self.type}" if self.capture else f"{json.dumps(self.value)}:const"


def as_fact_source(value: Any) -> Any:
    """A bare capture name teaches text."""
    return {"capture": value} if isinstance(value, str) else value


class MilestoneBody(Shape):
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    match: Group
    facts: dict[FactName, Annotated[FactSource, BeforeValidator(as_fact_source)]] = {}
    about: str = ""


class MilestonesFile(Shape):
    milestones: list[MilestoneBody]


class TopicsFile(Shape):
    version: int = 1
    topics: dict[Annotated[str, StringConstraints(pattern=r"^[a-z-]+\.[a-z0-9-]+$")], str]

    @field_validator("topics")
    @classmethod
    def _have_severity(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not text.startswith(tuple(f"[{severity}] " for severity in Severity)):
                raise ValueError(f"the text of `{name}` must begin with [critical], [warning] or [info]")
        return value


class ModelsFile(Shape):
    """Facts that follow from a model's architecture name: is_moe, is_mla, num_experts …"""

    models: dict[str, dict[Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")], Scalar]]
    shapes: dict[str, dict[Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")], Scalar]] = Field(
        default={}, description="Facts of the config.json of published models, by a regular expression over the model's name"
    )
    parameter_bytes: dict[str, tuple[float, float]] = Field(
        default={}, description="Bytes that one weight takes in device memory, scales included, by quantisation: least and most"
    )


class GpuBody(Shape):
    """A product as NVML names it. `match` holds texts, any of which stands in that name; the longest wins."""

    name: str
    match: Texts
    architecture_sm: int
    memory_gib: float | None = None
    bandwidth_gbps: float | None = Field(default=None, description="Device memory, GB/s")
    bandwidth_low_gbps: float | None = Field(default=None, description="Where several products bear the name: the slowest")
    power_limit_w: float | None = Field(default=None, description="Default board power limit")
    pcie_gen: int | None = None
    pcie_width: int | None = None
    nvlink_gbps: float | None = Field(default=None, description="Both directions; 0: none")
    shared_memory_kib: int | None = Field(default=None, description="Per block, opt-in maximum")
    about: str = ""


class GpusFile(Shape):
    gpus: list[GpuBody]


class IgnoredBody(Shape):
    """A message of SGLang that no signature needs, and why."""

    message: str = Field(description="Id in the message table, or the text of its template")
    because: str = Field(min_length=3)


class IgnoredFile(Shape):
    ignored: list[IgnoredBody]


class RetiredBody(Shape):
    id: Slug
    because: str = Field(min_length=3)
    successor: str = ""


class RetiredFile(Shape):
    retired: list[RetiredBody]


class LibraryFile(Shape):
    version: Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+$")]
    releases: list[str] = Field(min_length=1, description="Releases whose sources were read, oldest first")


def json_schema() -> dict[str, Any]:
    """JSON Schema of a signature file, for editors."""
    return SignatureBody.model_json_schema(by_alias=True)
