"""What is said about the launch flags of one run: what was asked, what it runs with, what each flag comes to, and how we know.

Triage makes these; the engine hands them on and the sinks show them. Secrets are masked before anything gets here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from .finding import FactEvidence, LineEvidence, Release
from .observation import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The launch command of a run. `words` are the arguments behind the launcher, values of secret options masked."""

    words: tuple[str, ...]
    source: str  # "process command line", "--command"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagQuestion:
    """All that the flags of one run are judged by, as it was when they were due."""

    at_s: float | None
    args: Mapping[str, Json]  # the dump
    release: Release
    facts: Mapping[str, FactEvidence]  # model.*, gpu.*, run.* by dotted name
    lines: tuple[LineEvidence, ...] = ()  # that taught facts, to be quoted
    dump: LineEvidence | None = None
    launch: Launch | None = None
    launch_because: str = ""  # why a command that was found is not this run's


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagRow:
    """One flag. `was_asked` False: the command line is not known, and only the dump shows that somebody set it."""

    flag: str
    field: str
    asked: Json
    runs_with: Json  # None where the dump does not hold the field
    was_asked: bool
    verdict: str  # as `triage` prints it
    because: str
    do: str
    source: str  # release, file::function


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """Something the server decides without saying it in its dump."""

    name: str
    about: str
    argument: str  # the argument that leaves it open; "" where there is none
    in_dump: Json  # what the dump says of it: auto, null
    value: Json  # None: not known
    how: str  # seen (a line says it), derived (from arguments, model and GPU by that release's rule), unknown
    because: str
    source: str
    seen_by: str  # the lines that would prove it
    evidence: tuple[LineEvidence | FactEvidence, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestionRow:
    """A flag that helps under a condition that holds here, and that neither the user nor the server has set."""

    flag: str
    because: str
    do: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagTable:
    """The flags of one run. `because` says why nothing was judged, or what the judgement lacks."""

    launch: Launch | None = None
    releases: tuple[str, ...] = ()  # sampled releases that the run may be
    rows: tuple[FlagRow, ...] = ()
    decisions: tuple[DecisionRow, ...] = ()
    suggestions: tuple[SuggestionRow, ...] = ()
    because: str = ""
    described: int = 0  # flags of the last of these releases that the library describes
    undescribed: int = 0  # flags of it known by declaration only


@dataclass(frozen=True, slots=True)
class FlagRecord:
    """What a finding about one flag needs; the engine adds run, times and positions. Severity is the topic's default."""

    topic: str
    signature: str  # id of the flag's file; "flag-unknown" where it has none
    field: str
    title: str
    summary: str
    explanation: str
    remediation: str
    references: tuple[str, ...]
    asked: Json = None  # what the launch command gave (without it: what the dump gives away)
    was_asked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagAnswer:
    """The table of one run, and what of it makes findings."""

    table: FlagTable
    records: tuple[FlagRecord, ...] = field(default=())
