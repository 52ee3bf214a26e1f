"""What the ledger's writer does inside one transaction: changes appended, projections moved, notifications queued.

Whether something is new is decided by what the ledger holds, not by what the engine remembers: after a restart the
engine reads the current run again and reports its findings anew, and they must not open twice.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ..model.finding import Change, Finding, FindingChanged, RunChanged
from ..model.words import Phase, State
from . import decode, encode
from .state import OPEN

UNFOLDED: Final = '"explained_by":null'  # as it stands in a document; in quoted text the quotes are escaped
_OVER: Final = frozenset({Phase.STOPPED.value, Phase.CRASHED.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One change as it stands in the ledger; `doc` is its JSON text, `was` is None for something new, and
    equals `state` where only the evidence grew."""

    id: int
    kind: str  # finding, run, acknowledgement, silence
    at: str | None  # event time
    server: str
    key: str
    was: str | None
    state: str
    doc: str
    was_unfolded: bool = False  # a firing finding whose cause does not speak for it any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    finding: str
    author: str
    note: str
    at_s: float
    until_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Nobody is told of findings that match all of `matchers` between two moments."""

    id: str
    matchers: Mapping[str, str]  # any of server, run, signature, topic, severity, gpu, finding
    author: str
    reason: str
    starts_s: float
    ends_s: float


def append(
    connection: sqlite3.Connection,
    *,
    now_s: float,
    kind: str,
    at: str | None,
    server: str,
    key: str,
    was: str | None,
    state: str,
    doc: str,
) -> Recorded:
    cursor = connection.execute(
        "INSERT INTO changes (recorded, at, kind, server, key, was, state, doc) VALUES (?,?,?,?,?,?,?,?)",
        (now_s, at, kind, server, key, was, state, doc),
    )
    assert cursor.lastrowid is not None
    return Recorded(id=cursor.lastrowid, kind=kind, at=at, server=server, key=key, was=was, state=state, doc=doc)


class Horizon:
    """How far each server's events were recorded before this start. Until a server passes it, what is older than the
    ledger's own entry is the past being told again by an engine that reads the current run anew, and is left out."""

    def __init__(self, known_at_s: Mapping[str, float]) -> None:
        self._known_at_s = dict(known_at_s)

    def is_retold(self, server: str, at_s: float | None, entry_at_s: float | None, *, is_over: bool) -> bool:
        """`entry_at_s` is the event time of the entry's newest change; `is_over`: it was closed then."""
        horizon_s = self._known_at_s.get(server)
        if horizon_s is None:
            return False
        if at_s is not None and at_s > horizon_s:
            del self._known_at_s[server]
            return False
        if at_s is None or entry_at_s is None:
            return is_over
        return at_s < entry_at_s or (is_over and at_s == entry_at_s)


def horizon(connection: sqlite3.Connection) -> Horizon:
    rows = connection.execute(
        "SELECT server, max(at) FROM (SELECT server, at FROM findings UNION ALL SELECT server, at FROM runs)"
        " WHERE at IS NOT NULL GROUP BY server"
    )
    return Horizon({str(server): float(at_s) for server, at_s in rows})


def first_start(connection: sqlite3.Connection, now_s: float) -> float:
    """When a daemon first wrote this ledger; from now on, now."""
    connection.execute("INSERT INTO meta (name, value) VALUES ('first_started', ?) ON CONFLICT DO NOTHING", (repr(now_s),))
    return float(connection.execute("SELECT value FROM meta WHERE name = 'first_started'").fetchone()[0])


def write_changes(
    connection: sqlite3.Connection,
    changes: Sequence[Change],
    positions: Mapping[str, Any],
    *,
    now_s: float,
    past: Horizon,
    channels: Sequence[str],
    wait_s: float,
) -> tuple[Recorded, ...]:
    """Append what is news, and move the positions of the sources with it."""
    recorded: list[Recorded] = []
    for change in changes:
        if isinstance(change, FindingChanged):
            entry = write_finding(connection, change, now_s=now_s, past=past)
            if entry is not None and not change.finding.historic:
                _queue(connection, entry, channels, now_s=now_s, wait_s=wait_s)
        else:
            entry = write_run(connection, change, now_s=now_s, past=past)
        if entry is not None:
            recorded.append(entry)
    connection.executemany(
        "INSERT INTO positions (source, doc) VALUES (?, ?) ON CONFLICT (source) DO UPDATE SET doc = excluded.doc",
        [(name, json.dumps(position)) for name, position in positions.items()],
    )
    return tuple(recorded)


