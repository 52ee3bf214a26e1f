"""What waits to be told, in the ledger: read, decided, done, put off, or buried."""

import sqlite3
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ...model.words import State
from .. import ledger_reads
from ..ledger_reads import FindingFilter, FindingRow
from .settings import Pace, Wanted

_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """One entry of the outbox with the finding as it is now."""

    key: str
    change_id: int
    queued_s: float
    attempts: int
    finding: FindingRow | None  # None: past its retention
    told_state: str | None  # what this channel was told last, and when
    told_at_s: float


@dataclass(frozen=True, slots=True)
class Tell:
    state: str


@dataclass(frozen=True, slots=True)
class Drop:
    because: str


@dataclass(frozen=True, slots=True)
class PutOff:
    until_s: float


Decision: TypeAlias = Tell | Drop | PutOff


def decide(waiting: Waiting, wanted: Wanted, pace: Pace, now_s: float) -> Decision:
    """Whether this channel's people hear of it now, later or never."""
    row = waiting.finding
    if row is None:
        return Drop("it is past its retention")
    is_over = row.state in (State.RESOLVED.value, State.EXPIRED.value)
    was_told = waiting.told_state == State.FIRING.value
    why_not = wanted.why_not(row)
    if why_not and not was_told:  # who was told of its beginning is told of its end, whatever they want by now
        return Drop(why_not)
    if is_over and not was_told:
        return Drop("it was over before anybody was told")
    if not is_over and was_told:
        return Drop("it is as it was told")
    if not is_over and row.is_folded:
        return Drop("its cause is told instead")
    if not is_over and row.acknowledgement is not None:
        return Drop("somebody has taken it")
    if row.silence is not None:
        return PutOff(row.silence.ends_s)
    if waiting.told_state is not None and now_s < waiting.told_at_s + pace.repeat_s:
        return PutOff(waiting.told_at_s + pace.repeat_s)
    return Tell(row.state)


def due(connection: sqlite3.Connection, channel: str, now_s: float) -> list[Waiting]:
    rows = connection.execute(
        "SELECT o.key, o.change_id, o.queued, o.attempts, d.state, d.at FROM outbox o"
        " LEFT JOIN delivered d ON d.channel = o.channel AND d.key = o.key"
        " WHERE o.channel = ? AND o.due <= ? ORDER BY o.due LIMIT ?",
        (channel, now_s, _AT_ONCE),
    ).fetchall()
    keys = tuple(str(row[0]) for row in rows)
    found = ledger_reads.findings(connection, FindingFilter(id=keys), now_s=now_s, limit=_AT_ONCE) if keys else None
    findings = {each.id: each for each in found.items} if found is not None else {}
    return [
        Waiting(
            key=row[0],
            change_id=row[1],
            queued_s=row[2],
            attempts=row[3],
            finding=findings.get(row[0]),
            told_state=row[4],
            told_at_s=row[5] or 0.0,
        )
        for row in rows
    ]


def next_due(connection: sqlite3.Connection, channel: str) -> float | None:
    """When the next entry is due, None when none waits."""
    value = connection.execute("SELECT min(due) FROM outbox WHERE channel = ?", (channel,)).fetchone()[0]
    return None if value is None else float(value)


def told(connection: sqlite3.Connection, channel: str, waiting: Waiting, state: str, now_s: float) -> None:
    """It arrived. If the finding moved on meanwhile, its entry stays for the next turn."""
    connection.execute(
        "INSERT INTO delivered (channel, key, state, at) VALUES (?,?,?,?)"
        " ON CONFLICT (channel, key) DO UPDATE SET state = excluded.state, at = excluded.at",
        (channel, waiting.key, state, now_s),
    )
    drop(connection, channel, waiting)
    connection.execute(
        "UPDATE outbox SET attempts = 0, queued = ?, error = '' WHERE channel = ? AND key = ?",
        (now_s, channel, waiting.key),
    )


def drop(connection: sqlite3.Connection, channel: str, waiting: Waiting) -> None:
    connection.execute("DELETE FROM outbox WHERE channel = ? AND key = ? AND change_id = ?", (channel, waiting.key, waiting.change_id))


def put_off(connection: sqlite3.Connection, channel: str, waiting: Waiting, until_s: float) -> None:
    connection.execute("UPDATE outbox SET due = ? WHERE channel = ? AND key = ?", (until_s, channel, waiting.key))


def failed(connection: sqlite3.Connection, channel: str, waiting: Waiting, until_s: float, error: str) -> None:
    connection.execute(
        "UPDATE outbox SET attempts = attempts + 1, due = ?, error = ? WHERE channel = ? AND key = ?",
        (until_s, error, channel, waiting.key),
    )


def bury(connection: sqlite3.Connection, channel: str, waiting: Waiting, error: str, now_s: float) -> None:
    """Give up: keep it with the reason, so that somebody can look and send it by hand."""
    doc = waiting.finding.doc if waiting.finding is not None else "{}"
    connection.execute(
        "INSERT INTO dead_letters (channel, key, at, attempts, error, doc) VALUES (?,?,?,?,?,?)",
        (channel, waiting.key, now_s, waiting.attempts + 1, error, doc),
    )
    connection.execute("DELETE FROM outbox WHERE channel = ? AND key = ?", (channel, waiting.key))


def bound(connection: sqlite3.Connection, channel: str, most: int, now_s: float) -> int:
    """Bury the oldest entries beyond `most`. Returns how many."""
    rows = connection.execute("SELECT key FROM outbox WHERE channel = ? ORDER BY queued DESC LIMIT -1 OFFSET ?", (channel, most)).fetchall()
    for (key,) in rows:
        connection.execute(
            "INSERT INTO dead_letters (channel, key, at, attempts, error, doc)"
            " SELECT o.channel, o.key, ?, o.attempts, 'the queue was full', coalesce(f.doc, '{}')"
            " FROM outbox o LEFT JOIN findings f ON f.id = o.key WHERE o.channel = ? AND o.key = ?",
            (now_s, channel, key),
        )
        connection.execute("DELETE FROM outbox WHERE channel = ? AND key = ?", (channel, key))
    return len(rows)


def counts(connection: sqlite3.Connection, channel: str) -> tuple[int, int]:
    """How many wait and how many were given up."""

    def count(table: str) -> Any:
        return connection.execute(f"SELECT count(*) FROM {table} WHERE channel = ?", (channel,)).fetchone()[0]  # noqa: S608 - our tables

    return int(count("outbox")), int(count("dead_letters"))


def close_others(connection: sqlite3.Connection, channels: tuple[str, ...], now_s: float) -> None:
    """Bury what waits for channels that are no longer configured."""
    marks = ",".join("?" * len(channels))
    connection.execute(
        "INSERT INTO dead_letters (channel, key, at, attempts, error, doc)"  # noqa: S608 - question marks only
        " SELECT o.channel, o.key, ?, o.attempts, 'the channel is no longer configured', coalesce(f.doc, '{}')"
        f" FROM outbox o LEFT JOIN findings f ON f.id = o.key WHERE o.channel NOT IN ({marks})",
        (now_s, *channels),
    )
    connection.execute(f"DELETE FROM outbox WHERE channel NOT IN ({marks})", channels)  # noqa: S608
