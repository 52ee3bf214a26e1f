"""Opens what a plan names: each log as a feed of blocks, and the GPUs as a feed of samples."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..model.observation import Observation
from ..sources.follow import TailSource
from ..sources.position import TailPosition
from ..sources.telemetry_replay import TelemetryReplay
from .plan import Plan, ServerPlan
from .watch import ResumeAt

Put = Callable[[Observation], Awaitable[None]]


class LogSource(Protocol):
    """What every byte source offers."""

    def events(self) -> AsyncIterator[Any]: ...
    def status(self) -> Any: ...


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

    is_up: bool

    async def run(self, put: Put) -> None: ...


def log_feeds(server: ServerPlan, known: Mapping[str, ResumeAt]) -> list[Feed]:
    """The feeds of a server's logs, each taken up where its current run began."""
    feeds = []
    for one in server.logs:
        resume = known.get(one.name, ResumeAt(None))
        position = resume.position if isinstance(resume.position, TailPosition) else None
        source = TailSource(one.name, one.where, resume=position)
        feeds.append(Feed(one.name, server.name, "file", source, resume))
    return feeds


def gpu_feed(plan: Plan) -> GpuFeed | None:
    """The feed that `--telemetry` names, or None."""
    if plan.telemetry.startswith("replay:"):
        return _ReplayFeed(Path(plan.telemetry.removeprefix("replay:")))
    return None


class _ReplayFeed:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.is_up = True

    async def run(self, put: Put) -> None:
        await TelemetryReplay(self._path, put).run()
