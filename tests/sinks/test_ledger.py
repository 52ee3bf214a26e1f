"""The ledger: what was committed is there, once, whatever happens to daemon, disk and file."""

import json
import sqlite3
from concurrent.futures import wait
from pathlib import Path

import pytest

from sglang_watchdog.model.words import Phase, State
from sglang_watchdog.sinks import ledger_files
from sglang_watchdog.sinks.ledger import Ledger, LedgerClosed
from sglang_watchdog.sinks.ledger_reads import FindingFilter
from sglang_watchdog.sinks.ledger_retention import Retention, forget
from sglang_watchdog.sinks.ledger_schema import MIGRATIONS, migrate
from sinks import material


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger.db"


@pytest.fixture
def opened(path):
    """Opens ledgers on the same file and closes them at the end."""
    made: list[Ledger] = []

    def open_one(**options) -> Ledger:
        made.append(Ledger(path, **options))
        return made[-1]

    yield open_one
    for each in made:
        each.close()


def story(ledger: Ledger) -> list[tuple[str, str | None, str]]:
    return [(change.key, change.was, change.state) for change in ledger.changes_since(0)]


def test_changes_and_positions_are_committed_together_and_outlive_the_process(opened):
    ledger = opened()
    recorded = ledger.commit([material.moved(), material.fired()], {"server.log": {"offset": 9200, "inode": 7}}).result(5)
    ledger.close()

    again = opened()

    assert [each.id for each in recorded] == [1, 2]
    assert again.positions() == {"server.log": {"offset": 9200, "inode": 7}}
    assert story(again) == [("run-1", None, "serving"), ("f1", None, "firing")]
    assert json.loads(again.changes_since(0)[1].doc)["id"] == "f1"


def test_a_finding_told_again_after_a_restart_does_not_open_twice(opened):
    """The engine reads the current run anew and reports what it finds as new; the ledger knows better."""
    told = [
        material.moved(was=None),
        material.fired(),
        material.fired(was=State.FIRING, at_s=material.T0 + 10, count=4, last_seen_s=material.T0 + 10),
    ]
    first = opened()
    first.commit(told).result(5)
    first.close()

    again = opened()
    recorded = again.commit(told).result(5)

    assert recorded == ()
    assert json.loads(again.finding("f1").doc)["count"] == 4


def test_a_finding_that_was_resolved_before_the_restart_is_not_fired_again_by_reading_it_again(opened):
    told = [material.moved(), material.fired(), material.resolved()]
    first = opened()
    first.commit(told).result(5)
    first.close()

    again = opened()
    again.commit(told).result(5)

    assert story(again) == [("run-1", None, "serving"), ("f1", None, "firing"), ("f1", "firing", "resolved")]


def test_what_happens_after_the_point_known_at_the_restart_is_news(opened):
    first = opened()
    first.commit([material.moved(), material.fired(), material.resolved()]).result(5)
    first.close()

    again = opened()
    again.commit([material.fired(), material.resolved(), material.fired(at_s=material.T0 + 90, reopened=1)]).result(5)

    assert story(again)[-1] == ("f1", "resolved", "firing")
    assert len(story(again)) == 4


def test_a_run_told_again_does_not_go_back_to_its_first_phases(opened):
    told = [
        material.moved(phase=Phase.STARTING, at_s=material.T0),
        material.moved(phase=Phase.SERVING, at_s=material.T0 + 77),
    ]
    first = opened()
    first.commit(told).result(5)
    first.close()

    again = opened()
    again.commit(told).result(5)

    assert story(again) == [("run-1", None, "starting"), ("run-1", "starting", "serving")]


def test_a_clock_stepped_back_does_not_silence_a_live_ledger(opened):
    """Only until the past is passed does older mean known; hardware findings must go on after the clock was
    corrected."""
    ledger = opened()
    ledger.commit([material.fired(at_s=material.T0 + 3600), material.resolved(at_s=material.T0 + 3700)]).result(5)

    ledger.commit([material.fired(at_s=material.T0 + 10, reopened=1)]).result(5)

    assert ledger.finding("f1").state == "firing"


