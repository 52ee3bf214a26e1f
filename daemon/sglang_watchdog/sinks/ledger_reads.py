"""Questions to the ledger. Documents come back as the JSON text that was written, so that a list is joined, not encoded
again."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from . import encode
from .ledger_writes import UNFOLDED, Acknowledgement, Recorded, Silence, acknowledgement_document

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingFilter:
    """Empty tuples and None ask for everything; several values of one field mean any of them."""

    server: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    severity: tuple[str, ...] = ()
    topic: tuple[str, ...] = ()
    signature: tuple[str, ...] = ()
    run: tuple[str, ...] = ()
    id: tuple[str, ...] = ()
    since_s: float | None = None  # last seen at or after


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: tuple[T, ...]
    next_cursor: int | None  # give it back to go on; None at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRow:
    id: str
    server: str
    run: str | None
    signature: str
    topic: str
    severity: str
    state: str
    gpus: str  # ",0,1,"
    is_historic: bool
    doc: str
    acknowledgement: Acknowledgement | None = None
    silence: Silence | None = None

    @property
    def is_folded(self) -> bool:
        """Its cause is known and speaks for it."""
        return UNFOLDED not in self.doc

    @property
    def display_state(self) -> str:
        """One word for people: what they did to it comes before what it is, as long as it is firing."""
        if self.state != "firing":
            return self.state
        if self.silence is not None:
            return "silenced"
        return "acknowledged" if self.acknowledgement is not None else "firing"

    def json(self) -> str:
        """The finding with what people said about it. The written text is kept and extended, not parsed."""
        if self.acknowledgement is None and self.silence is None:  # nearly always; 6 µs saved for each
            return f'{self.doc[:-1]},"acknowledgement":null,"silenced":null,"display_state":"{self.state}"}}'
        word = None if self.acknowledgement is None else acknowledgement_document(self.acknowledgement)
        silence = None if self.silence is None else {"id": self.silence.id, "until": encode.time(self.silence.ends_s)}
        overlay = encode.dumps({"acknowledgement": word, "silenced": silence, "display_state": self.display_state})
        return f"{self.doc[:-1]},{overlay[1:]}"


def findings(connection: sqlite3.Connection, wanted: FindingFilter, *, now_s: float, limit: int, cursor: int | None = None) -> Page[FindingRow]:
    """Newest first by the order in which they were opened, which never changes, so that pages neither repeat nor
    skip."""
    clauses, values = ["opened_id < ?"], [cursor if cursor is not None else 1 << 62]
    bound: list[Any] = list(values)
    for name in ("server", "state", "severity", "topic", "signature", "run", "id"):
        asked: tuple[str, ...] = getattr(wanted, name)
        if asked:
            clauses.append(f"findings.{name} IN ({','.join('?' * len(asked))})")
            bound.extend(asked)
    if wanted.since_s is not None:
        clauses.append("last_seen >= ?")
        bound.append(wanted.since_s)
    rows = connection.execute(  # the text holds only column names and question marks
        "SELECT opened_id, id, server, run, signature, topic, severity, state, gpus, historic, doc, author, note,"  # noqa: S608
        " acknowledgements.at, until"
        " FROM findings LEFT JOIN acknowledgements ON acknowledgements.finding = findings.id"
        f" WHERE {' AND '.join(clauses)} ORDER BY opened_id DESC LIMIT ?",
        [*bound, limit + 1],
    ).fetchall()
    active = [each for each in silences(connection) if each.starts_s <= now_s < each.ends_s]
    page = tuple(_finding_row(row, active, now_s) for row in rows[:limit])
    return Page(page, rows[limit - 1][0] if len(rows) > limit else None)


def _finding_row(row: Sequence[Any], active: Iterable[Silence], now_s: float) -> FindingRow:
    word = None
    if row[11] is not None and (row[14] is None or now_s < row[14]):
        word = Acknowledgement(finding=row[1], author=row[11], note=row[12], at_s=row[13], until_s=row[14])
    bare = FindingRow(
        id=row[1],
        server=row[2],
        run=row[3],
        signature=row[4],
        topic=row[5],
        severity=row[6],
        state=row[7],
        gpus=row[8],
        is_historic=bool(row[9]),
        doc=row[10],
        acknowledgement=word,
    )
    silence = next((each for each in active if silences_it(each, bare)), None)
    if silence is None:
        return bare
    return FindingRow(
        id=bare.id,
        server=bare.server,
        run=bare.run,
        signature=bare.signature,
        topic=bare.topic,
        severity=bare.severity,
        state=bare.state,
        gpus=bare.gpus,
        is_historic=bare.is_historic,
        doc=bare.doc,
        acknowledgement=word,
        silence=silence,
    )


def silences_it(silence: Silence, row: FindingRow) -> bool:
    """Every matcher must be equal; a silence without matchers silences nothing."""
    if not silence.matchers:
        return False
    for name, wanted in silence.matchers.items():
        if name == "gpu":
            if f",{wanted}," not in row.gpus:
                return False
        elif (row.id if name == "finding" else getattr(row, name, None)) != wanted:
            return False
    return True


def runs(
    connection: sqlite3.Connection,
    *,
    server: tuple[str, ...] = (),
    phase: tuple[str, ...] = (),
    limit: int,
    cursor: int | None = None,
) -> Page[str]:
    """JSON texts of runs, newest first."""
    clauses, bound = ["opened_id < ?"], [cursor if cursor is not None else 1 << 62]
    values: list[Any] = list(bound)
    for name, asked in (("server", server), ("phase", phase)):
        if asked:
            clauses.append(f"{name} IN ({','.join('?' * len(asked))})")
            values.extend(asked)
    rows = connection.execute(
        f"SELECT opened_id, doc FROM runs WHERE {' AND '.join(clauses)}"  # noqa: S608 - as above
        " ORDER BY opened_id DESC LIMIT ?",
        [*values, limit + 1],
    ).fetchall()
    return Page(tuple(str(row[1]) for row in rows[:limit]), rows[limit - 1][0] if len(rows) > limit else None)


def run(connection: sqlite3.Connection, id: str) -> tuple[str, str] | None:
    """The run and its facts as JSON texts."""
    row = connection.execute("SELECT doc, facts FROM runs WHERE id = ?", (id,)).fetchone()
    return None if row is None else (str(row[0]), str(row[1]))


def flags(connection: sqlite3.Connection, id: str) -> str | None:
    """The table of a run's launch flags as JSON text, "null" before it was judged; None for an unknown run."""
    row = connection.execute("SELECT flags FROM runs WHERE id = ?", (id,)).fetchone()
    return None if row is None else str(row[0])


