"""The one thread that writes the ledger: jobs in batches, each batch one transaction, on disk or, when that fails, in
memory."""

import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from . import ledger_fallback, ledger_files, ledger_reads
from .ledger_files import MovedAside
from .ledger_writes import Recorded

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], Any]
Entry = tuple[Job, "Future[Any]"]

_BATCH: Final = 500  # jobs in one transaction
_MAINTAIN_EVERY_S: Final = 15.0  # also how soon damage to the file is met that SQLite's cache hides
_FIRST_RETRY_S: Final = 1.0  # after a disk failed; twice as long each time, up to `retry_s`
# What SQLite says when the place is at fault and not the statement.
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


class Writer:
    """Owns the connections. Opened by the constructor, which never fails because of the disk; `start` starts the
    thread.

    `maintain` is a job run four times a minute. `on_state` and `on_committed` are called from the thread; a fault of theirs
    is logged and does not end it.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        now: Callable[[], float],
        retry_s: float,
        maintain: Job,
        on_state: Callable[[LedgerState], None],
        on_committed: Callable[[Sequence[Recorded]], None],
    ) -> None:
        self._path, self._now, self._retry_s, self._maintain = path, now, retry_s, maintain
        self._on_state, self._on_committed = on_state, on_committed
        self._jobs: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self._reading = threading.Lock()  # one reader at a time; in memory also against the writer's open transaction
        self._is_closed = False
        self._last_id = self._last_on_disk = 0
        self._was_copied = False
        self.state = LedgerState(is_durable=path is not None)
        self._writer = self._open()
        self._reader = self._open_reader()
        self._last_id = ledger_reads.change_range(self._writer)[1]
        self._thread = threading.Thread(target=self._work, name="ledger", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def backlog(self) -> int:
        return self._jobs.qsize()

    def submit(self, job: Callable[[sqlite3.Connection], T]) -> "Future[T]":
        """Run `job` in the next transaction; a job cancelled before that is left out.

        Raises:
            LedgerClosed
        """
        if self._is_closed:
            raise LedgerClosed
        answer: Future[T] = Future()
        self._jobs.put((job, answer))
        return answer

    def read(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """Ask from any thread; sees committed data only."""
        with self._reading:
            if self._is_closed:
                raise LedgerClosed
            try:
                return question(self._reader)
            except sqlite3.DatabaseError as fault:
                if self.state.is_durable and _is_damage(fault):
                    self._jobs.put((_failing(fault), Future()))  # the writer may not meet the bad page for long
                raise

    def close(self) -> None:
        """Commit what was handed in, then close. Safe to call twice."""
        if not self._is_closed:
            self._is_closed = True
            self._jobs.put(None)
            self._thread.join()
            with self._reading:
                self._reader.close()
                self._writer.close()

    # --- the thread -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        maintain_at = time.monotonic() + _MAINTAIN_EVERY_S
        wait_s = min(_FIRST_RETRY_S, self._retry_s)
        retry_at = time.monotonic() + wait_s
        is_last = False
        while not is_last:
            was_durable = self.state.is_durable
            try:
                first = self._jobs.get(timeout=_MAINTAIN_EVERY_S if was_durable else wait_s)
            except queue.Empty:
                pass
            else:
                batch, is_last = self._batch(first)
                self._transact(batch)
            if was_durable and not self.state.is_durable:  # just now: much is over in a moment, the rest is asked more and more rarely
                wait_s = min(_FIRST_RETRY_S, self._retry_s)
                retry_at = time.monotonic() + wait_s
            if not self.state.is_durable and (is_last or time.monotonic() >= retry_at):
                self._back_to_disk()
                wait_s = min(2 * wait_s, self._retry_s)
                retry_at = time.monotonic() + wait_s
            if time.monotonic() >= maintain_at:
                self._transact([(self._maintain, Future())])
                maintain_at = time.monotonic() + _MAINTAIN_EVERY_S

    def _batch(self, first: Entry | None) -> tuple[list[Entry], bool]:
        """What waits, up to a limit, and whether the end of all work is among it."""
        batch: list[Entry] = []
        entry = first
        while entry is not None:
            if entry[1].set_running_or_notify_cancel():
                batch.append(entry)
            if len(batch) >= _BATCH:
                return batch, False
            try:
                entry = self._jobs.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _transact(self, batch: list[Entry]) -> None:
        """One transaction for the batch. A job that fails by itself is undone alone; a disk that fails turns to
        memory."""
        if not batch:
            return
        try:
            answers = self._attempt(batch)
        except Exception as fault:  # memory itself failed: whoever waits must hear of it
            for _, future in batch:
                future.set_exception(fault)
            return
        news: list[Recorded] = []
        for (_, future), answer in zip(batch, answers, strict=True):
            if isinstance(answer, BaseException):
                future.set_exception(answer)
                continue
            future.set_result(answer)
            news.extend(each for each in (answer if isinstance(answer, tuple) else (answer,)) if isinstance(each, Recorded))
        if news:
            self._last_id = news[-1].id
            self._tell(lambda: self._on_committed(news))

    def _attempt(self, batch: list[Entry]) -> list[Any]:
        try:
            return self._run(batch)
        except (sqlite3.Error, OSError) as fault:
            if not self.state.is_durable:
                raise
            self._to_memory(fault)
        return self._run(batch)

    def _run(self, batch: list[Entry]) -> list[Any]:
        if self.state.is_durable:
            return _run_in(self._writer, batch)
        with self._reading:
            return _run_in(self._writer, batch)

    def _tell(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            logging.getLogger(__name__).exception("a listener of the ledger failed")

    # --- disk and memory --------------------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        if self._path is None:
            return ledger_files.open_memory()
        try:
            connection, moved = ledger_files.open_writer(self._path, now=self._now)
        except (sqlite3.Error, OSError) as fault:
            memory = self._memory()
            self._say(_trouble(self._path, fault))
            return memory
        if moved is not None:
            self._say(_begun_anew(self._path, moved))
        return connection

    def _open_reader(self) -> sqlite3.Connection:
        if self._path is None or not self.state.is_durable:
            return self._writer
        return ledger_files.open_reader(self._path)

    def _to_memory(self, fault: Exception) -> None:
        assert self._path is not None
        memory = self._memory()
        with self._reading:
            for old in (self._reader, self._writer):
                old.close()
            self._writer = self._reader = memory
            self.state = _trouble(self._path, fault)
        self._say(self.state)

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
        if self._path is None or self.state.is_durable:
            return
        try:
            disk, moved = ledger_files.open_writer(self._path, now=self._now)
        except (sqlite3.Error, OSError):
            return
        try:
            with self._reading:
                last = 0 if moved else self._last_on_disk
                ledger_fallback.copy_to_disk(self._writer, disk, last, was_copied=self._was_copied)
            reader = ledger_files.open_reader(self._path)
        except (sqlite3.Error, OSError):
            disk.close()
            return
        with self._reading:
            self._writer.close()
            self._writer, self._reader = disk, reader
        self._say(LedgerState(is_durable=True) if moved is None else _begun_anew(self._path, moved))

    def _say(self, state: LedgerState) -> None:
        self.state = state
        self._tell(lambda: self._on_state(state))


def _run_in(connection: sqlite3.Connection, batch: Sequence[Entry]) -> list[Any]:
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


def _is_disk_fault(fault: Exception) -> bool:
    code = getattr(fault, "sqlite_errorcode", None)
    return isinstance(fault, OSError) or (code is not None and code & 0xFF in _DISK_FAULTS)


def _is_damage(fault: sqlite3.Error) -> bool:
    return (getattr(fault, "sqlite_errorcode", None) or 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _failing(fault: sqlite3.Error) -> Job:
    """A job that meets what a reader met, so that the writer leaves the file."""

    def job(_: sqlite3.Connection) -> None:
        raise fault

    return job


def _trouble(path: Path, fault: Exception) -> LedgerState:
    return LedgerState(
        is_durable=False,
        because=f"{path}: {fault}; changes are kept in memory only",
        do=f"Make {path.parent} writable with free space; the ledger returns to it by itself, with what is in memory.",
    )


def _begun_anew(path: Path, moved: MovedAside) -> LedgerState:
    return LedgerState(
        is_durable=True,
        moved_aside=moved,
        because=f"{path}: {moved.reason} ({moved.detail}); moved to {moved.path} and begun anew",
        do="Look at the moved file if its history matters, then delete it.",
    )
