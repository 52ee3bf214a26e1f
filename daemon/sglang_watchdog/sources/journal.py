"""Reads the systemd journal through a supervised `journalctl`: always fits the host's journal format.

journalctl exits, hangs and loses its permission in the field (opentelemetry-collector-contrib 35635, 44007, 23276), and
says nothing when it may not see an entry. So the child is watched: silence is checked with a second, short query, and
the last cursor makes a restart lossless.
"""

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..model.observation import Gap, Opened, Watermark
from .backoff import Backoff
from .block import Block, Moved
from .logfile import Limits
from .position import JournalPosition
from .status import NOT_STARTED, SourceStatus
from .stream import LineCutter, Piece, Skipped
from .turns import Turns

JournalEvent: TypeAlias = Block | Moved | Gap | Opened | Watermark

_FIELDS = "MESSAGE,PRIORITY,_PID,_SYSTEMD_UNIT,SYSLOG_IDENTIFIER,_TRANSPORT,_HOSTNAME,_STREAM_ID,_LINE_BREAK,_SOURCE_REALTIME_TIMESTAMP,N_DROPPED"
_CURSOR = re.compile(rb'"__CURSOR"\s*:\s*"([^"]+)"')
_TIME = re.compile(rb'"__REALTIME_TIMESTAMP"\s*:\s*"(\d+)"')
# A byte that is no text makes journalctl print a message as a list of numbers, four times as long.
_LINE_BYTES = 8 * 1024 * 1024
_QUERY_S = 10.0
_STDERR_BYTES = 4096