def test_a_finding_found_again_later_keeps_when_it_was_first_seen(opened):
    first = opened()
    first.commit([material.fired(count=9)]).result(5)
    first.close()

    again = opened()
    again.commit([material.fired(at_s=material.T0 + 500, first_seen_s=material.T0 + 500, last_seen_s=material.T0 + 500)]).result(5)

    document = json.loads(again.finding("f1").doc)
    assert (document["first_seen"], document["last_seen"], document["count"]) == (
        "2026-02-19T08:10:03Z",
        "2026-02-19T08:18:23Z",
        9,
    )


def test_what_the_engine_does_not_find_again_expires(opened):
    first = opened()
    first.commit([material.fired("kept"), material.fired("gone"), material.fired("other", server="code")]).result(5)
    first.close()

    again = opened()
    again.expire_unseen("chat", ["kept"], at_s=material.T0 + 900).result(5)

    assert {row.id: row.state for row in again.findings().items} == {
        "kept": "firing",
        "gone": "expired",
        "other": "firing",
    }
    assert [finding.id for finding in again.open_findings("chat")] == ["kept"]


def test_ids_of_changes_only_rise_even_after_everything_was_forgotten(opened):
    ledger = opened(now=lambda: 1e9)
    ledger.commit([material.fired(), material.resolved()]).result(5)
    ledger.write(lambda connection: forget(connection, Retention(age_s=0.0), now_s=2e9)).result(5)
    assert ledger.changes_since(0) == []

    recorded = ledger.commit([material.fired("f2")]).result(5)

    assert recorded[0].id == 3
    assert ledger.change_range() == (3, 3)


def test_retention_by_age_forgets_what_is_over_and_keeps_what_is_open(opened):
    ledger = opened(now=lambda: 1e9)
    ledger.commit(
        [
            material.moved("old", phase=Phase.STOPPED),
            material.moved("new"),
            material.fired("open"),
            material.fired("over", run="new"),
            material.resolved("over", run="new"),
        ]
    ).result(5)

    ledger.write(lambda connection: forget(connection, Retention(age_s=60.0), now_s=1e9 + 61)).result(5)

    assert [row.id for row in ledger.findings().items] == ["open"]
    assert [json.loads(doc)["id"] for doc in ledger.runs().items] == ["new"]


def test_retention_by_size_forgets_the_oldest_first(opened):
    ledger = opened()
    wait([ledger.commit([material.fired(f"f{n}", explanation="x" * 2000), material.resolved(f"f{n}")]) for n in range(300)])
    bound = 600_000
    assert ledger.used_bytes() > bound

    ledger.write(lambda connection: forget(connection, Retention(size_bytes=bound), now_s=material.T0)).result(5)

    assert ledger.used_bytes() <= bound
    kept = [change.id for change in ledger.changes_since(0)]
    assert kept == list(range(kept[0], 601))


def test_a_failing_job_is_undone_alone(opened):
    ledger = opened()

    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO positions VALUES ('half', '1')")
        raise ZeroDivisionError

    failed, fine = ledger.write(broken), ledger.commit([], {"server.log": 1})

    with pytest.raises(ZeroDivisionError):
        failed.result(5)
    fine.result(5)
    assert ledger.positions() == {"server.log": 1}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"this is no database at all " * 100, "damaged"),
        (b"SQLite format 3\0" + b"\xff" * 5000, "damaged"),
    ],
)
def test_a_damaged_file_is_moved_aside_said_and_the_daemon_goes_on(path, opened, content, reason):
    path.parent.mkdir()
    path.write_bytes(content)
    said = []

    ledger = opened(on_state=said.append, now=lambda: material.T0)
    ledger.commit([material.fired()]).result(5)

    aside = path.with_name(f"ledger.db.{reason}-20260219T081003Z")
    assert aside.read_bytes() == content
    assert [(state.is_durable, state.moved_aside.path, state.moved_aside.reason) for state in said] == [(True, aside, reason)]
    assert len(ledger.changes_since(0)) == 1


