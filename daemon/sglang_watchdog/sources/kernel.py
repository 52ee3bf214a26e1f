"""Reads kernel messages (Xid, a GPU off the bus, the OOM killer, AER) from /dev/kmsg, else from the journal.

Both come out as journald JSON lines: kernel messages carry no wall clock of their own, and this framing says it in UTC.
"""

import asyncio
import errno
import json
import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..model.observation import Gap, Opened, Watermark
from .block import Block, Moved
from .journal import JournalQuery, JournalSource
from .logfile import Limits
from .position import JournalPosition, KernelPosition
from .status import NOT_STARTED, SourceStatus
from .turns import Turns

KernelEvent: TypeAlias = Block | Moved | Gap | Opened | Watermark

_RECORD_BYTES = 8192  # the kernel refuses smaller reads of longer records (EINVAL)
_BATCH = 500


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """One record of /dev/kmsg. `since_boot_s` is the kernel's own clock, which stands still in suspend."""

    sequence: int
    priority: int  # 0 emergency to 7 debug
    since_boot_s: float
    message: str


def parse_kmsg(record: bytes) -> KernelRecord | None:
    """Return the record, or None if it has another form than "priority,sequence,microseconds,flags;message".

    Lines after the first are the device's properties (SUBSYSTEM=pci, DEVICE=+pci:0000:41:00.0); unprintable bytes come
    escaped as \\x1b.
    """
    head, separator, text = record.partition(b";")
    fields = head.split(b",")
    if not separator or len(fields) < 3 or not all(field.isdigit() for field in fields[:3]):
        return None
    message = text.split(b"\n", 1)[0].decode("utf-8", "replace")
    return KernelRecord(int(fields[1]), int(fields[0]) & 7, int(fields[2]) / 1e6, message)


def as_journal_line(record: KernelRecord, boot_s: float) -> bytes:
    """Return the record as one line of journald JSON; `boot_s` is the Unix time at which the kernel's clock was 0."""
    fields = {
        "__REALTIME_TIMESTAMP": str(round((boot_s + record.since_boot_s) * 1e6)),
        "_TRANSPORT": "kernel",
        "SYSLOG_IDENTIFIER": "kernel",
        "PRIORITY": str(record.priority),
        "MESSAGE": record.message,
    }
    return json.dumps(fields).encode() + b"\n"


def _boot_s() -> float:
    return time.time() - time.monotonic()


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


