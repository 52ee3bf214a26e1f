"""What a server's configuration may change in how the engine judges it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..model.flags import FlagAnswer, FlagQuestion, Launch
from ..model.words import Severity
from .load import LoadSettings

# Pure: what the flags of a run are judged by in, its table out.
FlagJudge = Callable[[FlagQuestion], FlagAnswer]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Per server. Times in seconds."""

    load: LoadSettings = field(default_factory=LoadSettings)
    gpus: tuple[int, ...] = ()  # configured GPUs; empty: placement finds them
    expected_power_limit_w: float | None = None
    severities: Mapping[str, Severity] = field(default_factory=dict)  # by signature id
    daemon_started_s: float | None = None  # runs that ended before are recorded, never notified
    watched_since_s: float | None = None  # with the wall clock: when the server's logs were first opened; None: all that is read is judged
    idle_after_s: float = 60.0  # no batch line for this long while the watermark moves
    prelude_s: float = 120.0  # lines before the dump belong to it for this long
    keep_runs: int = 20
    flag_judge: FlagJudge | None = None  # None: flags are not judged
    awaits_launch: bool = False  # a source will tell each run's launch command, or that there is none: flags wait for it
    launch: Launch | None = None  # of the newest run, where the user gave it; used at the end of what was read
