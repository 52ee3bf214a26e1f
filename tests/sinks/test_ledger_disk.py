"""A disk that is full, read-only or gone: the ledger goes on in memory, says so, and comes back with everything."""

import json
import os
import sqlite3
import subprocess
import threading
from pathlib import Path

import pytest

from sglang_watchdog.sinks.ledger import Ledger, LedgerState
from sinks import material


class Said:
    """What the ledger says about itself, and a way to wait for the next word."""

    def __init__(self) -> None:
        self.states: list[LedgerState] = []
        self._news = threading.Condition()

    def __call__(self, state: LedgerState) -> None:
        with self._news:
            self.states.append(state)
            self._news.notify_all()

    def wait_until(self, *, is_durable: bool) -> LedgerState:
        with self._news:
            assert self._news.wait_for(lambda: bool(self.states) and self.states[-1].is_durable is is_durable, 20)
            return self.states[-1]


def fill(disk: Path) -> Path:
    """Leave no byte free on it."""
    filler = disk / "filler"
    handle = os.open(filler, os.O_CREAT | os.O_WRONLY)
    try:
        with pytest.raises(OSError, match="No space"):  # noqa: PT012 - the loop ends by it
            while True:
                os.write(handle, bytes(4096))
    finally:
        os.close(handle)
    return filler


def changes(ledger: Ledger) -> list[int]:
    return [change.id for change in ledger.changes_since(0, 100_000)]


def test_a_full_disk_turns_the_ledger_to_memory_and_free_space_brings_it_back(small_disk):
    said = Said()
    ledger = Ledger(small_disk / "state" / "ledger.db", on_state=said, retry_s=0.02)
    ledger.commit([material.moved()], {"server.log": 100}).result(5)
    filler = fill(small_disk)

    recorded = [ledger.commit([material.fired(f"f{n}", explanation="x" * 3000)], {"server.log": 200 + n}).result(10) for n in range(60)]
    told = said.wait_until(is_durable=False)

    assert "full" in told.because
    assert "free space" in told.do
    assert [entry[0].id for entry in recorded] == list(range(2, 62))
    assert len(ledger.findings(limit=1000).items) == 60
    assert ledger.positions() == {"server.log": 259}

    filler.unlink()
    said.wait_until(is_durable=True)
    ledger.commit([material.resolved("f59")], {"server.log": 300}).result(5)
    ledger.close()

    on_disk = Ledger(small_disk / "state" / "ledger.db")
    assert changes(on_disk) == list(range(1, 63))
    assert on_disk.finding("f59").state == "resolved"
    assert on_disk.positions() == {"server.log": 300}
    on_disk.close()


def test_a_crash_while_the_disk_is_full_reads_again_from_what_was_durable(small_disk):
    """Positions on disk stay where changes on disk end, so the log itself is the buffer."""
    said = Said()
    ledger = Ledger(small_disk / "ledger.db", on_state=said, retry_s=3600)
    ledger.commit([material.fired("before")], {"server.log": 100}).result(5)
    filler = fill(small_disk)
    for n in range(60):
        ledger.commit([material.fired(f"f{n}", explanation="x" * 3000)], {"server.log": 200 + n}).result(10)
    said.wait_until(is_durable=False)

    left = sqlite3.connect(small_disk / "ledger.db")  # what a restart would find
    (position,) = left.execute("SELECT doc FROM positions").fetchone()
    known = [json.loads(doc)["id"] for (doc,) in left.execute("SELECT doc FROM findings ORDER BY opened_id")]
    left.close()
    filler.unlink()
    ledger.close()

    assert known == ["before", *(f"f{n}" for n in range(len(known) - 1))]
    assert int(position) == (100 if len(known) == 1 else 200 + len(known) - 2)


