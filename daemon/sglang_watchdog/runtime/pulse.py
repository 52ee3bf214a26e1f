"""Which parts of the daemon go on, for the service manager: a ping is real progress of the engine and of every source, or it is not sent."""

import time
from collections.abc import Callable
from typing import Final

# Loops turn every second, idle or not; the slowest, a look into the journal, may take ten seconds.
_HANGS_AFTER_S: Final = 20.0
_SHARE: Final = 2 / 3  # of WatchdogSec=, so that what hangs is known before the time is up


class Pulse:
    """When each part last showed that it goes on, monotonic clock."""

    def __init__(self, watchdog_s: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`watchdog_s` is WatchdogSec=, None where there is none."""
        self._hangs_after_s = min(_HANGS_AFTER_S, watchdog_s * _SHARE) if watchdog_s is not None else _HANGS_AFTER_S
        self._clock = clock
        self._turned: dict[str, Callable[[], float]] = {}
        self._waited_s: dict[str, float] = {}

    def follow(self, part: str, turned_s: Callable[[], float]) -> None:
        """A part began; `turned_s` says when its loop last turned."""
        self._turned[part] = turned_s
        self.beat(part)

    def beat(self, part: str) -> None:
        """It waits on purpose, to be started again: no hanging."""
        self._waited_s[part] = self._clock()

    def end(self, part: str) -> None:
        """It came to its end, as a pipe does."""
        self._turned.pop(part, None)
        self._waited_s.pop(part, None)

    def hanging(self) -> list[str]:
        """The parts whose loop has not turned for long."""
        now_s = self._clock()
        return [part for part, turned_s in self._turned.items() if now_s - max(turned_s(), self._waited_s[part]) > self._hangs_after_s]
