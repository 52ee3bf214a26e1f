"""The ledger's tables, and the steps that bring a file of an earlier version up to date."""

import sqlite3
from collections.abc import Sequence
from typing import Final

APPLICATION_ID: Final = 0x53475744  # "SGWD", so that a file of another program is recognised

# One script for each schema version, run in order and never edited after its release.
MIGRATIONS: Final[Sequence[str]] = (
    """
    CREATE TABLE changes (
        id INTEGER PRIMARY KEY AUTOINCREMENT,      -- never used twice, even after retention
        recorded REAL NOT NULL,                    -- wall clock, for retention only
        at TEXT,                                   -- event time
        kind TEXT NOT NULL,                        -- finding, run, acknowledgement, silence
        server TEXT NOT NULL, key TEXT NOT NULL,
        was TEXT, state TEXT NOT NULL,
        doc TEXT NOT NULL);
    CREATE INDEX changes_recorded ON changes (recorded);
    CREATE TABLE findings (
        id TEXT PRIMARY KEY, opened_id INTEGER NOT NULL UNIQUE, change_id INTEGER NOT NULL,
        server TEXT NOT NULL, run TEXT, signature TEXT NOT NULL, topic TEXT NOT NULL, severity TEXT NOT NULL,
        state TEXT NOT NULL, first_seen TEXT, last_seen REAL,
        at REAL,                                   -- event time of the newest change
        gpus TEXT NOT NULL,                        -- ",0,1,"
        closed REAL,                               -- wall clock, for retention only
        historic INTEGER NOT NULL, doc TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX findings_state ON findings (state, opened_id);
    CREATE INDEX findings_run ON findings (run);
    CREATE TABLE runs (
        id TEXT PRIMARY KEY, opened_id INTEGER NOT NULL UNIQUE, change_id INTEGER NOT NULL, server TEXT NOT NULL,
        phase TEXT NOT NULL, at REAL, ended REAL, doc TEXT NOT NULL, facts TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE positions (source TEXT PRIMARY KEY, doc TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE acknowledgements (
        finding TEXT PRIMARY KEY, author TEXT NOT NULL, note TEXT NOT NULL, at REAL NOT NULL, until REAL) WITHOUT ROWID;
    CREATE TABLE silences (
        id TEXT PRIMARY KEY, opened_id INTEGER NOT NULL UNIQUE, matchers TEXT NOT NULL, author TEXT NOT NULL,
        reason TEXT NOT NULL, starts REAL NOT NULL, ends REAL NOT NULL) WITHOUT ROWID;
    CREATE TABLE outbox (
        channel TEXT NOT NULL, key TEXT NOT NULL, change_id INTEGER NOT NULL, queued REAL NOT NULL, due REAL NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT '', PRIMARY KEY (channel, key)) WITHOUT ROWID;
    CREATE INDEX outbox_due ON outbox (channel, due);
    CREATE TABLE delivered (
        channel TEXT NOT NULL, key TEXT NOT NULL, state TEXT NOT NULL, at REAL NOT NULL,
        PRIMARY KEY (channel, key)) WITHOUT ROWID;
    CREATE TABLE dead_letters (
        id INTEGER PRIMARY KEY AUTOINCREMENT, channel TEXT NOT NULL, key TEXT NOT NULL, at REAL NOT NULL,
        attempts INTEGER NOT NULL, error TEXT NOT NULL, doc TEXT NOT NULL);
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    """,
    """
    ALTER TABLE runs ADD COLUMN flags TEXT NOT NULL DEFAULT 'null';  -- the table of its launch flags
    """,
)

# Copied whole between disk and memory when the disk fails and when it is back.
SMALL_TABLES: Final = ("positions", "acknowledgements", "silences", "outbox", "delivered", "dead_letters", "meta")


def version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Bring the file to the newest version, each step in a transaction of its own; an interrupted step leaves no
    trace."""
    for step in range(version(connection), len(migrations)):
        marks = f"PRAGMA user_version={step + 1};PRAGMA application_id={APPLICATION_ID}"
        script = f"BEGIN IMMEDIATE;{migrations[step]};{marks};COMMIT;"
        try:
            connection.executescript(script)
        except sqlite3.Error:
            if connection.in_transaction:
                connection.rollback()
            raise


def prepare(connection: sqlite3.Connection) -> None:
    """Settings of every connection. NORMAL in WAL: a crash of the machine may lose the newest transactions, whole and
    in order, never damages the file; a crash of the daemon loses nothing. Positions are in the same transaction, so
    what is lost is read again."""
    connection.execute("PRAGMA busy_timeout=5000")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA temp_store=MEMORY")
    connection.execute("PRAGMA journal_size_limit=16777216")