def test_a_read_only_file_system_is_survived_and_said(small_disk):
    first = Ledger(small_disk / "ledger.db")
    first.commit([material.fired("before")], {"server.log": 5}).result(5)
    first.close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    said = Said()
    ledger = Ledger(small_disk / "ledger.db", on_state=said, retry_s=0.02)
    assert ledger.positions() == {"server.log": 5}
    ledger.commit([material.fired("during")], {"server.log": 7}).result(10)
    assert "memory only" in said.wait_until(is_durable=False).because
    assert [row.id for row in ledger.findings().items] == ["during", "before"]

    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    said.wait_until(is_durable=True)
    ledger.commit([material.fired("after")]).result(10)
    ledger.close()

    assert changes_of(small_disk / "ledger.db") == [(1, "before"), (2, "during"), (3, "after")]


def test_a_directory_that_cannot_be_made_is_no_reason_not_to_start(tmp_path):
    said = Said()
    (tmp_path / "state").write_text("a file where the directory should be")
    ledger = Ledger(tmp_path / "state" / "ledger.db", on_state=said, retry_s=0.02)
    ledger.commit([material.fired()]).result(5)
    assert said.wait_until(is_durable=False).because.startswith(str(tmp_path / "state" / "ledger.db"))

    (tmp_path / "state").unlink()
    said.wait_until(is_durable=True)
    ledger.close()

    assert changes_of(tmp_path / "state" / "ledger.db") == [(1, "f1")]


def changes_of(path: Path) -> list[tuple[int, str]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT id, key FROM changes ORDER BY id").fetchall()
    finally:
        connection.close()


def test_damage_while_running_is_moved_aside_and_what_is_in_memory_is_kept(tmp_path):
    """The file is overwritten under the daemon: noticed at a write, the daemon goes on, a new file is begun."""
    said = Said()
    path = tmp_path / "ledger.db"
    ledger = Ledger(path, on_state=said, retry_s=0.02)
    for n in range(200):
        ledger.commit([material.fired(f"f{n}", explanation="x" * 2000)]).result(5)
    other = sqlite3.connect(path)
    assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    other.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(0)
        file.write(b"\xa5" * size)

    for n in range(200, 260):
        ledger.commit([material.fired(f"g{n}")]).result(10)
    said.wait_until(is_durable=True)
    ledger.close()

    ids = [id for id, _ in changes_of(path)]
    assert ids[-1] == 260
    assert list(tmp_path.glob("ledger.db.damaged-*"))


def test_a_second_daemon_on_the_same_ledger_does_not_corrupt_it(tmp_path):
    """Both write through SQLite's locks; ids stay unique."""
    path = tmp_path / "ledger.db"
    one, two = Ledger(path), Ledger(path)
    for n in range(50):
        one.commit([material.fired(f"a{n}")]).result(10)
        two.commit([material.fired(f"b{n}")]).result(10)
    one.close()
    two.close()

    ids = [id for id, _ in changes_of(path)]
    assert ids == list(range(1, 101))


def test_memory_is_bounded_while_the_disk_is_away(tmp_path):
    from sglang_watchdog.sinks import ledger_fallback

    (tmp_path / "state").write_text("in the way")
    ledger = Ledger(tmp_path / "state" / "ledger.db", retry_s=3600)
    for n in range(ledger_fallback.MEMORY_CHANGES // 1000 + 3):
        ledger.commit([material.fired(f"f{n}-{m}", evidence=()) for m in range(1000)]).result(30)
    ledger.write(ledger.maintain).result(30)

    assert len(changes(ledger)) == ledger_fallback.MEMORY_CHANGES
    ledger.close()


def test_damage_that_a_reader_meets_makes_the_writer_leave_the_file(tmp_path):
    """The writer itself may not come by the bad page for long."""
    said = Said()
    ledger = Ledger(tmp_path / "ledger.db", on_state=said, retry_s=0.02)

    def question(_: sqlite3.Connection) -> None:
        fault = sqlite3.DatabaseError("database disk image is malformed")
        fault.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise fault

    with pytest.raises(sqlite3.DatabaseError, match="malformed"):
        ledger.read(question)
    said.wait_until(is_durable=True)

    assert [state.is_durable for state in said.states] == [False, True]
    assert "malformed" in said.states[0].because
    ledger.close()