class KmsgSource:
    """A byte source over /dev/kmsg from the oldest record the kernel still has."""

    format = "journal"

    def __init__(
        self,
        name: str = "kernel",
        *,
        path: str = "/dev/kmsg",
        resume: KernelPosition | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.time,
        boot_s: Callable[[], float] = _boot_s,
        boot_id: str | None = None,
    ) -> None:
        """Follow the device behind `resume`, if that is of this boot."""
        self.name = name
        self._path = path
        self._limits = limits or Limits()
        self._clock = clock
        self._boot_s = boot_s
        self._boot = _boot_id() if boot_id is None else boot_id
        self._position = resume if resume is not None and resume.boot == self._boot else None
        self._gaps = 0
        self._bytes_read = 0
        self._last_read_s: float | None = None
        self._why_not = NOT_STARTED
        self._watermark_s = float("-inf")
        self._turns = Turns()

    @property
    def position(self) -> KernelPosition | None:
        """Behind everything yielded."""
        return self._position

    @property
    def turned_s(self) -> float:
        """When the loop last turned, monotonic clock."""
        return self._turns.at_s

    def status(self) -> SourceStatus:
        """See SourceStatus."""
        at = self._position
        return SourceStatus(
            name=self.name,
            kind="kmsg",
            path=self._path,
            readable=not self._why_not,
            why_not=self._why_not,
            offset=at.offset if at else None,
            line=at.line if at else None,
            bytes_read=self._bytes_read,
            gaps=self._gaps,
            lines_read=at.line - 1 if at else 0,
            last_read_s=self._last_read_s,
            wake="stream",
        )

    async def events(self) -> AsyncGenerator[KernelEvent, None]:
        """Yield blocks for ever. Raises OSError when the device cannot be opened (EPERM: kernel.dmesg_restrict)."""
        descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        try:
            loop.add_reader(descriptor, ready.set)
            self._why_not = ""
            yield Opened(at_s=None, source=self.name, from_start=False, format="journal")
            while True:
                self._turns.turn()
                for event in self.read(descriptor):
                    yield event
                ready.clear()
                try:
                    async with asyncio.timeout(1.0):
                        await ready.wait()
                except TimeoutError:
                    pass  # nothing came: the next turn says so with a watermark
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            self._why_not = "stopped"

    def read(self, descriptor: int) -> list[KernelEvent]:
        """Return what the kernel has now, in blocks, and a watermark behind it."""
        out: list[KernelEvent] = []
        records: list[KernelRecord] = []
        now_s = self._clock()
        while True:
            try:
                record = parse_kmsg(os.read(descriptor, _RECORD_BYTES))
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.EPIPE:
                    raise
                continue  # EPIPE: the ring overran us; the next read goes on behind the hole
            if record is None or (self._position is not None and record.sequence <= self._position.sequence):
                continue
            last = records[-1].sequence if records else self._position.sequence if self._position else None
            if last is not None and (lost := record.sequence - last - 1) > 0:
                out += self._flush(records, now_s)
                out.append(self._gap(f"dropped: {lost} kernel messages overwritten unread", now_s))
            records.append(record)
            if len(records) >= _BATCH:
                out += self._flush(records, now_s)
        out += self._flush(records, now_s)
        if now_s - self._watermark_s >= self._limits.watermark_every_s:
            self._watermark_s = now_s
            out.append(Watermark(source=self.name, at_s=now_s - self._limits.settle_s))
        return out

    def _flush(self, records: list[KernelRecord], now_s: float) -> list[KernelEvent]:
        if not records:
            return []
        boot_s = self._boot_s()
        data = b"".join(as_journal_line(record, boot_s) for record in records)
        before = self._position
        line, offset = (before.line, before.offset) if before else (1, 0)
        after = KernelPosition(
            boot=self._boot,
            sequence=records[-1].sequence,
            line=line + len(records),
            offset=offset + len(data),
        )
        records.clear()
        self._position, self._last_read_s = after, now_s
        self._bytes_read += len(data)
        return [
            Block(
                source=self.name,
                data=data,
                offset=offset,
                line=line,
                arrived_s=now_s,
                before=before,
                after=after,
            )
        ]

    def _gap(self, reason: str, now_s: float) -> Gap:
        self._gaps += 1
        return Gap(source=self.name, from_s=self._last_read_s, to_s=now_s, reason=reason)


class KernelSource:
    """Kernel messages from the first place that lets us read: /dev/kmsg, else `journalctl` with _TRANSPORT=kernel."""

    format = "journal"

    def __init__(
        self,
        name: str = "kernel",
        *,
        resume: KernelPosition | JournalPosition | None = None,
        path: str = "/dev/kmsg",
        limits: Limits | None = None,
    ) -> None:
        """Follow the kernel's messages behind `resume` if it is of the place that is read."""
        self.name = name
        self._limits = limits
        self._resume = resume
        self._path = path
        self._source: KmsgSource | JournalSource | None = None
        self._refused = ""
        self._turns = Turns()

    @property
    def position(self) -> KernelPosition | JournalPosition | None:
        """Behind everything yielded."""
        return self._source.position if self._source is not None else self._resume

    @property
    def turned_s(self) -> float:
        """When the loop last turned, monotonic clock."""
        return self._source.turned_s if self._source is not None else self._turns.at_s

    def status(self) -> SourceStatus:
        """See SourceStatus; `notes` says why /dev/kmsg is not the place."""
        if self._source is None:
            return SourceStatus(name=self.name, kind="kmsg", path=self._path, why_not=NOT_STARTED)
        status = self._source.status()
        return status if not self._refused else _with_note(status, self._refused)

    async def events(self) -> AsyncGenerator[KernelEvent, None]:
        """Yield blocks for ever."""
        try:
            os.close(os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            self._refused = f"{self._path}: {error.strerror}; the journal is read instead"
            resume = self._resume if isinstance(self._resume, JournalPosition) else None
            self._source = JournalSource(self.name, JournalQuery(kernel=True), resume=resume, limits=self._limits)
        else:
            known = self._resume if isinstance(self._resume, KernelPosition) else None
            self._source = KmsgSource(self.name, path=self._path, resume=known, limits=self._limits)
        async with aclosing(self._source.events()) as events:
            async for event in events:
                yield event


def _with_note(status: SourceStatus, note: str) -> SourceStatus:
    return replace(status, kind="kmsg", notes=(*status.notes, note))
