"""What the daemon is to do, as plain values: made from the configuration and the command line, passed down, never changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..engine.settings import EngineSettings
from ..library.load import Override
from ..parse.zone import Zone
from ..sinks.ledger_retention import Retention
from ..sinks.notify.build import Settings as ChannelSettings
from ..sinks.web.limits import Limits
from ..sinks.web.serving import Tls


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlan:
    """One log of a server. `where` is a path, a glob, journal:UNIT, docker:NAME, cri:GLOB, kmsg: or - (standard input)."""

    name: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """One server with its logs."""

    name: str
    logs: tuple[LogPlan, ...]
    zone: Zone | None = None  # None: the machine's
    url: str | None = None  # for /server_info
    pid: int | None = None  # launcher, where discovery found one
    probe: bool = True
    metrics: bool = True
    model_files: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    engine: EngineSettings = field(default_factory=EngineSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignaturePlan:
    """Which signatures, and what the operator changed in them."""

    folders: tuple[Path, ...] = ()
    disable: tuple[str, ...] = ()
    override: Mapping[str, Override] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything."""

    servers: tuple[ServerPlan, ...]
    telemetry: str = "none"  # nvml, none, replay:FILE
    sample_s: float = 1.0
    process_s: float = 10.0
    gpm: bool = True
    host: str = "127.0.0.1"
    port: int = 17853
    port_may_move: bool = False  # make run: the next free port, printed
    external_url: str = ""
    root_path: str = ""
    allowed_hosts: tuple[str, ...] = ()
    reads_need_token: bool = False
    metrics_open: bool = False  # /metrics without a token where reading needs one
    limits: Limits = field(default_factory=Limits)
    token_file: Path | None = None  # read again by itself when it changes
    tls: Tls | None = None
    log_level: str = "info"
    clock: str = "wall"
    wake: str = "inotify"  # or poll
    state_dir: Path | None = None  # None: in memory
    retention: Retention = field(default_factory=Retention)
    signatures: SignaturePlan = field(default_factory=SignaturePlan)
    record: Path | None = None
    notify: tuple[ChannelSettings, ...] = ()
    verdict_metrics: tuple[str, ...] = ()

    @property
    def listen(self) -> str:
        """HOST:PORT, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