class JournalUnreadable(Exception):
    """journalctl cannot be run or may not read; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalQuery:
    """What to read. Without unit, identifier and `kernel` it is the whole journal."""

    unit: str = ""  # sglang.service
    user_unit: str = ""
    identifier: str = ""  # SYSLOG_IDENTIFIER
    kernel: bool = False
    namespace: str = ""  # of journald@NAMESPACE.service
    command: str = "journalctl"

    def arguments(self) -> list[str]:
        """Return the command with its filters, without where to begin."""
        out = [self.command, "--output=json", f"--output-fields={_FIELDS}", "--no-pager", "--all"]
        out += [f"--namespace={self.namespace}"] if self.namespace else []
        out += [f"--unit={self.unit}"] if self.unit else []
        out += [f"--user-unit={self.user_unit}"] if self.user_unit else []
        out += [f"--identifier={self.identifier}"] if self.identifier else []
        return [*out, "_TRANSPORT=kernel"] if self.kernel else out

    def __str__(self) -> str:
        """Return it as in the configuration."""
        what = self.unit or self.user_unit or self.identifier or ("-k" if self.kernel else "*")
        return f"journal:{what}" + (f" in {self.namespace}" if self.namespace else "")


class JournalSource:
    """A byte source over the entries of a query, as journald JSON: one line an entry."""

    format = "journal"

    def __init__(
        self,
        name: str,
        query: JournalQuery,
        *,
        resume: JournalPosition | None = None,
        limits: Limits | None = None,
        quiet_s: float = 5.0,
        clock: Callable[[], float] = time.time,
        backoff: Backoff | None = None,
    ) -> None:
        """Follow `query` behind `resume`, or from the unit's last start. After `quiet_s` of silence the child is
        checked.
        """
        self.name = name
        self._query = query
        self._position = resume
        self._limits = limits or Limits()
        self._quiet_s = quiet_s
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._why_not = NOT_STARTED
        self._awaited = ""  # what the journal does not hold yet
        self._turns = Turns()
        self._restarts = -1
        self._gaps = 0
        self._bytes_read = 0
        self._lines_read = 0
        self._last_read_s: float | None = None
        self._last_entry_s: float | None = None
        self._watermark_s = float("-inf")
        self._heard_s = 0.0  # the child's last output, or its start
        self.child_pid: int | None = None

    @property
    def position(self) -> JournalPosition | None:
        """Behind everything yielded; None before the first entry."""
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
            kind="journal",
            path=str(self._query),
            readable=not self._why_not and not self._awaited,
            why_not=self._why_not or self._awaited,
            do="" if self._why_not or not self._awaited else "look at the unit's name: systemctl list-units",
            is_late=not self._why_not and bool(self._awaited),
            offset=at.offset if at else None,
            line=at.line if at else None,
            bytes_read=self._bytes_read,
            lines_read=self._lines_read,
            gaps=self._gaps,
            restarts=max(0, self._restarts),
            last_read_s=self._last_read_s,
            wake="stream",
        )

    async def events(self) -> AsyncGenerator[JournalEvent, None]:
        """Yield blocks of entries for ever; a journalctl that ends, hangs or may not read is started again."""
        yield Opened(at_s=None, source=self.name, from_start=self._position is None, format="journal")
        while True:
            self._restarts += 1
            try:
                await self._check_access()
                async with aclosing(self._follow()) as events:
                    async for event in events:
                        yield event
                self._why_not = "journalctl ended; it is started again"
            except JournalUnreadable as error:
                is_news, self._why_not = str(error) != self._why_not, str(error)
                if is_news:
                    yield Gap(source=self.name, from_s=self._last_entry_s, to_s=self._clock(), reason=f"unreadable: {error}")
            await self._turns.sleep(self._backoff.wait_s())

    # --- the child ---------------------------------------------------------------------------------------------------

    async def _follow(self) -> AsyncGenerator[JournalEvent, None]:
        child = await _start([*self._query.arguments(), *await self._begin_at(), "--follow", "--no-tail"])
        self.child_pid = child.pid
        self._heard_s = self._clock()
        assert child.stdout is not None
        cutter = LineCutter(
            line_bytes=_LINE_BYTES,
            offset=self._position.offset if self._position else 0,
            line=self._position.line if self._position else 1,
        )
        expected = self._position.cursor.encode() if self._position else b""
        try:
            while True:
                data = await _read(child.stdout, self._limits.block_bytes, self._quiet_s)
                self._turns.turn()
                if data == b"":
                    return
                if data is None:
                    if (mark := await self._verified()) is not None:
                        yield mark
                    continue
                for piece in cutter.feed(data):
                    for event in self._delivered(piece, expected, cutter):
                        yield event
                    expected = b""
        finally:
            self.child_pid = None
            await _stop(child)

    async def _begin_at(self) -> list[str]:
        if self._position is not None:
            return [f"--cursor={self._position.cursor}"]  # inclusive: shows whether the entry is still there
        started = await self._unit_started()
        return [f"--since=@{started}"] if started else ["--boot"]

    async def _unit_started(self) -> str:
        """Return the Unix time of the unit's last start, or "" if systemd does not know: then the boot is read."""
        if not self._query.unit or self._query.namespace:
            return ""
        show = ["systemctl", "show", "--timestamp=unix", "--value", "--property=ExecMainStartTimestamp"]
        try:
            status, out, _ = await _run([*show, self._query.unit])
        except JournalUnreadable:
            return ""
        found = re.fullmatch(rb"@(\d+)\s*", out)
        return found[1].decode() if status == 0 and found else ""

    async def _check_access(self) -> None:
        """Raise JournalUnreadable, or leave `why_not` empty."""
        self._turns.turn()
        status, out, errors = await _run([*self._query.arguments(), "--lines=1"])
        self._turns.turn()
        text = errors.decode("utf-8", "replace").strip()
        if "insufficient permissions" in text or "not seeing messages from" in text:
            raise JournalUnreadable(f"no permission to read {self._query}; add this user to the group systemd-journal")
        if status != 0:
            raise JournalUnreadable(_ended(self._query, status, errors))
        self._why_not = ""
        is_empty = not out.strip() and self._position is None
        self._awaited = f"the journal holds no entry of {str(self._query).removeprefix('journal:')} yet" if is_empty else ""

    async def _verified(self) -> Watermark | None:
        """Ask a second journalctl whether there is an entry behind ours. Raises when the child has missed it."""
        asked_s = self._clock()
        at = self._position
        behind = [f"--after-cursor={at.cursor}"] if at else await self._begin_at()
        status, out, errors = await _run([*self._query.arguments(), *behind, "--lines=1"])
        if status != 0:
            raise JournalUnreadable(_ended(self._query, status, errors))
        if not out.strip():
            self._backoff.reset()
            return self._watermark(asked_s)
        if asked_s - self._heard_s < 2 * self._quiet_s:
            return None  # it may just have been written: the next look decides
        raise JournalUnreadable("journalctl hangs: it does not deliver what the journal holds; it is started again")

    # --- what comes of it --------------------------------------------------------------------------------------------

    def _delivered(self, piece: Piece | Skipped, expected: bytes, cutter: LineCutter) -> list[JournalEvent]:
        if isinstance(piece, Skipped):
            return [self._gap("line-cut", self._last_entry_s, self._clock())]
        if piece.was_cut:  # half an entry is no JSON: it is as lost as its rest
            return []
        gaps = self._resumed(piece, expected) if expected else []
        entries = _without_first(piece, expected, cutter) if expected else piece
        return gaps + (self._entries(entries) if entries.data else [])

    def _resumed(self, piece: Piece, expected: bytes) -> list[JournalEvent]:
        """The first entry after a restart must be the last one before it; else the journal was vacuumed in between."""
        first = piece.data[: piece.data.find(b"\n") + 1]
        if _cursor(first) == expected:
            return []
        gone = re.search(rb"(?:^|;)t=([0-9a-f]+)", expected)
        return [self._gap("vacuumed", int(gone[1], 16) / 1e6 if gone else None, _entry_s(first))]

    def _entries(self, piece: Piece) -> list[JournalEvent]:
        now_s = self._clock()
        last = piece.data[piece.data.rfind(b"\n", 0, -1) + 1 :]
        before = self._position
        after = JournalPosition(
            cursor=_cursor(last).decode() or (before.cursor if before else ""),
            line=piece.line + piece.data.count(b"\n"),
            offset=piece.offset + len(piece.data),
        )
        self._position = after
        self._last_read_s = self._heard_s = now_s
        self._last_entry_s = _entry_s(last)
        self._awaited = ""
        self._bytes_read += len(piece.data)
        self._lines_read += piece.data.count(b"\n")
        self._backoff.reset()
        block = Block(
            source=self.name,
            data=piece.data,
            offset=piece.offset,
            line=piece.line,
            arrived_s=now_s,
            before=before,
            after=after,
        )
        out: list[JournalEvent] = [block]
        out += [self._gap(f"dropped: {text}", at_s, at_s) for at_s, text in _dropped(piece.data)]
        if self._last_entry_s is not None and (mark := self._watermark(self._last_entry_s)) is not None:
            out.append(mark)
        return out

    def _watermark(self, at_s: float) -> Watermark | None:
        if at_s - self._watermark_s < self._limits.watermark_every_s:
            return None
        self._watermark_s = at_s
        return Watermark(source=self.name, at_s=at_s - self._limits.settle_s)

    def _gap(self, reason: str, from_s: float | None, to_s: float | None) -> Gap:
        self._gaps += 1
        return Gap(source=self.name, from_s=from_s, to_s=to_s, reason=reason)


