"""Follows all log files that match a pattern, one tail for each; files that appear later join."""

import asyncio
import glob
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import TypeAlias

from .follow import TailSource
from .hints import Hints
from .logfile import Limits
from .position import TailPosition
from .siblings import is_rotation_of
from .status import SourceStatus
from .tail import TailEvent
from .turns import Turns

GlobEvent: TypeAlias = TailEvent

_LOOK_S = 1.0
_GONE_S = 300.0
_RECENT_S = 24 * 3600.0


def has_pattern(path: str) -> bool:
    """Say whether `path` is a pattern and not the name of a file."""
    return glob.has_magic(path) and not os.path.exists(path)


def logs_matching(pattern: str) -> list[str]:
    """Return the files that match, without those that a rotation made of another."""
    found = [path for path in sorted(glob.glob(pattern, recursive=True)) if os.path.isfile(path)]
    by_directory: dict[str, list[str]] = {}
    for path in found:
        directory, name = os.path.split(path)
        by_directory.setdefault(directory, []).append(name)
    return [
        path
        for path in found
        if not any(is_rotation_of(os.path.basename(path), other) for other in by_directory[os.path.dirname(path)] if other != os.path.basename(path))
    ]


class GlobSource:
    """A byte source over every file of a pattern. Each file is a source of its own, named "NAME:PATH"."""

    format = "auto"

    def __init__(
        self,
        name: str,
        pattern: str,
        *,
        resume: Mapping[str, TailPosition] | None = None,
        hints: Hints | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.time,
        recent_s: float = _RECENT_S,
    ) -> None:
        """Follow `pattern`; `resume` holds the position of each source by its name.

        Of the files that are there at the start and have no position, those not written for `recent_s` are left out:
        the logs of servers long gone. The newest is always read.
        """
        self.name = name
        self._pattern = pattern
        self._resume = dict(resume or {})
        self._hints = hints
        self._limits = limits
        self._clock = clock
        self._recent_s = recent_s
        self._tails: dict[str, TailSource] = {}
        self._left_out: set[str] = set()
        self._missing_since: dict[str, float] = {}
        self._turns = Turns()

    async def events(self) -> AsyncGenerator[TailEvent, None]:
        """Yield the events of all files, in the order they come; the slowest consumer holds all of them."""
        inbox: asyncio.Queue[TailEvent] = asyncio.Queue(maxsize=1)
        tasks: dict[str, asyncio.Task[None]] = {}
        looked_s = float("-inf")
        try:
            self._leave_out_old()
            while True:
                self._turns.turn()
                if abs(self._clock() - looked_s) >= _LOOK_S:
                    looked_s = self._clock()
                    for path in self._vanished(looked_s):
                        await _cancel([tasks.pop(path)])
                    for path in self._fresh():
                        tasks[path] = asyncio.create_task(self._pump(path, inbox), name=f"tail {path}")
                    for task in tasks.values():
                        if task.done():
                            task.result()  # a tail never ends by itself: this raises what ended it
                event = await _next(inbox, _LOOK_S)
                if event is not None:
                    yield event
        finally:
            await _cancel(list(tasks.values()))

    async def _pump(self, path: str, inbox: asyncio.Queue[TailEvent]) -> None:
        async with aclosing(self._tails[path].events()) as events:
            async for event in events:
                await inbox.put(event)

    def _vanished(self, now_s: float) -> list[str]:
        """Stop following files that were deleted long ago: pods come and go."""
        gone = [path for path in self._tails if not os.path.exists(path)]
        self._missing_since = {path: self._missing_since.get(path, now_s) for path in gone}
        vanished = [path for path, since_s in self._missing_since.items() if now_s - since_s > _GONE_S]
        for path in vanished:
            del self._tails[path], self._missing_since[path]
        return vanished

    def _leave_out_old(self) -> None:
        paths = logs_matching(self._pattern)
        ages = {path: self._clock() - os.stat(path).st_mtime for path in paths}
        newest = min(ages, key=lambda path: ages[path], default="")
        self._left_out = {path for path in paths if path != newest and ages[path] > self._recent_s and self.source_name(path) not in self._resume}

    def _fresh(self) -> list[str]:
        fresh: list[str] = []
        for path in logs_matching(self._pattern):
            if path not in self._tails and path not in self._left_out:
                name = self.source_name(path)
                self._tails[path] = TailSource(
                    name,
                    path,
                    resume=self._resume.get(name),
                    hints=self._hints,
                    limits=self._limits,
                    clock=self._clock,
                )
                fresh.append(path)
        return fresh

    def source_name(self, path: str) -> str:
        """Return the name of the source that reads `path`."""
        return f"{self.name}:{path}"

    @property
    def positions(self) -> dict[str, TailPosition]:
        """Behind everything read, by the name of the source; see `TailSource.position`."""
        return {tail.name: tail.position for tail in self._tails.values()}

    @property
    def turned_s(self) -> float:
        """When the slowest of its loops last turned, monotonic clock."""
        return min([self._turns.at_s, *(tail.turned_s for tail in self._tails.values())])

    def status(self) -> SourceStatus:
        """Return the sum over all files; `statuses` has each."""
        each = [tail.status() for tail in self._tails.values()]
        last = max((status.last_read_s for status in each if status.last_read_s is not None), default=None)
        return SourceStatus(
            name=self.name,
            kind="file",
            path=self._pattern,
            readable=any(status.readable for status in each),
            why_not="" if each else f"no file matches {self._pattern}",
            do="" if each else "files are read as soon as they are there; if they should be there, look at the spelling",
            is_late=not each,
            lag_bytes=sum(status.lag_bytes or 0 for status in each),
            bytes_read=sum(status.bytes_read for status in each),
            lines_read=sum(status.lines_read for status in each),
            cut_lines=sum(status.cut_lines for status in each),
            rotations=sum(status.rotations for status in each),
            truncations=sum(status.truncations for status in each),
            gaps=sum(status.gaps for status in each),
            last_read_s=last,
            wake="inotify" if each and all(status.wake == "inotify" for status in each) else "poll",
            notes=tuple(f"not followed, not written for a day: {path}" for path in sorted(self._left_out)),
        )

    def statuses(self) -> list[SourceStatus]:
        """Return one status for each file."""
        return [tail.status() for tail in self._tails.values()]


async def _next(inbox: asyncio.Queue[TailEvent], within_s: float) -> TailEvent | None:
    try:
        async with asyncio.timeout(within_s):
            return await inbox.get()
    except TimeoutError:
        return None


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
