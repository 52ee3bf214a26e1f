"""The compiled signature: what the engine and the scanner need of a library file, whichever kind it is.

The library floor reads YAML into these; nothing here knows YAML.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .words import Kind, Phase, ScopeKind, Severity, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """What to look for in one record's message (the text behind SGLang's prefix; the whole line where there is none).

    All that is given must hold: the message begins with one of `starts`, holds all of `contains`, and `regex` is found in it.
    Anchoring at the start of the message is what keeps text from users (request ids, paths, names) from matching.
    `regex` stays in the common subset of Python re, RE2 and Hyperscan (no look-around, no back-references).
    """

    id: str  # "<signature>#<n>", "<signature>#<role>.<n>" or "milestone:<name>#<n>", unique in the library
    starts: tuple[str, ...] = ()
    contains: tuple[str, ...] = ()
    regex: str | None = None
    anywhere: str = ""  # why a pattern without `starts` or a leading ^ is safe; lint demands it
    ignore_case: bool = False
    level: str | None = None  # logging level of the message: debug, info, warning, error, raise, print
    releases: str = ""  # PEP 440 specifier of the releases that print it; "" = the signature's
    undated: bool = False  # may match a line without SGLang's prefix (traceback, NCCL, kernel, argparse)
    example: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A CEL expression with its own reason; the engine compiles it once."""

    expression: str
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A declared window value: `median(power_ratio, 15s)`, read in conditions as `w.<name>`."""

    name: str
    function: str  # one of model.series.FUNCTIONS
    series: str  # one of model.series.SERIES, "match", or "match.<capture>"
    over_s: float | None = None  # None with `steady`: the STEADY window (15 to 60 s)
    steady: bool = False
    argument: float | None = None  # the bound of share_above / share_below


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """The preconditions of an `expected` or `missing` signature beyond those that always hold."""

    read_since: str = "run_start"
    log_level: str = "info"
    until: str = "ready"  # milestone after which the line is overdue
    grace_s: float = 10.0
    opportunity: tuple[str, ...] = ()  # pattern ids, any of them; empty: `until` is opportunity enough
    witness: tuple[str, ...] = ()  # pattern ids, any of them
    per_rank: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One rule in the library. Fields that a kind does not use are empty."""

    id: str
    revision: int
    status: Status
    kind: Kind
    topic: str
    severity: Severity
    releases: str  # PEP 440 specifier of the releases whose sources were read; "" = any
    title: str
    explanation: str
    remediation: str
    references: tuple[str, ...] = ()
    summary: str = ""  # template: {capture}, {w.name}, {args.name}, {rank}, {count}
    scope: ScopeKind = ScopeKind.RUN
    applies_when: tuple[Condition, ...] = ()
    during: frozenset[Phase] = frozenset()  # empty: any phase
    not_during: frozenset[Phase] = frozenset()
    match: tuple[str, ...] = ()  # pattern ids, any of them
    unless: tuple[str, ...] = ()  # patterns that, in the same record or traceback, make it another matter
    await_: tuple[str, ...] = ()  # pattern ids, the whole family
    absence: Absence | None = None
    concludes: Mapping[str, bool | int | float | str] = field(default_factory=dict)  # facts set on yes
    windows: tuple[Window, ...] = ()
    when: tuple[Condition, ...] = ()  # all must be true (rate, telemetry, correlation; optional on forbidden)
    needs: tuple[str, ...] = ()  # gates, all of them: ready, steady, load, idle, telemetry
    each: str = ""  # "gpu": windows and conditions are evaluated for each GPU of the server
    hold_s: float = 0.0
    clear_after_s: float | None = None
    resolve: tuple[str, ...] = ()  # pattern ids that show it cleared
    resolve_when: tuple[Condition, ...] = ()
    explains: tuple[str, ...] = ()  # topics or signature ids folded under this one while both hold
    all_gpus: bool = False  # hardware: watched on GPUs of no server too, and while placement is not known
    yields_to: tuple[str, ...] = ()  # topics or ids: while one of their findings stands in the run, this is not raised
    evidence_series: tuple[str, ...] = ()  # series quoted as samples evidence
    evidence_facts: tuple[str, ...] = ()  # facts quoted as evidence
    blind_spots: str = ""
    tags: tuple[str, ...] = ()
    flag: Mapping[str, Any] | None = None  # kind flag: what triage knows of one launch flag; the engine skips these


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestone:
    """A line that moves the run or rank forward, or teaches facts. Read from signatures/milestones.yaml."""

    name: str  # load-begin, capture-end, ready, sigterm, prelude …; closed list in engine/runs.py for phases
    patterns: tuple[str, ...]
    facts: Mapping[str, str] = field(default_factory=dict)  # fact name -> "capture:type", type int, float or text; or "JSON:const"


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """All that was loaded, checked and compiled."""

    version: str
    signatures: Mapping[str, Signature]
    patterns: Mapping[str, Pattern]
    milestones: tuple[Milestone, ...] = ()
    topics: Mapping[str, Severity] = field(default_factory=dict)  # default severity of each topic
    releases: tuple[str, ...] = ()  # the releases whose sources were read, oldest first
    release_fields: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # dump field -> first, last release
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # architecture -> model.* facts (is_moe, is_mla …)
    shapes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # regex over a model's name -> model.* facts of its config
    parameter_bytes: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # quantisation -> bytes of one weight
    gpus: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # product -> match (texts), architecture_sm, …
