"""A log that ended long before it was opened is history; one of a server that shows life and hangs is not."""

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sglang_watchdog.library.load import load
from sglang_watchdog.model.observation import COMMAND_LINE, Probe, ProcessSeen
from sglang_watchdog.model.words import Answer, State
from sglang_watchdog.parse.zone import Zone
from sglang_watchdog.runtime.clock import WallClock
from sglang_watchdog.runtime.plan import ServerPlan
from sglang_watchdog.runtime.watch import ResumeAt, ServerWatch
from sglang_watchdog.scan.patterns import compile_patterns
from sglang_watchdog.sources.block import Block
from sglang_watchdog.sources.tail import Tail

HOUR_S = 3600.0


@pytest.fixture(scope="module")
def library():
    return load().library


def lines(ended_s: float) -> str:
    """A server with requests in its queue that says nothing after `ended_s`."""

    def stamp(at_s: float) -> str:
        return f"[{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S}"

    decode = "Decode batch, #running-req: 32, #token: 9000, token usage: 0.07, cuda graph: True, gen throughput (token/s): 954.93, #queue-req: 3"
    return f"{stamp(ended_s - 10)}] The server is fired up and ready to roll!\n" + "".join(
        f"{stamp(ended_s - before)} TP0] {decode}\n" for before in (4, 2, 0)
    )


class Following:
    """One server whose log is followed as the daemon follows it, at times of the test's choice."""

    def __init__(self, library, path: Path, since_s: float | None, zone: Zone | None = None) -> None:
        plan = ServerPlan(name="chat", logs=(), zone=zone)
        self.watch = ServerWatch(
            plan, library, compile_patterns(library, "auto"), WallClock(), zone or Zone.utc(),
            sources={"log": ResumeAt(None, watched_since_s=since_s)}, telemetry=False,
        )  # fmt: skip
        self.tail = Tail("log", str(path))

    def look(self, now_s: float) -> None:
        for _ in range(3):  # the file is opened, read, found to be at its end
            for event in self.tail.step(now_s):
                self.watch.on_block(event, now_s) if isinstance(event, Block) else self.watch.on_event(event)

    @property
    def fires(self) -> bool:
        return any(one.signature == "hang-no-progress" and one.state is State.FIRING for one in self.watch.engine.findings.all())

    @property
    def verdict(self):
        return next(row for row in self.watch.engine.coverage() if row.signature == "hang-no-progress")


@pytest.fixture
def follow(library, tmp_path: Path) -> Callable[..., Following]:
    def followed(ended_s: float, *, since_s: float | None = None) -> Following:
        path = tmp_path / "server.log"
        path.write_text(lines(ended_s))
        os.utime(path, (ended_s, ended_s))
        return Following(library, path, since_s)

    return followed


def launcher(now_s: float, started_s: float) -> list[Probe | ProcessSeen]:
    return [
        Probe(at_s=now_s, source="chat/processes", origin=COMMAND_LINE, facts={}, command=("--tp", "1"), started_s=started_s),
        ProcessSeen(at_s=now_s, source="chat/processes", pid=4711, role="launcher", state="sleeping"),
    ]


def test_what_was_silent_before_it_was_opened_is_unknown_and_says_why(follow):
    now_s = time.time()
    log = follow(now_s - 3 * HOUR_S)
    log.look(now_s)
    log.look(now_s + 120)

    assert not log.fires
    assert (log.verdict.verdict, log.verdict.reason) == (Answer.UNKNOWN, "alive")
    assert log.verdict.because.startswith("the log was already silent for 3 h when it was opened")


def test_a_server_whose_process_is_seen_hangs(follow):
    now_s = time.time()
    log = follow(now_s - 3 * HOUR_S)
    log.look(now_s)
    for seen in launcher(now_s, now_s - 5 * HOUR_S):
        log.watch.on_observation(seen, now_s)
    log.look(now_s + 5)

    assert log.fires


def test_another_start_than_the_logs_proves_nothing(follow):
    now_s = time.time()
    log = follow(now_s - 3 * HOUR_S)
    log.look(now_s)
    for seen in launcher(now_s, now_s - 600):
        log.watch.on_observation(seen, now_s)
    log.look(now_s + 120)

    assert not log.fires


def test_silence_that_began_while_it_was_watched_is_a_hang(follow):
    now_s = time.time()
    log = follow(now_s - 3)
    log.look(now_s)
    log.look(now_s + 90)

    assert log.fires


def test_a_hang_is_still_one_after_the_daemon_started_again(follow):
    now_s = time.time()
    log = follow(now_s - HOUR_S, since_s=now_s - 2 * HOUR_S)
    log.look(now_s)

    assert log.fires
    assert log.watch.positions()["log"]["watched_since_s"] == now_s - 2 * HOUR_S


def test_silences_between_lines_are_judged_as_in_a_check(follow, tmp_path: Path):
    now_s = time.time()
    log = follow(now_s - 3 * HOUR_S)
    with (tmp_path / "server.log").open("a") as out:
        out.write(lines(now_s - 2 * HOUR_S).splitlines()[1] + "\n")
    log.look(now_s)

    assert any(one.signature == "hang-no-progress" for one in log.watch.engine.findings.all())


def test_a_configured_zone_that_new_lines_contradict_is_a_finding_and_goes_with_them(library, tmp_path: Path):
    now_s = time.time()
    path = tmp_path / "server.log"
    path.write_text(lines(now_s))
    log = Following(library, path, None, zone=Zone.named("+08:00"))
    log.look(now_s)

    def write(off_s: float, start: int = 1) -> set[State]:
        for second in range(start, start + 4):
            with path.open("a") as out:
                out.write(lines(now_s + second + off_s))
            os.utime(path, (now_s + second, now_s + second))
            log.look(now_s + second)
        return {one.state for one in log.watch.engine.findings.all() if one.signature == "source-clock-zone"}

    assert write(0.0) == {State.FIRING}
    (found,) = [one for one in log.watch.engine.findings.all() if one.signature == "source-clock-zone"]
    assert found.summary.endswith(": log is read in +08:00 and arrives as if written in UTC.")
    assert not log.fires, "a silence of eight hours that only the zone makes"
    write(8 * HOUR_S, 60)
    log.look(now_s + 150)
    assert [one.state for one in log.watch.engine.findings.all() if one.signature == "source-clock-zone"] == [State.RESOLVED]