def _without_first(piece: Piece, expected: bytes, cutter: LineCutter) -> Piece:
    """Leave out the entry that was delivered before the restart; it takes no place in the counts either."""
    end = piece.data.find(b"\n") + 1
    if _cursor(piece.data[:end]) != expected:
        return piece
    cutter.offset -= end
    cutter.line -= 1
    return replace(piece, data=piece.data[end:])


def _ended(query: JournalQuery, status: int, errors: bytes) -> str:
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    return f"{query.command} ended with status {status}" + (f": {lines[-1]}" if lines else "")


def _cursor(line: bytes) -> bytes:
    found = _CURSOR.search(line)
    return found[1] if found else b""


def _entry_s(line: bytes) -> float | None:
    found = _TIME.search(line)
    return int(found[1]) / 1e6 if found else None


def _dropped(data: bytes) -> list[tuple[float | None, str]]:
    """journald's own word that it threw messages away (RateLimitBurst): an entry with N_DROPPED."""
    if b'"N_DROPPED"' not in data:
        return []
    out: list[tuple[float | None, str]] = []
    for line in data.splitlines():
        if b'"N_DROPPED"' in line:
            entry = json.loads(line)
            out.append((_entry_s(line), f"journald suppressed {entry['N_DROPPED']} messages; raise RateLimitBurst="))
    return out


# --- processes -------------------------------------------------------------------------------------------------------


async def _start(arguments: list[str]) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
    except OSError as error:
        raise JournalUnreadable(f"{arguments[0]} cannot be started: {error.strerror or error}") from error


async def _read(stream: asyncio.StreamReader, length: int, within_s: float) -> bytes | None:
    try:
        async with asyncio.timeout(within_s):
            return await stream.read(length)
    except TimeoutError:
        return None


async def _run(arguments: list[str]) -> tuple[int, bytes, bytes]:
    """Run a short query; return status, output and what it complained about. Raises JournalUnreadable if it hangs."""
    try:
        child = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
    except OSError as error:
        raise JournalUnreadable(f"{arguments[0]} cannot be started: {error.strerror or error}") from error
    try:
        async with asyncio.timeout(_QUERY_S):
            out, errors = await child.communicate()
        return child.returncode or 0, out, errors[-_STDERR_BYTES:]
    except TimeoutError as error:
        raise JournalUnreadable(f"{arguments[0]} did not answer within {_QUERY_S:.0f} s") from error
    finally:
        await _stop(child)


async def _stop(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        with suppress(ProcessLookupError):  # it ended by itself in this moment
            os.killpg(child.pid, signal.SIGKILL)  # a stopped process does not hear SIGTERM
        await child.wait()
