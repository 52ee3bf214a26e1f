"""Keeps sources going: one that fails is said, waited for and started again, and never takes another one down."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

Event = TypeVar("Event")


@dataclass(slots=True)
class Backoff:
    """Waiting times in seconds: doubling from `first_s` to `most_s` with each failure, back after success."""

    first_s: float = 0.25
    most_s: float = 30.0
    _next_s: float = 0.0

    def wait_s(self) -> float:
        """Return how long to wait now, and wait longer the next time."""
        now_s = self._next_s or self.first_s
        self._next_s = min(self.most_s, now_s * 2)
        return now_s

    def reset(self) -> None:
        """It works again."""
        self._next_s = 0.0


async def keep_going(
    make: Callable[[], AsyncGenerator[Event, None]], deliver: Callable[[Event], Awaitable[None]],
    failed: Callable[[Exception, float], Awaitable[None]], *, backoff: Backoff | None = None,
) -> None:
    """Run the events of `make()` through `deliver` until they end by themselves, starting anew after each failure.

    `failed` gets the exception and the seconds until the next attempt: it says the gap and counts. What `deliver`
    raises counts as a failure of the source too, so a consumer that must not be fed twice for one event has to be
    transactional. Only cancellation ends this early.
    """
    waits = backoff or Backoff()
    while True:
        try:
            async with aclosing(make()) as events:
                async for event in events:
                    await deliver(event)
                    waits.reset()
            return
        except Exception as error:              # the one place where any failure of a source ends up, and is said
            wait_s = waits.wait_s()
            await failed(error, wait_s)
            await asyncio.sleep(wait_s)
