"""Runs each source under supervision and puts what it yields into the consumer's queue; a source that fails costs nobody else anything."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog

from ..model.observation import Gap, Observation, Watermark
from ..sources.model_files import ModelFiles
from ..sources.process import ProcessSource
from ..sources.server_metrics import ServerMetrics
from .feeds import Feed, GpuFeed, untold
from .plan import ServerPlan
from .pulse import Pulse
from .supervise import supervised

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Item:
    """One event on its way to the consumer. `server` None: for all (GPU samples)."""

    server: str | None
    source: str
    event: Any


class Readers:
    """One coroutine for each kind of source; each ends only when its source does or it is cancelled."""

    def __init__(self, inbox: "asyncio.Queue[Item]", pulse: Pulse) -> None:
        self._inbox = inbox
        self._pulse = pulse

    async def log(self, feed: Feed) -> None:
        """A log, wherever it is."""

        async def once() -> None:
            async for event in feed.events():
                await self._inbox.put(Item(feed.server, feed.name, event))

        await self._keep_up(f"source {feed.name}", once, lambda: feed.source.turned_s, lambda why: self._gap(feed.name, feed.server, why))

    async def asked(self, server: ServerPlan, source: ServerMetrics | ModelFiles) -> None:
        """What a server or its model's folder tells beside the log; an answer that does not come costs nobody anything."""

        said: str | None = None

        async def once() -> None:
            nonlocal said
            async for probe in source.events():
                if probe.error is not None and probe.error != said:
                    _log.info("no answer", part="probe", source=source.name, origin=probe.origin, because=probe.error)
                said = probe.error
                await self._inbox.put(Item(server.name, source.name, probe))

        await supervised(source.name, once, lambda _: None)

    async def processes(self, server: ServerPlan, source: ProcessSource) -> None:
        """A killed server prints nothing: its processes tell."""

        async def once() -> None:
            async for event in source.events():
                if not isinstance(event, Watermark):
                    await self._inbox.put(Item(server.name, source.name, event))

        def on_fault(why: str) -> None:
            with contextlib.suppress(asyncio.QueueFull):
                self._inbox.put_nowait(Item(server.name, source.name, untold(source.name, why)))

        await self._keep_up(source.name, once, lambda: source.turned_s, on_fault)

    async def _keep_up(self, name: str, once: Callable[[], Awaitable[None]], turned_s: Callable[[], float], failed: Callable[[str], None]) -> None:
        """Run a source under supervision, with its pulse."""
        self._pulse.follow(name, turned_s)
        await supervised(name, once, failed, lambda: self._pulse.beat(name))
        self._pulse.end(name)

    async def gpus(self, feed: GpuFeed) -> None:
        """The sampler, or a recording in its place."""

        async def put(observation: Observation) -> None:
            await self._inbox.put(Item(None, "gpus", observation))

        await self._keep_up("gpus", lambda: feed.run(put), lambda: feed.turned_s, lambda why: self._gap("gpus", None, why))

    def _gap(self, source: str, server: str | None, why: str) -> None:
        gap = Gap(source=source, from_s=None, to_s=None, reason=f"failed: {why}")
        with contextlib.suppress(asyncio.QueueFull):
            self._inbox.put_nowait(Item(server, source, gap))
