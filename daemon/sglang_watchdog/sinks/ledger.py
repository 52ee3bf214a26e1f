"""The ledger: every change of every finding and run, and how far each source was read, in one SQLite file.

One thread writes. Changes and the positions of the sources they came from are committed together, so that after any
crash what was recorded and what will be read again fit without a hole and without a repetition. When the disk cannot be
written the ledger goes on in memory, says so, and returns to the disk by itself.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ..model.finding import Change, Finding, FindingChanged
from ..model.words import State
from . import decode, ledger_fallback, ledger_reads, ledger_retention, ledger_writes
from .ledger_reads import FindingFilter, FindingRow, Page
from .ledger_retention import Retention
from .ledger_thread import LedgerClosed, LedgerState, Writer
from .ledger_writes import Acknowledgement, Recorded, Silence

__all__ = ["Ledger", "LedgerClosed", "LedgerState", "Retention"]

T = TypeVar("T")


class Ledger:
    """`path` None keeps everything in memory for good (tests, `--state-dir none`).

    `on_state` is called from the writer's thread when durability changes, `on_committed` after each transaction with
    what it recorded. `channels` name the notification channels that get an entry in the outbox for each transition.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        retention: Retention = Retention(),  # noqa: B008 - frozen
        channels: Sequence[str] = (),
        notify_wait_s: float = 5.0,
        now: Callable[[], float] = time.time,
        retry_s: float = 15.0,
        on_state: Callable[[LedgerState], None] = lambda _: None,
        on_committed: Callable[[Sequence[Recorded]], None] = lambda _: None,
    ) -> None:
        self._retention, self._channels = retention, tuple(channels)
        self._notify_wait_s, self._now = notify_wait_s, now
        self._thread = Writer(path, now=now, retry_s=retry_s, maintain=self.maintain, on_state=on_state, on_committed=on_committed)
        self._past = self._thread.read(ledger_writes.horizon)
        self._thread.start()
        self._first_started_s = self._thread.submit(lambda connection: ledger_writes.first_start(connection, now())).result()

    # --- what the runtime calls ---------------------------------------------------------------------------------

    @property
    def state(self) -> LedgerState:
        return self._thread.state

    @property
    def first_started_s(self) -> float:
        """When a daemon first wrote this ledger: runs that ended before are history."""
        return self._first_started_s

    @property
    def backlog(self) -> int:
        """Jobs not yet committed; the runtime stops reading logs while it is long."""
        return self._thread.backlog

    def commit(self, changes: Iterable[Change], positions: Mapping[str, Any] | None = None) -> "Future[tuple[Recorded, ...]]":
        """Record changes and positions in one transaction; the future ends when they are durable, with what was news.
        A position is any JSON value, by the name of its source."""
        told, where = tuple(changes), dict(positions or {})
        return self._thread.submit(
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
            found = [(decode.finding(json.loads(doc), historic=bool(historic)), State(state)) for doc, historic, state in rows]
            gone = [FindingChanged(at_s, replace(finding, state=State.EXPIRED), was) for finding, was in found if finding.id not in kept]
            return ledger_writes.write_changes(
                connection,
                gone,
                {},
                now_s=self._now(),
                past=ledger_writes.Horizon({}),
                channels=self._channels,
                wait_s=self._notify_wait_s,
            )

        return self._thread.submit(job)

    def acknowledge(self, word: Acknowledgement) -> "Future[Recorded | None]":
        """None: there is no such open finding."""
        return self._thread.submit(lambda connection: ledger_writes.write_acknowledgement(connection, word, now_s=self._now()))

    def withdraw(self, finding: str, author: str) -> "Future[Recorded | None]":
        """Take an acknowledgement back. None: there was none."""
        return self._thread.submit(lambda connection: ledger_writes.remove_acknowledgement(connection, finding, author, now_s=self._now()))

    def silence(self, silence: Silence) -> "Future[Recorded]":
        return self._thread.submit(lambda connection: ledger_writes.write_silence(connection, silence, now_s=self._now()))

    def end_silence(self, silence: str, author: str) -> "Future[Recorded | None]":
        """None: there is none that has not ended."""
        return self._thread.submit(lambda connection: ledger_writes.end_silence(connection, silence, author, now_s=self._now()))

    def write(self, job: Callable[[sqlite3.Connection], T]) -> "Future[T]":
        """Run `job` in the writer's next transaction."""
        return self._thread.submit(job)

    def change(self, *, retention: Retention, channels: Sequence[str]) -> None:
        """From now on keep so much, and fill the outboxes of these channels."""
        self._retention, self._channels = retention, tuple(channels)

    def close(self) -> None:
        """Commit what was handed in, then close. Safe to call twice."""
        self._thread.close()

    def maintain(self, connection: sqlite3.Connection) -> None:
        """Retention, as the writer does four times a minute."""
        ledger_retention.forget(connection, self._retention, now_s=self._now())
        if not self.state.is_durable:
            ledger_fallback.bound(connection)
        connection.execute("PRAGMA incremental_vacuum").fetchall()

    # --- questions -----------------------------------------------------------------------------------------------

    def read(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """Ask the ledger from any thread; sees committed data only."""
        return self._thread.read(question)

    def findings(
        self,
        wanted: FindingFilter = FindingFilter(),  # noqa: B008 - frozen
        *,
        limit: int = 100,
        cursor: int | None = None,
    ) -> Page[FindingRow]:
        return self.read(lambda connection: ledger_reads.findings(connection, wanted, now_s=self._now(), limit=limit, cursor=cursor))

    def finding(self, id: str) -> FindingRow | None:
        return next(iter(self.findings(FindingFilter(id=(id,)), limit=1).items), None)

    def has_finding(self, name: str, value: str) -> bool:
        """Whether one is kept whose `server`, `topic` or `signature` is this; its signature may be gone from the library."""
        found = {"server": FindingFilter(server=(value,)), "topic": FindingFilter(topic=(value,)), "signature": FindingFilter(signature=(value,))}
        return name in found and bool(self.findings(found[name], limit=1).items)

    def open_findings(self, server: str) -> tuple[Finding, ...]:
        """The findings of a server that were pending or firing when they were last heard of."""
        wanted = FindingFilter(server=(server,), state=(State.PENDING.value, State.FIRING.value))
        return tuple(decode.finding(json.loads(row.doc), historic=row.is_historic) for row in self.findings(wanted, limit=100_000).items)

    def runs(self, *, server: tuple[str, ...] = (), phase: tuple[str, ...] = (), limit: int = 100, cursor: int | None = None) -> Page[str]:
        return self.read(lambda connection: ledger_reads.runs(connection, server=server, phase=phase, limit=limit, cursor=cursor))

    def run(self, id: str) -> tuple[str, str] | None:
        """The run and its facts as JSON texts."""
        return self.read(lambda connection: ledger_reads.run(connection, id))

    def flags(self, id: str) -> str | None:
        """The table of a run's launch flags as JSON text; None for an unknown run."""
        return self.read(lambda connection: ledger_reads.flags(connection, id))

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
