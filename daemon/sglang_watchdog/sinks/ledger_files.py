"""Opens the ledger's file, and moves aside what is no ledger of ours or is damaged, so that the daemon always
starts."""

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .ledger_schema import APPLICATION_ID, MIGRATIONS, migrate, prepare, version


@dataclass(frozen=True, slots=True)
class MovedAside:
    """The old file was no good; where it lies now and why."""

    path: Path
    reason: str  # damaged, foreign, newer
    detail: str


class _NotUsable(Exception):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


def open_writer(
    path: Path, *, now: Callable[[], float] = time.time, migrations: Sequence[str] = MIGRATIONS
) -> tuple[sqlite3.Connection, MovedAside | None]:
    """A writing connection to a sound ledger at the newest version.

    Raises:
        sqlite3.OperationalError, OSError: the directory or file cannot be written (no space, no permission, read-only).
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return _open(path, migrations), None
    except _NotUsable as fault:
        moved = MovedAside(_move_aside(path, fault.reason, now()), fault.reason, fault.detail)
    return _open(path, migrations), moved


def open_reader(path: Path) -> sqlite3.Connection:
    """A reading connection. On a read-only file system the side files of WAL cannot be made: then the main file is read
    as it stands.

    Raises:
        sqlite3.Error: it cannot be read.
    """
    failure: sqlite3.Error | None = None
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, check_same_thread=False, isolation_level=None)
        try:
            connection.execute("PRAGMA busy_timeout=5000")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as fault:
            connection.close()
            failure = failure or fault
        else:
            return connection
    assert failure is not None
    raise failure


def open_memory() -> sqlite3.Connection:
    """An empty ledger in memory, for a disk that cannot be written."""
    connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    prepare(connection)
    migrate(connection)
    return connection


def _open(path: Path, migrations: Sequence[str]) -> sqlite3.Connection:
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        prepare(connection)
        _examine(connection, path, len(migrations))
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA journal_mode=WAL")
        migrate(connection, migrations)
    except sqlite3.OperationalError:  # full, locked, read-only: not the file's fault
        connection.close()
        raise
    except sqlite3.DatabaseError as fault:
        connection.close()
        raise _NotUsable("damaged", str(fault)) from fault
    except BaseException:
        connection.close()
        raise
    return connection


def _examine(connection: sqlite3.Connection, path: Path, newest: int) -> None:
    if path.stat().st_size == 0:
        return
    owner = int(connection.execute("PRAGMA application_id").fetchone()[0])
    if owner != APPLICATION_ID:
        raise _NotUsable("foreign", f"it is an SQLite file with application id {owner:#x}, not a ledger of this program")
    if version(connection) > newest:
        raise _NotUsable("newer", f"its schema version {version(connection)} is newer than {newest}, which this release knows")
    first = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    if first != "ok":
        raise _NotUsable("damaged", first)


def _move_aside(path: Path, reason: str, now_s: float) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
    for attempt in range(1000):
        target = path.with_name(f"{path.name}.{reason}-{stamp}" + (f".{attempt}" if attempt else ""))
        if not target.exists():
            break
    path.rename(target)
    for suffix in ("-wal", "-shm"):  # they belong to the old file and would be applied to the new one
        sidecar = path.with_name(path.name + suffix)
        if sidecar.exists():
            sidecar.rename(target.with_name(target.name + suffix))
    return target
