"""The live form of a recording: `--telemetry replay:FILE`, followed while something else still writes it.

Delivers samples in file order and a watermark whenever the time moves on. `limit` holds samples back that are newer
than the log has come, so that a finished recording does not run ahead of a log that is still being played.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from ..model.observation import Gap, Observation, Sample, Watermark
from .telemetry_recording import Recording, TelemetryObservation, open_recording
from .turns import Turns

Put = Callable[[Observation], Awaitable[None]]

_POLL_S: Final = 0.1
_BLOCK: Final = 1 << 18


class TelemetryReplay:
    """Follows one recording. `run` returns at the end of a finished file (follow=False) or never (follow=True)."""

    def __init__(
        self,
        path: Path,
        put: Put,
        *,
        source: str = "gpus",
        follow: bool = True,
        limit: Callable[[], float | None] | None = None,
        poll_s: float = _POLL_S,
    ) -> None:
        self.recording = Recording(path, source=source)
        self._put = put
        self._follow = follow
        self._limit = limit
        self._poll_s = poll_s
        self._newest_s: float | None = None
        self._turns = Turns()
        self.why_not = ""  # why the recording cannot be read now

    @property
    def turned_s(self) -> float:
        """When the loop last turned, monotonic clock."""
        return self._turns.at_s

    async def run(self) -> None:
        """Deliver the recording. A file that is not there yet is said once as a Gap and awaited.

        Raises:
            OSError, EOFError: follow=False and the file cannot be opened, or its compressed stream ends early.
        """
        while True:
            self._turns.turn()
            try:
                await self._read_file()
            except (OSError, EOFError) as error:  # EOFError: a gzip file that was cut short
                if not self._follow:
                    raise
                await self._say_missing(error)
            if not self._follow:
                break
            await asyncio.sleep(self._poll_s)
        if self._newest_s is not None:
            await self._put(Watermark(source=self.recording.source, at_s=self._newest_s))

    async def _read_file(self) -> None:
        """Read one generation of the file: until its end (finished file), or until another file took its name."""
        path = self.recording.path
        inode = path.stat().st_ino
        rest = b""
        self.recording.lines = 0
        with open_recording(path) as stream:
            self.why_not = ""
            while True:
                self._turns.turn()
                block = stream.read(_BLOCK)
                if block:
                    *lines, rest = (rest + block).split(b"\n")
                    await self._deliver(lines)
                elif not self._follow:
                    await self._deliver([rest])
                    return
                elif _was_replaced(path, inode, stream.tell()):
                    await self._put(Gap(source=self.recording.source, from_s=self._newest_s, to_s=None, reason="truncated"))
                    return
                else:
                    await asyncio.sleep(self._poll_s)

    async def _deliver(self, lines: list[bytes]) -> None:
        for line in lines:
            self._turns.turn()
            self.recording.lines += 1
            observation = self.recording.decode(line)
            if observation is not None:
                await self._pass_on(observation)

    async def _pass_on(self, observation: TelemetryObservation) -> None:
        at_s = observation.from_s if isinstance(observation, Gap) else observation.at_s
        if at_s is not None:
            await self._await_limit(at_s)
            if self._newest_s is not None and at_s > self._newest_s:
                await self._put(Watermark(source=self.recording.source, at_s=self._newest_s))
            if isinstance(observation, Sample) or self._newest_s is None:
                self._newest_s = max(at_s, self._newest_s or at_s)
        await self._put(observation)

    async def _await_limit(self, at_s: float) -> None:
        while self._limit is not None:
            self._turns.turn()
            newest_allowed_s = self._limit()
            if newest_allowed_s is not None and at_s <= newest_allowed_s:
                return
            await asyncio.sleep(self._poll_s)

    async def _say_missing(self, error: Exception) -> None:
        if not self.why_not:
            self.why_not = f"{self.recording.path}: {error}"
            await self._put(Gap(source=self.recording.source, from_s=None, to_s=None, reason=f"unreadable: {error}"))


def _was_replaced(path: Path, inode: int, read_to: int) -> bool:
    try:
        now = path.stat()
    except OSError:
        return True
    return now.st_ino != inode or (now.st_size < read_to and not path.name.endswith(".gz"))
