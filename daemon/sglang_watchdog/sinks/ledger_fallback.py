"""From disk to memory when the disk cannot be written, and back when it can again.

In memory the daemon goes on recording, bounded, with the same sequence of change ids. The positions on disk stay where
they were, so that a restart before the disk is back reads again from there: the log itself is the buffer.
"""

import sqlite3
from typing import Any, Final

from .ledger_schema import SMALL_TABLES

MEMORY_CHANGES: Final = 10_000  # kept while the disk is away
_MEMORY_FINDINGS: Final = 2_000
_MEMORY_RUNS: Final = 200


def copy_to_memory(disk: sqlite3.Connection, memory: sqlite3.Connection) -> int:
    """Fill an empty memory ledger with what the daemon needs to go on. Returns the id of the last change on disk."""
    for table in SMALL_TABLES:
        _insert(memory, table, disk.execute(f"SELECT * FROM {table}").fetchall())  # noqa: S608 - our own table names
    _insert(
        memory,
        "findings",
        disk.execute(
            "SELECT * FROM findings ORDER BY state IN ('firing', 'pending') DESC, opened_id DESC LIMIT ?",
            (_MEMORY_FINDINGS,),
        ).fetchall(),
    )
    _insert(memory, "runs", disk.execute("SELECT * FROM runs ORDER BY opened_id DESC LIMIT ?", (_MEMORY_RUNS,)).fetchall())
    row = disk.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
    last = 0 if row is None else int(row[0])
    continue_after(memory, last)
    return last


def continue_after(memory: sqlite3.Connection, last: int) -> None:
    """Let the next change take the id after `last`."""
    memory.execute("DELETE FROM sqlite_sequence WHERE name = 'changes'")
    memory.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('changes', ?)", (last,))


def copy_to_disk(memory: sqlite3.Connection, disk: sqlite3.Connection, last: int, *, was_copied: bool) -> int:
    """Write everything newer than change `last` in one transaction. Returns how many changes that were. `was_copied`:
    the memory began as a copy of this disk, so that what it lacks was deleted meanwhile; else it only adds.

    Raises:
        sqlite3.Error: the disk still cannot be written; nothing was.
    """
    changes = memory.execute("SELECT * FROM changes WHERE id > ?", (last,)).fetchall()
    disk.execute("BEGIN IMMEDIATE")
    try:
        _insert(disk, "changes", changes)
        continue_after(
            disk,
            int(memory.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'changes'").fetchone()[0]),
        )
        for table in ("findings", "runs"):
            _insert(disk, table, memory.execute(f"SELECT * FROM {table} WHERE change_id > ?", (last,)).fetchall())  # noqa: S608
        for table in SMALL_TABLES:
            if was_copied:
                disk.execute(f"DELETE FROM {table}")  # noqa: S608
            _insert(disk, table, memory.execute(f"SELECT * FROM {table}").fetchall())  # noqa: S608
        disk.execute("COMMIT")
    except BaseException:
        if disk.in_transaction:
            disk.rollback()
        raise
    return len(changes)


def bound(memory: sqlite3.Connection) -> None:
    """Forget the oldest changes beyond what memory is meant to hold."""
    memory.execute("DELETE FROM changes WHERE id <= (SELECT max(id) FROM changes) - ?", (MEMORY_CHANGES,))


def _insert(connection: sqlite3.Connection, table: str, rows: list[tuple[Any, ...]]) -> None:
    if rows:
        marks = ",".join("?" * len(rows[0]))
        connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", rows)  # noqa: S608
