"""What the daemon is to do, as plain values: made from the configuration and the command line, passed down, never changed."""

from dataclasses import dataclass, field
from pathlib import Path

from ..engine.settings import EngineSettings
from ..parse.zone import Zone


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlan:
    """One log of a server. `where` is a path, a glob, journal:UNIT, docker:NAME, cri:GLOB, kmsg or - (standard input)."""

    name: str
    where: str
    format: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """One server with its logs."""

    name: str
    logs: tuple[LogPlan, ...]
    zone: Zone | None = None  # None: inferred from arrival
    url: str | None = None  # for /server_info
    pid: int | None = None  # launcher, where discovery found one
    engine: EngineSettings = field(default_factory=EngineSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything."""

    servers: tuple[ServerPlan, ...]
    telemetry: str = "none"  # nvml, none, replay:FILE
    host: str = "127.0.0.1"
    port: int = 17853
    port_may_move: bool = False  # make run: the next free port, printed
    clock: str = "wall"
    state_dir: Path | None = None  # None: in memory
    signatures: tuple[Path, ...] = ()
    record: Path | None = None
    probe_processes: bool = True
