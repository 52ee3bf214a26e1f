"""kill -9 of the whole daemon at random moments while findings change: nothing is lost or doubled, and a client of the stream that
comes back with `Last-Event-ID` has every change once.
"""

import itertools
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import pytest

import soak
from sglang_watchdog.model.finding import FindingChanged
from sglang_watchdog.model.signature import Library
from sglang_watchdog.model.words import State

from .changes import ChangesClient, Event
from .daemon import RunningDaemon
from .firing import dump, lines_that_fire, stamped

LINES_A_RUN = 12
LAST_SEED = 999_983


@dataclass
class Writer:
    """A server that is restarted all the time and has something to say each time: a thread that writes its log."""

    log: Path
    lines: dict[str, str]
    written: int = 0
    fault: list[BaseException] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Writer":
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        dice, lines = random.Random(11), itertools.cycle(self.lines.values())
        with self.log.open("ab", buffering=0) as out:
            for seed in itertools.count():
                for text in (dump(seed), *(stamped(next(lines)) for _ in range(LINES_A_RUN))):
                    out.write(text.encode())
                    self.written += 1
                    if self._stop.wait(dice.uniform(0.02, 0.2)):
                        return


@dataclass(frozen=True)
class Counted:
    """What the ledger holds against what the client has, and against what the finished log says."""

    changes: int
    findings: int
    unsaid: int  # in the log, and not in the ledger
    lost: int  # in the ledger, and not with the client
    doubled: int  # twice with the client, or opened twice in the ledger
    holes: int  # ids left out
    wrong: int  # not the same text on both sides, or a change that does not follow from the one before

    def __str__(self) -> str:
        return f"{self.changes} changes of {self.findings} findings, not recorded {self.unsaid}, lost {self.lost}, doubled {self.doubled}, holes {self.holes}, wrong {self.wrong}"


def rows(ledger: Path) -> list[tuple[int, str, str, str | None, str, str]]:
    with sqlite3.connect(f"file:{ledger}?mode=ro", uri=True) as connection:
        return connection.execute("SELECT id, kind, key, was, state, doc FROM changes ORDER BY id").fetchall()


def count(ledger: Path, events: list[Event], said: set[tuple[str, str]]) -> Counted:
    """`said`: run and signature of every finding that the finished log holds."""
    recorded = {row[0]: row for row in rows(ledger)}
    received = Counter(event.id for event in events)
    wrong = sum(event.id not in recorded or event.data[event.name] != json.loads(recorded[event.id][5]) for event in events)
    states: dict[tuple[str, str], str] = {}
    opened: Counter[tuple[str, str]] = Counter()
    for _, kind, key, was, state, doc in recorded.values():
        wrong += states.get((kind, key)) != was
        states[kind, key] = state
        if kind == "finding" and was is None:
            body = json.loads(doc)
            opened[body["run"], body["signature"]] += 1
    ids = [event.id for event in events]
    return Counted(
        changes=len(recorded),
        findings=len(said),
        unsaid=len(said - opened.keys()),
        lost=len(recorded.keys() - received.keys()),
        doubled=sum(received.values()) - len(received) + sum(number - 1 for number in opened.values()),
        holes=sum(later != before + 1 for before, later in itertools.pairwise(ids)) + len(set(range(1, max(recorded) + 1)) - recorded.keys()),
        wrong=wrong,
    )


def killed_over_and_over(tmp_path: Path, kills: int, truth: Callable[[Path], set[tuple[str, str]]], *, within_s: float = inf) -> tuple[int, Counted]:
    """Kill the daemon `kills` times, or as often as there is time for; return how often, and what was counted."""
    log, state = tmp_path / "server.log", tmp_path / "state"
    log.touch()
    arguments = (str(log), "--telemetry", "none", "--timezone", "UTC", "--state-dir", str(state))
    dice, client, events, killed = random.Random(3), ChangesClient(last_id=0), list[Event](), 0
    ends = time.monotonic() + within_s
    lines = dict(list(lines_that_fire(("info", "warning")).items())[:40])
    with Writer(log, lines):
        while killed < kills and time.monotonic() < ends:
            killed += 1
            if killed % 4 == 0:
                killed_while_it_starts(arguments, dice.uniform(0.0, 2.0))
                continue
            with RunningDaemon(*arguments) as daemon:
                client.connect(daemon.url)
                if killed % 4 != 1:
                    events.append(client.events.get(timeout=60))  # changes are being made now
                time.sleep(dice.uniform(0.0, 1.0))
                daemon.process.send_signal(signal.SIGKILL)
                daemon.process.wait()
                client.join()
            events += client.taken()
    with RunningDaemon(*arguments) as daemon:
        client.connect(daemon.url)
        last, line = next(iter(lines.items()))
        with log.open("a") as out:
            out.write(dump(LAST_SEED) + stamped(line))
        daemon.wait_for(lambda: is_last(events_with(events, client), last) and newest(state) == client.last_id, 120)
    client.join()
    events += client.taken()
    return killed, count(state / "ledger.sqlite3", events, truth(log))


def events_with(events: list[Event], client: ChangesClient) -> list[Event]:
    events += client.taken()
    return events


def is_last(events: list[Event], signature: str) -> bool:
    """Whether the last run's only finding has come."""
    runs = {event.data["run"]["id"] for event in events if event.name == "run" and event.data["run"]["args"].get("random_seed") == LAST_SEED}
    return any(event.name == "finding" and event.data["finding"]["run"] in runs and event.data["finding"]["signature"] == signature for event in events)


def killed_while_it_starts(arguments: tuple[str, ...], after_s: float) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "sglang_watchdog", "run", "--next-free-port", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    time.sleep(after_s)
    process.kill()
    process.wait()


def newest(state: Path) -> int:
    with sqlite3.connect(f"file:{state / 'ledger.sqlite3'}?mode=ro", uri=True) as connection:
        return int(connection.execute("SELECT max(id) FROM changes").fetchone()[0] or 0)


@pytest.fixture
def truth(library: Library, judge_files: Any) -> Callable[[Path], set[tuple[str, str]]]:
    """Run and signature of each finding that `check` has of a log and that a line of it raised."""

    def of(log: Path) -> set[tuple[str, str]]:
        said = lines_that_fire(("info", "warning"))
        fired = [one.finding for one in judge_files(log).changes if isinstance(one, FindingChanged) and one.finding.state is State.FIRING]
        return {(str(one.run), one.signature) for one in fired if one.signature in said}

    return of


@pytest.mark.slow
def test_eight_kills_lose_and_double_nothing(tmp_path: Path, truth: Callable[[Path], set[tuple[str, str]]]) -> None:
    killed, counted = killed_over_and_over(tmp_path, 8, truth)
    print(f"{killed} kills -9: {counted}")

    assert (counted.unsaid, counted.lost, counted.doubled, counted.holes, counted.wrong) == (0, 0, 0, 0, 0)
    assert counted.changes > 20


@pytest.mark.soak
def test_hundreds_of_kills_lose_and_double_nothing(tmp_path: Path, truth: Callable[[Path], set[tuple[str, str]]]) -> None:
    """DAEMON_KILLS of them, however long that takes; else as many as there is time for."""
    wanted = os.environ.get("DAEMON_KILLS")
    killed, counted = killed_over_and_over(tmp_path, int(wanted or 10_000), truth, within_s=inf if wanted else soak.seconds(0.25))
    print(f"\n{killed} kills -9 of the daemon: {counted}")

    assert (counted.unsaid, counted.lost, counted.doubled, counted.holes, counted.wrong) == (0, 0, 0, 0, 0)
