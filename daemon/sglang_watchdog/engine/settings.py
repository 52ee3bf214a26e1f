"""What a server's configuration may change in how the engine judges it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..model.finding import Release
from ..model.observation import Json
from ..model.words import Severity
from .load import LoadSettings


class FlagRecord(Protocol):
    """What is to be said about one flag of a run; triage makes it."""

    @property
    def topic(self) -> str: ...
    @property
    def signature(self) -> str: ...
    @property
    def field(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def explanation(self) -> str: ...
    @property
    def remediation(self) -> str: ...
    @property
    def references(self) -> tuple[str, ...]: ...


# Pure: arguments (secrets masked), release, facts by dotted name.
FlagJudge = Callable[[Mapping[str, Json], Release, Mapping[str, Json]], Sequence[FlagRecord]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Per server. Times in seconds."""

    load: LoadSettings = field(default_factory=LoadSettings)
    gpus: tuple[int, ...] = ()  # configured GPUs; empty: placement finds them
    expected_power_limit_w: float | None = None
    severities: Mapping[str, Severity] = field(default_factory=dict)  # by signature id
    daemon_started_s: float | None = None  # runs that ended before are recorded, never notified
    idle_after_s: float = 60.0  # no batch line for this long while the watermark moves
    prelude_s: float = 120.0  # lines before the dump belong to it for this long
    keep_runs: int = 20
    flag_judge: FlagJudge | None = None         # None: flags are not judged
