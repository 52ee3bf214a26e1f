"""The ledger: every change of every finding and run, and how far each source was read, in one SQLite file.

One thread writes. Changes and the positions of the sources they came from are committed together, so that after any
crash what was recorded and what will be read again fit without a hole and without a repetition. When the disk cannot be
written the ledger goes on in memory, says so, and returns to the disk by itself.
"""

import json
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from ..model.finding import Change, Finding, FindingChanged
from ..model.words import State
from . import decode, ledger_fallback, ledger_files, ledger_reads, ledger_retention, ledger_writes
from .ledger_files import MovedAside
from .ledger_reads import FindingFilter, FindingRow, Page
from .ledger_retention import Retention
from .ledger_writes import Acknowledgement, Recorded, Silence

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], Any]

_BATCH: Final = 500  # jobs in one transaction
_MAINTAIN_EVERY_S: Final = 60.0
# What SQLite says when the place is at fault and not the statement: full, read-only, I/O error, cannot open, not permitted.
_DISK_FAULTS: Final = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_BUSY,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerState:
    """Told to `on_state` at every change: the runtime turns it into a finding about ourselves."""

    is_durable: bool  # False: in memory only
    because: str = ""
    do: str = ""
    moved_aside: MovedAside | None = None


class LedgerClosed(Exception):
    """The ledger was closed; nothing more is recorded."""


