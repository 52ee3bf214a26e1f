"""Drives a tail in the event loop: step while there is something to read, then sleep until a hint or the next look."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

from .block import Block
from .hints import REMOTE_FILE_SYSTEMS, Hints, Subscription, file_system_of
from .logfile import Limits
from .position import TailPosition
from .status import SourceStatus
from .tail import Tail, TailEvent

_POLL_S = 0.25  # mtail 250 ms, Alloy 250, filelog 200
_TRUSTING_POLL_S = 1.0  # while inotify tells of every change
_MISSED_HINTS = 3  # growth found by a poll, so often in a row: the hints are not to be trusted here


class TailSource:
    """A byte source over one log file path."""

    format = "auto"

    def __init__(
        self,
        name: str,
        path: str | Callable[[], str],
        *,
        resume: TailPosition | None = None,
        hints: Hints | None = None,
        limits: Limits | None = None,
        with_history: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Follow `path` from `resume` on; `hints` is shared by all tails of the process, None polls."""
        self.name = name
        self.tail = Tail(name, path, resume=resume, limits=limits, with_history=with_history)
        self._hints = hints
        self._clock = clock
        self._missed = 0
        self._is_remote = False
        self._looked_at = ""
        self._is_hinted = False

    async def events(self) -> AsyncGenerator[TailEvent, None]:
        """Yield blocks, gaps and watermarks for ever; the next read waits until the consumer comes back for more."""
        subscription = self._hints.subscribe() if self._hints is not None else Subscription(None)
        try:
            was_woken = True
            while True:
                subscription.wake.clear()
                events = await self._step()
                if not was_woken and any(isinstance(event, Block) for event in events):
                    self._missed += 1
                elif was_woken:
                    self._missed = 0
                for event in events:
                    yield event
                if self.tail.idle:
                    self._look_around(subscription)
                    self._is_hinted = subscription.is_complete and not self._is_remote and self._missed < _MISSED_HINTS
                    was_woken = await _woken(subscription.wake, _TRUSTING_POLL_S if self._is_hinted else _POLL_S)
                else:
                    was_woken = True
                    await asyncio.sleep(0)
        finally:
            subscription.close()
            self.tail.close()

    def _look_around(self, subscription: Subscription) -> None:
        watched = self.tail.watched()
        subscription.set_paths(watched)
        if watched and watched[-1] != self._looked_at:
            self._looked_at = watched[-1]
            self._is_remote = file_system_of(self._looked_at) in REMOTE_FILE_SYSTEMS

    async def _step(self) -> list[TailEvent]:
        if self._is_remote:
            # A file server that does not answer blocks read().
            return await asyncio.to_thread(self.tail.step, self._clock())
        return self.tail.step(self._clock())

    @property
    def position(self) -> TailPosition:
        """Where to resume, behind everything read. What was dealt with is told by `after` of the blocks and moves."""
        return self.tail.position

    def status(self) -> SourceStatus:
        """See SourceStatus."""
        return replace(self.tail.status(), wake="inotify" if self._is_hinted else "poll")


async def _woken(wake: asyncio.Event, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            await wake.wait()
    except TimeoutError:
        return False
    return True
