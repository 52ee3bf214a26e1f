"""A sampler with quick limits that runs on a fake driver, and the inbox that collects what it delivers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from fake_nvml import FakeNvml

from sglang_watchdog.model.observation import Gap, GpuEvent, Observation, Sample, Watermark
from sglang_watchdog.sources.nvml_sampler import Limits, NvmlSampler

QUICK = Limits(
    late_s=0.2,
    silent_s=8.0,
    init_silent_s=20.0,
    kill_wait_s=0.3,
    pause_after_stuck_s=0.5,
    retry_s=0.2,
    restart_s=0.05,
    skip_s=30.0,
    hangs_per_hour=3,
)
HANGING = replace(QUICK, silent_s=1.5)


class Inbox:
    """Collects what a source delivers, in order, and checks that it keeps the promise of its watermarks."""

    def __init__(self) -> None:
        self.got: list[Observation] = []
        self._arrived = asyncio.Condition()
        self._watermark_s = float("-inf")

    async def put(self, observation: Observation) -> None:
        if isinstance(observation, Watermark):
            assert observation.at_s > self._watermark_s
            self._watermark_s = observation.at_s
        elif isinstance(observation, Sample | GpuEvent):
            assert observation.at_s > self._watermark_s, observation
        async with self._arrived:
            self.got.append(observation)
            self._arrived.notify_all()

    async def until(self, holds: Callable[[list[Observation]], Any], *, within_s: float = 20.0) -> Any:
        """Wait until `holds` of everything that came is true; return what it said."""
        async with asyncio.timeout(within_s), self._arrived:
            await self._arrived.wait_for(lambda: holds(self.got))
        return holds(self.got)

    def samples(self, gpu: int | None = None) -> list[Sample]:
        return [each for each in self.got if isinstance(each, Sample) and gpu in (None, each.gpu)]

    def events(self) -> list[GpuEvent]:
        return [each for each in self.got if isinstance(each, GpuEvent)]

    def gaps(self) -> list[Gap]:
        return [each for each in self.got if isinstance(each, Gap)]

    async def new_samples(self, count: int = 2, *, gpu: int = 0) -> list[Sample]:
        """Wait for so many further samples of one GPU that hold readings."""
        before = len(self.samples(gpu))
        await self.until(lambda _: len([each for each in self.samples(gpu)[before:] if each.error is None]) >= count)
        return [each for each in self.samples(gpu)[before:] if each.error is None]


@contextlib.asynccontextmanager
async def sampling(
    fake: FakeNvml, *, period_s: float = 0.05, limits: Limits = QUICK, **options: Any
) -> AsyncIterator[tuple[NvmlSampler, Inbox]]:
    """Run a sampler on a fake driver; ends it, and fails if it fell over."""
    inbox = Inbox()
    environment = options.pop("environment", None) or fake.environment()
    sampler = NvmlSampler(inbox.put, period_s=period_s, limits=limits, environment=environment, **options)
    task = asyncio.create_task(sampler.run())
    try:
        yield sampler, inbox
        assert not task.done() or task.exception() is None, task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
