"""Opens what a plan names: each log as a feed of blocks, and the GPUs as a feed of samples."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from ..model.observation import COMMAND_LINE, Observation, Probe
from ..sources.globs import GlobSource
from ..sources.hints import Hints
from ..sources.model_files import ModelFiles
from ..sources.nvml_sampler import NvmlSampler
from ..sources.nvml_status import advice
from ..sources.places import ByteSource, open_place
from ..sources.process import Launcher, ProcessSource, ProcessTable
from ..sources.server_metrics import ServerMetrics
from ..sources.status import NOT_STARTED
from ..sources.telemetry_replay import TelemetryReplay
from .plan import Plan, ServerPlan
from .watch import ResumeAt

Put = Callable[[Observation], Awaitable[None]]


@dataclass(slots=True)
class Feed:
    """One log of one server."""

    name: str
    server: str
    kind: str
    source: ByteSource
    resume: ResumeAt

    def events(self) -> AsyncIterator[Any]:
        return self.source.events()


def untold(source: str, why: str) -> Probe:
    """The processes cannot be read: nobody is to wait for a launch command."""
    return Probe(at_s=time.time(), source=source, origin=COMMAND_LINE, facts={}, error=why)


class GpuFeed(Protocol):
    """Samples of all GPUs of the node."""

    kind: str

    @property
    def is_up(self) -> bool: ...
    @property
    def why(self) -> str: ...
    @property
    def do(self) -> str: ...
    @property
    def turned_s(self) -> float: ...
    async def run(self, put: Put) -> None: ...


def log_feeds(server: ServerPlan, known: Mapping[str, ResumeAt], hints: Hints | None) -> list[Feed]:
    """The feeds of a server's logs, each taken up where its current run began. Raises BadPlace."""
    positions = {name: at.position for name, at in known.items() if at.position is not None}
    feeds = []
    for one in server.logs:
        source = open_place(one.name, one.where, known=positions, hints=hints)
        resume = known.get(one.name, ResumeAt(None))
        feeds.append(Feed(one.name, server.name, _kind(source), source, resume))
    return feeds


def _kind(source: ByteSource) -> str:
    return "files" if isinstance(source, GlobSource) else source.status().kind


def process_feed(server: ServerPlan, *, is_only: bool) -> ProcessSource:
    """The processes of a server: its launcher by pid or port, any launcher where the server is the only one."""
    port = urlsplit(server.url).port if server.url else None
    pid = server.pid

    def selects(launcher: Launcher) -> bool:
        if port is not None:
            return launcher.port == port
        return launcher.pid == pid if pid is not None else is_only

    name = f"{server.name}/processes"
    return ProcessSource(name, ProcessTable(source=name, selects=selects), asks=lambda: server.probe)


def metrics_feed(server: ServerPlan, processes: ProcessSource) -> ServerMetrics:
    """The server's own metrics: at its configured address if that is on this machine, else where its launcher listens."""

    def address() -> tuple[str, int] | None:
        if server.url is not None:
            parts = urlsplit(server.url)
            host = {"localhost": "127.0.0.1", None: ""}.get(parts.hostname, parts.hostname or "")
            return (host, parts.port) if parts.port is not None and (host == "::1" or host.startswith("127.")) else None
        port = processes.open_port
        return ("127.0.0.1", port) if port is not None else None

    return ServerMetrics(f"{server.name}/metrics", address)


def model_feed(server: ServerPlan, path: Callable[[], str | None]) -> ModelFiles:
    """The shape of the model that the server's current run names."""
    return ModelFiles(f"{server.name}/model", path)


def gpu_feed(plan: Plan) -> GpuFeed | None:
    """The feed that `--telemetry` names, or None."""
    if plan.telemetry.startswith("replay:"):
        return _ReplayFeed(Path(plan.telemetry.removeprefix("replay:")))
    return _NvmlFeed(plan) if plan.telemetry == "nvml" else None


class _NvmlFeed:
    """The sampler of this machine; without a driver it says so once and goes on asking."""

    kind = "nvml"

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._made_s = time.monotonic()
        self.sampler: NvmlSampler | None = None

    @property
    def is_up(self) -> bool:
        return self.sampler is not None and self.sampler.status.is_up

    @property
    def why(self) -> str:
        if self.sampler is None or self.sampler.status.state == "starting":
            return NOT_STARTED
        return self.sampler.status.reason

    @property
    def do(self) -> str:
        return advice(self.sampler.status.state) if self.sampler is not None else ""

    @property
    def turned_s(self) -> float:
        return self.sampler.turned_s if self.sampler is not None else self._made_s

    async def run(self, put: Put) -> None:
        self.sampler = NvmlSampler(put, period_s=self._plan.sample_s, process_s=self._plan.process_s, gpm=self._plan.gpm)
        await self.sampler.run()


class _ReplayFeed:
    kind = "replay"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._made_s = time.monotonic()
        self._replay: TelemetryReplay | None = None

    @property
    def is_up(self) -> bool:
        return self._replay is None or not self._replay.why_not

    @property
    def why(self) -> str:
        return self._replay.why_not if self._replay is not None else NOT_STARTED

    @property
    def do(self) -> str:
        return "it is read again as soon as it is there" if self.why else ""

    @property
    def turned_s(self) -> float:
        return self._replay.turned_s if self._replay is not None else self._made_s

    async def run(self, put: Put) -> None:
        self._replay = TelemetryReplay(self._path, put)
        await self._replay.run()
