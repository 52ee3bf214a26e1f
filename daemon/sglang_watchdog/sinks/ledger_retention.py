"""Keeps the ledger within its age and size. What is open, and the newest run of each server, is never forgotten."""

import sqlite3
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    age_s: float = 30 * 86_400.0
    size_bytes: int = 256 * 1024 * 1024
    dead_letters: int = 1_000
    silences: int = 1_000


def used_bytes(connection: sqlite3.Connection) -> int:
    """Bytes that hold something; free pages are not counted."""
    pages, free, size = (int(connection.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "freelist_count", "page_size"))
    return (pages - free) * size


def forget(connection: sqlite3.Connection, retention: Retention, *, now_s: float) -> int:
    """Delete what is too old, then the oldest tenths until the size fits. Returns the number of changes deleted."""
    deleted = _forget_before(connection, now_s - retention.age_s)
    connection.execute("DELETE FROM dead_letters WHERE id <= (SELECT max(id) FROM dead_letters) - ?", (retention.dead_letters,))
    connection.execute(
        "DELETE FROM silences WHERE ends < ? AND id NOT IN (SELECT id FROM silences ORDER BY opened_id DESC LIMIT ?)",
        (now_s, retention.silences),
    )
    while used_bytes(connection) > retention.size_bytes:
        cut = connection.execute("SELECT recorded FROM changes ORDER BY id LIMIT 1 OFFSET (SELECT count(*) / 10 FROM changes)").fetchone()
        step = 0 if cut is None else _forget_oldest_tenth(connection, float(cut[0]))
        if step == 0:  # only what is open is left
            break
        deleted += step
    return deleted


def _forget_oldest_tenth(connection: sqlite3.Connection, recorded_s: float) -> int:
    deleted = connection.execute("DELETE FROM changes WHERE id <= (SELECT min(id) FROM changes) + (SELECT count(*) / 10 FROM changes)").rowcount
    _forget_closed(connection, recorded_s)
    return deleted


def _forget_before(connection: sqlite3.Connection, recorded_s: float) -> int:
    deleted = connection.execute("DELETE FROM changes WHERE recorded < ?", (recorded_s,)).rowcount
    _forget_closed(connection, recorded_s)
    return deleted


def _forget_closed(connection: sqlite3.Connection, recorded_s: float) -> None:
    connection.execute("DELETE FROM findings WHERE closed < ?", (recorded_s,))
    connection.execute(
        "DELETE FROM runs WHERE opened_id NOT IN (SELECT max(opened_id) FROM runs GROUP BY server)"
        " AND NOT EXISTS (SELECT 1 FROM findings WHERE findings.run = runs.id)"
        " AND NOT EXISTS (SELECT 1 FROM changes WHERE changes.id = runs.change_id)"
    )
    connection.execute("DELETE FROM delivered WHERE key NOT IN (SELECT id FROM findings)")
    connection.execute("DELETE FROM acknowledgements WHERE finding NOT IN (SELECT id FROM findings)")