def write_finding(connection: sqlite3.Connection, change: FindingChanged, *, now_s: float, past: Horizon) -> Recorded | None:
    """Returns None if the ledger knew it already."""
    finding = change.finding
    row = connection.execute("SELECT state, doc, at, historic FROM findings WHERE id = ?", (finding.id,)).fetchone()
    was = None if row is None else str(row[0])
    if row is not None:
        if past.is_retold(finding.server, change.at_s, row[2], is_over=State(row[0]) not in OPEN):
            return None
        if change.was is None and State(row[0]) in OPEN and finding.state in OPEN:
            finding = _continued(finding, decode.finding(json.loads(row[1])))
    doc = encode.dumps(encode.finding(finding))
    if row is not None and row[1] == doc:
        return None
    entry = append(
        connection,
        now_s=now_s,
        kind="finding",
        at=encode.time(change.at_s),
        server=finding.server,
        key=finding.id,
        was=was,
        state=finding.state.value,
        doc=doc,
    )
    historic = finding.historic if row is None else bool(row[3]) and finding.historic
    connection.execute(
        "INSERT INTO findings (id, opened_id, change_id, server, run, signature, topic, severity, state, first_seen,"
        " last_seen, at, gpus, closed, historic, doc) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
        " ON CONFLICT (id) DO UPDATE SET change_id=excluded.change_id, severity=excluded.severity,"
        " topic=excluded.topic, state=excluded.state, first_seen=excluded.first_seen, last_seen=excluded.last_seen,"
        " at=excluded.at, gpus=excluded.gpus, closed=excluded.closed,"
        " historic=excluded.historic, doc=excluded.doc",
        (
            finding.id,
            entry.id,
            entry.id,
            finding.server,
            finding.run,
            finding.signature,
            finding.topic,
            finding.severity.value,
            finding.state.value,
            encode.time(finding.first_seen_s),
            finding.last_seen_s,
            change.at_s,
            "," + "".join(f"{gpu}," for gpu in finding.gpus),
            None if finding.state in OPEN else now_s,
            historic,
            doc,
        ),
    )
    if finding.state not in OPEN:  # an acknowledgement ends with what it acknowledged
        connection.execute("DELETE FROM acknowledgements WHERE finding = ?", (finding.id,))
    was_folded = row is not None and UNFOLDED not in row[1]
    return replace(entry, was_unfolded=was_folded and finding.state is State.FIRING and finding.explained_by is None)


def _continued(finding: Finding, known: Finding) -> Finding:
    """The same finding met again after a restart: it began when it began."""
    first = min((each for each in (finding.first_seen_s, known.first_seen_s) if each is not None), default=None)
    state = State.FIRING if known.state is State.FIRING else finding.state  # the engine is on its way back to firing
    return replace(
        finding,
        state=state,
        first_seen_s=first,
        count=max(finding.count, known.count),
        reopened=max(finding.reopened, known.reopened),
    )


def write_run(connection: sqlite3.Connection, change: RunChanged, *, now_s: float, past: Horizon) -> Recorded | None:
    """Returns None if the ledger knew it already."""
    run = change.run
    row = connection.execute("SELECT phase, doc, facts, at, flags FROM runs WHERE id = ?", (run.id,)).fetchone()
    if row is not None and past.is_retold(run.server, change.at_s, row[3], is_over=row[0] in _OVER):
        return None
    doc, facts, flags = encode.dumps(encode.run(run)), encode.dumps(encode.facts(run)), encode.dumps(encode.flags(run.flags))
    if row is not None and run.flags is None:
        flags = str(row[4])  # a daemon that began anew has not judged them again yet
    if row is not None and (row[1], row[2], row[4]) == (doc, facts, flags):
        return None
    entry = append(
        connection,
        now_s=now_s,
        kind="run",
        at=encode.time(change.at_s),
        server=run.server,
        key=run.id,
        was=None if row is None else str(row[0]),
        state=run.phase.value,
        doc=doc,
    )
    connection.execute(
        "INSERT INTO runs (id, opened_id, change_id, server, phase, at, ended, doc, facts, flags) VALUES (?,?,?,?,?,?,?,?,?,?)"
        " ON CONFLICT (id) DO UPDATE SET change_id=excluded.change_id, phase=excluded.phase, at=excluded.at,"
        " ended=excluded.ended, doc=excluded.doc, facts=excluded.facts, flags=excluded.flags",
        (run.id, entry.id, entry.id, run.server, run.phase.value, change.at_s, run.ended_at_s, doc, facts, flags),
    )
    return entry


