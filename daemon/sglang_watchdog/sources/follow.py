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
from .turns import Turns

_POLL_S = 0.25  # mtail 250 ms, Alloy 250, filelog 200
_TRUSTING_POLL_S = 1.0  # while inotify tells of every change
_SLOW_S = 5.0  # a read that takes longer is said
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
        self._turns = Turns()
        self._stepping_since_s: float | None = None  # a step runs in a thread: the tail is its own
        self._shown: SourceStatus | None = None

    async def events(self) -> AsyncGenerator[TailEvent, None]:
        """Yield blocks, gaps and watermarks for ever; the next read waits until the consumer comes back for more."""
        subscription = self._hints.subscribe() if self._hints is not None else Subscription(None)
        try:
            was_woken = True
            while True:
                self._turns.turn()
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
            if self._stepping_since_s is None:
                self.tail.close()

    def _look_around(self, subscription: Subscription) -> None:
        if self._is_remote:
            return  # polled; and where the file server hangs, even asking for a path would
        watched = self.tail.watched()
        subscription.set_paths(watched)
        if watched and watched[-1] != self._looked_at:
            self._looked_at = watched[-1]
            self._is_remote = file_system_of(self._looked_at) in REMOTE_FILE_SYSTEMS

    async def _step(self) -> list[TailEvent]:
        if not self._is_remote and not self.tail.unpacks():
            return self.tail.step(self._clock())
        # A file server that does not answer blocks read(), and a large packed file takes seconds: never in the event loop.
        self._shown, self._stepping_since_s = self.tail.status(), time.monotonic()
        step = asyncio.create_task(asyncio.to_thread(self.tail.step, self._clock()))
        while not (await asyncio.wait({step}, timeout=1.0))[0]:
            self._turns.turn()
        self._stepping_since_s = None
        return step.result()

    @property
    def position(self) -> TailPosition:
        """Where to resume, behind everything read. What was dealt with is told by `after` of the blocks and moves."""
        return self.tail.position

    def status(self) -> SourceStatus:
        """See SourceStatus."""
        return replace(self._status(), wake="inotify" if self._is_hinted else "poll")

    def _status(self) -> SourceStatus:
        if self._stepping_since_s is None or self._shown is None:
            return self.tail.status()
        took_s = time.monotonic() - self._stepping_since_s
        if took_s < _SLOW_S or not self._is_remote:
            return self._shown
        why = f"{self._shown.path}: reading takes longer than {took_s:.0f} s: the file server does not answer"
        return replace(self._shown, readable=False, why_not=why, do="look at the mount; reading goes on where it stopped")

    @property
    def turned_s(self) -> float:
        """When the loop last turned, monotonic clock."""
        return self._turns.at_s


async def _woken(wake: asyncio.Event, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            await wake.wait()
    except TimeoutError:
        return False
    return True
