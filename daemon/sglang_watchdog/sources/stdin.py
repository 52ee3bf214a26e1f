"""Reads standard input: `kubectl logs -f POD | sglang-watchdog run -`. What was read cannot be read again, so there is
no position.
"""

import asyncio
import os
import stat
import time
from collections.abc import AsyncGenerator, Callable
from typing import TypeAlias

from ..model.observation import Gap, Opened, Watermark
from .block import Block
from .logfile import Limits
from .status import SourceStatus
from .stream import LineCutter, Piece, Skipped
from .turns import Turns

StreamEvent: TypeAlias = Block | Gap | Opened | Watermark


class StdinSource:
    """A byte source over a descriptor that ends; by default standard input."""

    format = "auto"

    def __init__(
        self,
        name: str = "stdin",
        *,
        descriptor: int = 0,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Read `descriptor`, which stays open."""
        self.name = name
        self._descriptor = descriptor
        self._limits = limits or Limits()
        self._clock = clock
        self._cutter = LineCutter(line_bytes=self._limits.line_bytes)
        self._ended = False
        self._cut_lines = 0
        self._bytes_read = 0
        self._last_read_s: float | None = None
        self._turns = Turns()

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        """Yield blocks until the writer closes; a writer that is faster than the consumer waits in its pipe."""
        yield Opened(at_s=None, source=self.name, from_start=True, format="stdin")
        watermark_s = float("-inf")
        while True:
            data = await self._read(self._limits.flush_s)
            self._turns.turn()
            now_s = self._clock()
            if data == b"":
                break
            pieces = self._cutter.flush() if data is None else self._cutter.feed(data)
            for piece in pieces:
                yield self._event(piece, now_s)
            if data is None and now_s - watermark_s >= self._limits.watermark_every_s:
                watermark_s = now_s
                yield Watermark(source=self.name, at_s=now_s - self._limits.settle_s)
        for piece in self._cutter.flush():
            yield self._event(piece, self._clock())
        self._ended = True

    async def _read(self, within_s: float) -> bytes | None:
        """Return what can be read, b"" at the end, None when nothing came in time."""
        if stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            return os.read(self._descriptor, self._limits.block_bytes)
        ready = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._descriptor, ready.set)
        try:
            async with asyncio.timeout(within_s):
                await ready.wait()
        except TimeoutError:
            return None
        finally:
            loop.remove_reader(self._descriptor)
        return os.read(self._descriptor, self._limits.block_bytes)

    def _event(self, piece: Piece | Skipped, now_s: float) -> Block | Gap:
        if isinstance(piece, Skipped):
            self._cut_lines += 1
            return Gap(
                source=self.name,
                from_s=self._last_read_s,
                to_s=now_s,
                reason="line-cut",
                from_offset=piece.from_offset,
                to_offset=piece.to_offset,
            )
        self._last_read_s = now_s
        self._bytes_read += len(piece.data)
        return Block(
            source=self.name,
            data=piece.data,
            offset=piece.offset,
            line=piece.line,
            arrived_s=now_s,
            continues=piece.continues,
            was_cut=piece.was_cut,
        )

    @property
    def turned_s(self) -> float:
        """When the loop last turned, monotonic clock."""
        return self._turns.at_s

    def status(self) -> SourceStatus:
        """See SourceStatus."""
        return SourceStatus(
            name=self.name,
            kind="stdin",
            readable=not self._ended,
            why_not="the writer closed the pipe" if self._ended else "",
            has_ended=self._ended,
            offset=self._cutter.offset,
            line=self._cutter.line,
            bytes_read=self._bytes_read,
            lines_read=self._cutter.line - 1,
            cut_lines=self._cut_lines,
            last_read_s=self._last_read_s,
            wake="stream",
        )