def _queue(connection: sqlite3.Connection, entry: Recorded, channels: Sequence[str], *, now_s: float, wait_s: float) -> None:
    """One waiting notification for each channel and finding: it always tells the newest state, so a flapping finding
    cannot fill the queue."""
    if entry.state == State.PENDING.value or (entry.was == entry.state and not entry.was_unfolded):
        return
    connection.executemany(
        "INSERT INTO outbox (channel, key, change_id, queued, due) VALUES (?,?,?,?,?)"
        " ON CONFLICT (channel, key) DO UPDATE SET change_id = excluded.change_id",
        [(channel, entry.key, entry.id, now_s, now_s + wait_s) for channel in channels],
    )


def write_acknowledgement(connection: sqlite3.Connection, word: Acknowledgement, *, now_s: float) -> Recorded | None:
    """Returns None if there is no such finding, or it is over."""
    row = connection.execute("SELECT server, state FROM findings WHERE id = ?", (word.finding,)).fetchone()
    if row is None or State(row[1]) not in OPEN:
        return None
    connection.execute(
        "INSERT OR REPLACE INTO acknowledgements (finding, author, note, at, until) VALUES (?,?,?,?,?)",
        (word.finding, word.author, word.note, word.at_s, word.until_s),
    )
    doc = {"finding": word.finding, **acknowledgement_document(word)}
    return append(
        connection,
        now_s=now_s,
        kind="acknowledgement",
        at=encode.time(word.at_s),
        server=row[0],
        key=word.finding,
        was=None,
        state="acknowledged",
        doc=encode.dumps(doc),
    )


def remove_acknowledgement(connection: sqlite3.Connection, finding: str, author: str, *, now_s: float) -> Recorded | None:
    """Returns None if there was none."""
    if connection.execute("DELETE FROM acknowledgements WHERE finding = ?", (finding,)).rowcount == 0:
        return None
    row = connection.execute("SELECT server FROM findings WHERE id = ?", (finding,)).fetchone()
    return append(
        connection,
        now_s=now_s,
        kind="acknowledgement",
        at=encode.time(now_s),
        server=row[0] if row else "",
        key=finding,
        was="acknowledged",
        state="withdrawn",
        doc=encode.dumps({"finding": finding, "by": author}),
    )


def write_silence(connection: sqlite3.Connection, silence: Silence, *, now_s: float) -> Recorded:
    entry = append(
        connection,
        now_s=now_s,
        kind="silence",
        at=encode.time(now_s),
        server=silence.matchers.get("server", ""),
        key=silence.id,
        was=None,
        state="set",
        doc=encode.dumps(silence_document(silence, now_s)),
    )
    connection.execute(
        "INSERT INTO silences (id, opened_id, matchers, author, reason, starts, ends) VALUES (?,?,?,?,?,?,?)",
        (
            silence.id,
            entry.id,
            json.dumps(dict(sorted(silence.matchers.items()))),
            silence.author,
            silence.reason,
            silence.starts_s,
            silence.ends_s,
        ),
    )
    return entry


def end_silence(connection: sqlite3.Connection, silence: str, author: str, *, now_s: float) -> Recorded | None:
    """End it now, keeping it on record. Returns None if there is none that has not ended."""
    done = connection.execute(
        "UPDATE silences SET ends = ?, starts = min(starts, ?) WHERE id = ? AND ends > ?",
        (now_s, now_s, silence, now_s),
    )
    if done.rowcount == 0:
        return None
    return append(
        connection,
        now_s=now_s,
        kind="silence",
        at=encode.time(now_s),
        server="",
        key=silence,
        was="set",
        state="ended",
        doc=encode.dumps({"id": silence, "by": author}),
    )


def acknowledgement_document(word: Acknowledgement) -> encode.Document:
    return {"by": word.author, "note": word.note, "at": encode.time(word.at_s), "until": encode.time(word.until_s)}


def silence_document(silence: Silence, now_s: float) -> encode.Document:
    state = "pending" if now_s < silence.starts_s else "active" if now_s < silence.ends_s else "expired"
    return {
        "id": silence.id,
        "state": state,
        "matchers": dict(sorted(silence.matchers.items())),
        "by": silence.author,
        "reason": silence.reason,
        "starts_at": encode.time(silence.starts_s),
        "ends_at": encode.time(silence.ends_s),
    }