def silences(connection: sqlite3.Connection) -> list[Silence]:
    """All on record, newest first."""
    rows = connection.execute("SELECT id, matchers, author, reason, starts, ends FROM silences ORDER BY opened_id DESC")
    return [Silence(id=row[0], matchers=json.loads(row[1]), author=row[2], reason=row[3], starts_s=row[4], ends_s=row[5]) for row in rows]


def changes_since(connection: sqlite3.Connection, after: int, limit: int) -> list[Recorded]:
    rows = connection.execute(
        "SELECT id, kind, at, server, key, was, state, doc FROM changes WHERE id > ? ORDER BY id LIMIT ?",
        (after, limit),
    )
    return [Recorded(id=row[0], kind=row[1], at=row[2], server=row[3], key=row[4], was=row[5], state=row[6], doc=row[7]) for row in rows]


def change_range(connection: sqlite3.Connection) -> tuple[int, int]:
    """The oldest change still kept and the newest ever made; (1, 0) when there was none."""
    newest = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
    oldest = connection.execute("SELECT min(id) FROM changes").fetchone()[0]
    last = 0 if newest is None else int(newest[0])
    return (last + 1 if oldest is None else int(oldest)), last


def positions(connection: sqlite3.Connection) -> dict[str, Any]:
    return {str(name): json.loads(doc) for name, doc in connection.execute("SELECT source, doc FROM positions")}