def test_damage_inside_a_real_ledger_is_noticed(path, opened):
    ledger = opened()
    wait([ledger.commit([material.fired(f"f{n}")]) for n in range(50)])
    ledger.close()
    content = bytearray(path.read_bytes())
    content[8192:16384] = b"\xa5" * 8192
    path.write_bytes(content)
    said = []

    again = opened(on_state=said.append)

    assert said[0].moved_aside.reason == "damaged"
    assert again.changes_since(0) == []


def test_another_programs_database_is_moved_aside_whole(path, opened):
    path.parent.mkdir()
    theirs = sqlite3.connect(path)
    theirs.execute("CREATE TABLE precious (x)")
    theirs.commit()
    theirs.close()
    said = []

    opened(on_state=said.append)

    aside = said[0].moved_aside
    assert aside.reason == "foreign"
    assert sqlite3.connect(aside.path).execute("SELECT name FROM sqlite_master").fetchall() == [("precious",)]


def test_a_ledger_of_a_newer_release_is_not_touched(path, opened):
    opened().close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 999")
    newer.close()
    said = []

    opened(on_state=said.append)

    assert said[0].moved_aside.reason == "newer"
    assert "999" in said[0].because


def test_moving_aside_twice_in_a_second_overwrites_nothing(path):
    path.parent.mkdir()
    for content in (b"one" * 999, b"two" * 999):
        path.write_bytes(content)
        connection, moved = ledger_files.open_writer(path, now=lambda: material.T0)
        connection.close()
        assert moved is not None
        assert moved.path.read_bytes() == content


def test_migrations_run_once_each_and_an_interrupted_one_leaves_no_trace(tmp_path):
    connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    migrate(connection)
    connection.execute("INSERT INTO positions VALUES ('server.log', '5')")
    later = [
        *MIGRATIONS,
        "ALTER TABLE positions ADD COLUMN zone TEXT",
        "CREATE TABLE half (x); INSERT INTO nowhere VALUES (1)",
    ]

    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        migrate(connection, later)

    assert connection.execute("SELECT * FROM positions").fetchall() == [("server.log", "5", None)]
    assert connection.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS) + 1
    assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'half'").fetchone()[0] == 0


def test_the_state_directory_and_file_are_for_their_owner_only(path, opened):
    opened().commit([material.fired()]).result(5)

    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_closed_ledger_takes_and_tells_nothing(opened):
    ledger = opened()
    ledger.close()

    with pytest.raises(LedgerClosed):
        ledger.commit([])
    with pytest.raises(LedgerClosed):
        ledger.positions()


def test_without_a_directory_everything_is_kept_in_memory():
    ledger = Ledger(None)
    ledger.commit([material.moved(), material.fired()]).result(5)

    assert [row.id for row in ledger.findings(FindingFilter(state=("firing",))).items] == ["f1"]
    ledger.close()


def test_the_first_start_is_remembered(opened):
    first = opened(now=lambda: 100.0)
    assert first.first_started_s == 100.0
    first.close()

    assert opened(now=lambda: 200.0).first_started_s == 100.0


def test_a_caller_that_gives_up_waiting_does_not_stop_the_ledger(opened):
    """A client that disconnects cancels its future while the job may already be under way."""
    ledger = opened()
    futures = [ledger.commit([material.fired(f"f{n}")]) for n in range(200)]
    for future in futures[::2]:
        future.cancel()

    wait(futures[1::2])
    recorded = {change.key for change in ledger.changes_since(0, 1000)}

    assert recorded >= {f"f{n}" for n in range(1, 200, 2)}
    assert ledger.commit([material.fired("last")]).result(5)[0].key == "last"


def test_a_listener_that_fails_does_not_stop_the_ledger(opened, caplog):
    def broken(_):
        raise RuntimeError("the listener is at fault")

    ledger = opened(on_committed=broken)
    ledger.commit([material.fired("one")]).result(5)
    ledger.commit([material.fired("two")]).result(5)
    ledger.close()

    assert "the listener is at fault" in caplog.text