class Ledger:
    """`path` None keeps everything in memory for good (tests, `--state-dir none`).

    `on_state` is called from the writer's thread when durability changes, `on_committed` after each transaction with what
    it recorded. `channels` name the notification channels that get an entry in the outbox for each transition.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        retention: Retention = Retention(),
        channels: Sequence[str] = (),
        notify_wait_s: float = 5.0,
        now: Callable[[], float] = time.time,
        retry_s: float = 15.0,
        on_state: Callable[[LedgerState], None] = lambda _: None,
        on_committed: Callable[[Sequence[Recorded]], None] = lambda _: None,
    ) -> None:
        self._path, self._retention, self._channels = path, retention, tuple(channels)
        self._notify_wait_s, self._now, self._retry_s = notify_wait_s, now, retry_s
        self._on_state, self._on_committed = on_state, on_committed
        self._jobs: queue.SimpleQueue[tuple[Job, Future[Any]] | None] = queue.SimpleQueue()
        self._reading = threading.Lock()  # one reader at a time; in memory also against the writer's open transaction
        self._is_closed = False
        self._state = LedgerState(is_durable=path is not None)
        self._last_id = self._last_on_disk = 0
        self._was_copied = False
        self._writer = self._open()
        self._reader = self._open_reader()
        self._last_id = ledger_reads.change_range(self._writer)[1]
        self._past = ledger_writes.horizon(self._writer)
        self._first_started_s = self._remember_first_start()
        self._thread = threading.Thread(target=self._work, name="ledger", daemon=True)
        self._thread.start()

    # --- what the runtime calls ---------------------------------------------------------------------------------

    @property
    def state(self) -> LedgerState:
        return self._state

    @property
    def first_started_s(self) -> float:
        """When a daemon first wrote this ledger: runs that ended before are history."""
        return self._first_started_s

    @property
    def backlog(self) -> int:
        """Jobs not yet committed; the runtime stops reading logs while it is long."""
        return self._jobs.qsize()

    def commit(
        self, changes: Iterable[Change], positions: Mapping[str, Any] | None = None
    ) -> "Future[tuple[Recorded, ...]]":
        """Record changes and positions in one transaction; the future ends when they are durable, with what was news.
        A position is any JSON value, by the name of its source."""
        told, where = tuple(changes), dict(positions or {})
        return self._submit(
            lambda connection: ledger_writes.write_changes(
                connection,
                told,
                where,
                now_s=self._now(),
                past=self._past,
                channels=self._channels,
                wait_s=self._notify_wait_s,
            )
        )

    def expire_unseen(self, server: str, alive: Iterable[str], *, at_s: float) -> "Future[tuple[Recorded, ...]]":
        """Expire the server's open findings that are not in `alive` (ids the engine holds). Call it once the engine has
        caught up after a start: what it did not find again ended while nobody watched."""
        kept = frozenset(alive)

        def job(connection: sqlite3.Connection) -> tuple[Recorded, ...]:
            rows = connection.execute(
                "SELECT doc, historic, state FROM findings WHERE server = ? AND state IN ('pending', 'firing')",
                (server,),
            ).fetchall()
            found = [
                (decode.finding(json.loads(doc), historic=bool(historic)), State(state))
                for doc, historic, state in rows
            ]
            gone = [
                FindingChanged(at_s, replace(finding, state=State.EXPIRED), was)
                for finding, was in found
                if finding.id not in kept
            ]
            return ledger_writes.write_changes(
                connection,
                gone,
                {},
                now_s=self._now(),
                past=ledger_writes.Horizon({}),
                channels=self._channels,
                wait_s=self._notify_wait_s,
            )

        return self._submit(job)

    def acknowledge(self, word: Acknowledgement) -> "Future[Recorded | None]":
        """None: there is no such open finding."""
        return self._submit(lambda connection: ledger_writes.write_acknowledgement(connection, word, now_s=self._now()))

    def withdraw(self, finding: str, author: str) -> "Future[Recorded | None]":
        """Take an acknowledgement back. None: there was none."""
        return self._submit(
            lambda connection: ledger_writes.remove_acknowledgement(connection, finding, author, now_s=self._now())
        )

    def silence(self, silence: Silence) -> "Future[Recorded]":
        return self._submit(lambda connection: ledger_writes.write_silence(connection, silence, now_s=self._now()))

    def end_silence(self, silence: str, author: str) -> "Future[Recorded | None]":
        """None: there is none that has not ended."""
        return self._submit(
            lambda connection: ledger_writes.end_silence(connection, silence, author, now_s=self._now())
        )

    def write(self, job: Callable[[sqlite3.Connection], T]) -> "Future[T]":
        """Run `job` in the writer's next transaction."""
        return self._submit(job)

    def close(self) -> None:
        """Commit what was handed in, then close. Safe to call twice."""
        if not self._is_closed:
            self._is_closed = True
            self._jobs.put(None)
            self._thread.join()
            with self._reading:
                self._reader.close()
                self._writer.close()

    # --- questions -----------------------------------------------------------------------------------------------

    def read(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """Ask the ledger from any thread; sees committed data only."""
        with self._reading:
            if self._is_closed:
                raise LedgerClosed
            return question(self._reader)

    def findings(
        self, wanted: FindingFilter = FindingFilter(), *, limit: int = 100, cursor: int | None = None
    ) -> Page[FindingRow]:
        return self.read(
            lambda connection: ledger_reads.findings(connection, wanted, now_s=self._now(), limit=limit, cursor=cursor)
        )

    def finding(self, id: str) -> FindingRow | None:
        return next(iter(self.findings(FindingFilter(id=(id,)), limit=1).items), None)

    def open_findings(self, server: str) -> tuple[Finding, ...]:
        """The findings of a server that were pending or firing when they were last heard of."""
        wanted = FindingFilter(server=(server,), state=(State.PENDING.value, State.FIRING.value))
        return tuple(
            decode.finding(json.loads(row.doc), historic=row.is_historic)
            for row in self.findings(wanted, limit=100_000).items
        )

    def runs(
        self, *, server: tuple[str, ...] = (), phase: tuple[str, ...] = (), limit: int = 100, cursor: int | None = None
    ) -> Page[str]:
        return self.read(
            lambda connection: ledger_reads.runs(connection, server=server, phase=phase, limit=limit, cursor=cursor)
        )

    def run(self, id: str) -> tuple[str, str] | None:
        """The run and its facts as JSON texts."""
        return self.read(lambda connection: ledger_reads.run(connection, id))

    def silences(self) -> list[Silence]:
        return self.read(ledger_reads.silences)

    def positions(self) -> dict[str, Any]:
        return self.read(ledger_reads.positions)

    def changes_since(self, after: int, limit: int = 500) -> list[Recorded]:
        return self.read(lambda connection: ledger_reads.changes_since(connection, after, limit))

    def change_range(self) -> tuple[int, int]:
        """Ids of the oldest change still kept and of the newest ever made."""
        return self.read(ledger_reads.change_range)

    def used_bytes(self) -> int:
        return self.read(ledger_retention.used_bytes)

    # --- the writer's thread -------------------------------------------------------------------------------------

    def _submit(self, job: Callable[[sqlite3.Connection], T]) -> "Future[T]":
        if self._is_closed:
            raise LedgerClosed
        answer: Future[T] = Future()
        self._jobs.put((job, answer))
        return answer

    def _work(self) -> None:
        maintain_at = time.monotonic() + _MAINTAIN_EVERY_S
        retry_at = time.monotonic() + self._retry_s
        while True:
            try:
                first = self._jobs.get(timeout=min(self._retry_s, _MAINTAIN_EVERY_S))
            except queue.Empty:
                pass
            else:
                batch, is_last = self._batch(first)
                self._transact(batch)
                if is_last:
                    self._back_to_disk()
                    return
            if not self._state.is_durable and time.monotonic() >= retry_at:
                self._back_to_disk()
                retry_at = time.monotonic() + self._retry_s
            if time.monotonic() >= maintain_at:
                self._transact([(self._maintain, Future())])
                maintain_at = time.monotonic() + _MAINTAIN_EVERY_S

    def _batch(self, first: tuple[Job, Future[Any]] | None) -> tuple[list[tuple[Job, Future[Any]]], bool]:
        """What waits, up to a limit, and whether the end of all work is among it."""
        batch: list[tuple[Job, Future[Any]]] = []
        entry = first
        while entry is not None:
            batch.append(entry)
            if len(batch) >= _BATCH:
                return batch, False
            try:
                entry = self._jobs.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _transact(self, batch: list[tuple[Job, Future[Any]]]) -> None:
        """One transaction for the batch; a job that fails by itself is undone alone, a disk that fails turns all to memory."""
        if not batch:
            return
        try:
            answers = self._run(batch)
        except (sqlite3.Error, OSError) as fault:
            if not self._state.is_durable:
                raise
            self._to_memory(fault)
            answers = self._run(batch)
        news: list[Recorded] = []
        for (_, future), answer in zip(batch, answers, strict=True):
            if isinstance(answer, BaseException):
                future.set_exception(answer)
                continue
            future.set_result(answer)
            news.extend(answer if isinstance(answer, tuple) else [answer] if isinstance(answer, Recorded) else [])
        recorded = [each for each in news if isinstance(each, Recorded)]
        if recorded:
            self._last_id = recorded[-1].id
            self._on_committed(recorded)

    def _run(self, batch: list[tuple[Job, Future[Any]]]) -> list[Any]:
        connection = self._writer
        if self._state.is_durable:
            return self._run_in(connection, batch)
        with self._reading:
            return self._run_in(connection, batch)

    def _run_in(self, connection: sqlite3.Connection, batch: list[tuple[Job, Future[Any]]]) -> list[Any]:
        answers: list[Any] = []
        connection.execute("BEGIN IMMEDIATE")
        try:
            for job, _ in batch:
                connection.execute("SAVEPOINT job")
                try:
                    answers.append(job(connection))
                except Exception as fault:
                    if _is_disk_fault(fault):
                        raise
                    connection.execute("ROLLBACK TO job")
                    answers.append(fault)
                connection.execute("RELEASE job")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.rollback()
            raise
        return answers

    def _maintain(self, connection: sqlite3.Connection) -> None:
        ledger_retention.forget(connection, self._retention, now_s=self._now())
        if not self._state.is_durable:
            connection.execute(
                "DELETE FROM changes WHERE id <= (SELECT max(id) FROM changes) - ?", (ledger_fallback.MEMORY_CHANGES,)
            )
        connection.execute("PRAGMA incremental_vacuum").fetchall()

    # --- disk and memory -------------------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        if self._path is None:
            return ledger_files.open_memory()
        try:
            connection, moved = ledger_files.open_writer(self._path, now=self._now)
        except (sqlite3.Error, OSError) as fault:
            self._say(_trouble(self._path, fault))
            return self._memory()
        if moved is not None:
            self._say(
                LedgerState(
                    is_durable=True,
                    moved_aside=moved,
                    because=f"{self._path}: {moved.reason} ({moved.detail}); moved to {moved.path} and begun anew",
                    do="Look at the moved file if its history matters, then delete it.",
                )
            )
        return connection

    def _open_reader(self) -> sqlite3.Connection:
        if self._path is None or not self._state.is_durable:
            return self._writer
        return ledger_files.open_reader(self._path)

    def _to_memory(self, fault: Exception) -> None:
        assert self._path is not None
        memory = self._memory()
        with self._reading:
            for old in (self._reader, self._writer):
                old.close()
            self._writer = self._reader = memory
            self._state = _trouble(self._path, fault)
        self._on_state(self._state)

    def _memory(self) -> sqlite3.Connection:
        """A ledger in memory with what the disk holds, if it can be read at all; change ids go on either way."""
        assert self._path is not None
        memory = ledger_files.open_memory()
        try:
            with closing(ledger_files.open_reader(self._path)) as disk:
                self._last_on_disk, self._was_copied = ledger_fallback.copy_to_memory(disk, memory), True
        except sqlite3.Error:
            memory.close()
            memory = ledger_files.open_memory()
            self._last_on_disk, self._was_copied = self._last_id, False
            ledger_fallback.continue_after(memory, self._last_id)
        return memory

    def _back_to_disk(self) -> None:
        """Try the disk again; on success everything recorded meanwhile is on it."""
        if self._path is None or self._state.is_durable:
            return
        try:
            disk, moved = ledger_files.open_writer(self._path, now=self._now)
        except (sqlite3.Error, OSError):
            return
        try:
            with self._reading:
                ledger_fallback.copy_to_disk(
                    self._writer, disk, 0 if moved else self._last_on_disk, was_copied=self._was_copied
                )
            reader = ledger_files.open_reader(self._path)
        except (sqlite3.Error, OSError):
            disk.close()
            return
        with self._reading:
            self._writer.close()
            self._writer, self._reader = disk, reader
        self._say(
            LedgerState(
                is_durable=True, moved_aside=moved, because="" if moved is None else f"{moved.reason}: {moved.detail}"
            )
        )

    def _say(self, state: LedgerState) -> None:
        self._state = state
        self._on_state(state)

    def _remember_first_start(self) -> float:
        row = self._reader.execute("SELECT value FROM meta WHERE name = 'first_started'").fetchone()
        if row is not None:
            return float(row[0])
        started_s = self._now()
        try:
            self._writer.execute("INSERT INTO meta (name, value) VALUES ('first_started', ?)", (repr(started_s),))
        except sqlite3.OperationalError as fault:
            if not self._state.is_durable:
                raise
            self._to_memory(fault)
        return started_s


def _is_disk_fault(fault: Exception) -> bool:
    code = getattr(fault, "sqlite_errorcode", None)
    return isinstance(fault, OSError) or (code is not None and code & 0xFF in _DISK_FAULTS)


def _trouble(path: Path, fault: Exception) -> LedgerState:
    return LedgerState(
        is_durable=False,
        because=f"{path}: {fault}; changes are kept in memory only",
        do=f"Make {path.parent} writable and give it free space; the ledger returns to it by itself, and what is in memory is written then.",
    )
