"""Opens what a plan names: each log as a feed of blocks, and the GPUs as a feed of samples."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..model.observation import Observation
from ..sources.container import docker_log, pod_log_pattern
from ..sources.follow import TailSource
from ..sources.globs import GlobSource, has_pattern
from ..sources.hints import Hints
from ..sources.journal import JournalQuery, JournalSource
from ..sources.kernel import KernelSource
from ..sources.nvml_sampler import NvmlSampler
from ..sources.position import JournalPosition, KernelPosition, TailPosition
from ..sources.stdin import StdinSource
from ..sources.telemetry_replay import TelemetryReplay
from .plan import Plan, ServerPlan
from .watch import ResumeAt

Put = Callable[[Observation], Awaitable[None]]


class LogSource(Protocol):
    """What every byte source offers."""

    def events(self) -> AsyncIterator[Any]: ...


@dataclass(slots=True)
class Feed:
    """One log of one server."""

    name: str
    server: str
    kind: str
    source: LogSource
    resume: ResumeAt

    def events(self) -> AsyncIterator[Any]:
        return self.source.events()


class GpuFeed(Protocol):
    """Samples of all GPUs of the node."""

    @property
    def is_up(self) -> bool: ...
    @property
    def why(self) -> str: ...
    async def run(self, put: Put) -> None: ...


def log_feeds(server: ServerPlan, known: Mapping[str, ResumeAt], hints: Hints) -> list[Feed]:
    """The feeds of a server's logs, each taken up where its current run began."""
    feeds = []
    for one in server.logs:
        resume = known.get(one.name, ResumeAt(None))
        kind, source = _open(one.name, one.where, known, hints)
        feeds.append(Feed(one.name, server.name, kind, source, resume))
    return feeds


def _open(name: str, where: str, known: Mapping[str, ResumeAt], hints: Hints) -> tuple[str, LogSource]:
    """The kind of a place and the source that reads it."""
    scheme, _, rest = where.partition(":")
    position = known[name].position if name in known else None
    tail = position if isinstance(position, TailPosition) else None
    if where == "-":
        return "stdin", StdinSource(name)
    if scheme == "journal":
        return "journal", JournalSource(name, _query(rest), resume=position if isinstance(position, JournalPosition) else None)
    if scheme == "kmsg":
        kernel = position if isinstance(position, KernelPosition | JournalPosition) else None
        return "kernel", KernelSource(name, resume=kernel)
    if scheme == "docker":
        return "docker", TailSource(name, lambda: docker_log(rest), resume=tail, hints=hints)
    if scheme == "cri" or has_pattern(where):
        places = {name: at.position for name, at in known.items() if isinstance(at.position, TailPosition)}
        pattern = where if scheme != "cri" else rest if "*" in rest or rest.startswith("/") else pod_log_pattern(rest)
        return "files", GlobSource(name, pattern, resume=places, hints=hints)
    return "file", TailSource(name, where, resume=tail, hints=hints)


def _query(text: str) -> JournalQuery:
    """journal:UNIT, journal:id=IDENTIFIER."""
    if text.startswith("id="):
        return JournalQuery(identifier=text.removeprefix("id="))
    return JournalQuery(unit=text)


def gpu_feed(plan: Plan) -> GpuFeed | None:
    """The feed that `--telemetry` names, or None."""
    if plan.telemetry.startswith("replay:"):
        return _ReplayFeed(Path(plan.telemetry.removeprefix("replay:")))
    return _NvmlFeed(plan.sample_s) if plan.telemetry == "nvml" else None


class _NvmlFeed:
    """The sampler of this machine; without a driver it says so once and goes on asking."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self.sampler: NvmlSampler | None = None

    @property
    def is_up(self) -> bool:
        return self.sampler is not None and self.sampler.status.is_up

    @property
    def why(self) -> str:
        return self.sampler.status.reason if self.sampler is not None else "not started"

    async def run(self, put: Put) -> None:
        self.sampler = NvmlSampler(put, period_s=self._period_s)
        await self.sampler.run()


class _ReplayFeed:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.is_up = True
        self.why = ""

    async def run(self, put: Put) -> None:
        await TelemetryReplay(self._path, put).run()
