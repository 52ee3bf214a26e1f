"""Wakes everybody who waits for new changes, from whichever thread they were committed."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Broadcast:
    """Carries no data: those woken read the ledger from where they stand, so that a slow one costs nothing but
    itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._is_closed = False

    def notify(self) -> None:
        """There is something new. Callable from any thread."""
        with self._lock:
            waiting = tuple(self._waiting)
        for loop, event in waiting:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:  # its loop ended between our copy and this call
                continue

    def close(self) -> None:
        """The daemon stops: streams end."""
        self._is_closed = True
        self.notify()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def listeners(self) -> int:
        return len(self._waiting)

    @contextmanager
    def listen(self) -> Iterator[asyncio.Event]:
        """An event of the running loop that is set at every notification; clear it before reading."""
        entry = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.add(entry)
        try:
            yield entry[1]
        finally:
            with self._lock:
                self._waiting.discard(entry)
