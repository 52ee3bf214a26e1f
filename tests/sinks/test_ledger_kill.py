"""kill -9 at any moment: what was said to be durable is there, once, and positions fit changes exactly."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from sinks import ledger_victim

KILLS = 40


@pytest.mark.slow
def test_kill_9_at_random_moments_neither_loses_nor_doubles_a_change(tmp_path):
    path = tmp_path / "state" / "ledger.db"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    dice, first, said_in_all = random.Random(7), 0, 0
    for _ in range(KILLS):
        victim = subprocess.Popen(
            [sys.executable, ledger_victim.__file__, str(path), str(first)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert victim.stdout is not None
        assert victim.stdout.readline().split() == ["ready", str(max(first - 1, 0) * 100)]
        said = [int(victim.stdout.readline()) for _ in range(dice.randrange(1, 40))]
        os.kill(victim.pid, signal.SIGKILL)
        said += [int(line) for line in victim.stdout.read().split()]
        victim.wait(10)
        victim.stdout.close()
        durable = check(path)
        assert said == list(range(first, first + len(said)))
        assert durable in (said[-1] + 1, said[-1] + 2), "at most the one change in flight is there beyond what was said"
        first, said_in_all = durable, said_in_all + len(said)
    print(f"{KILLS} kills, {first} changes durable, {said_in_all} of them said before a kill, lost 0, doubled 0")


def check(path: Path) -> int:
    """The number of changes in the file, after checking that they are whole, in order, and fit the position."""
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        rows = connection.execute("SELECT id, key, doc FROM changes ORDER BY id").fetchall()
        assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
        assert [(row[1], json.loads(row[2])["count"]) for row in rows] == [(f"f{n // 3}", n % 3 + 1) for n in range(len(rows))]
        ((position,),) = connection.execute("SELECT doc FROM positions").fetchall()
        assert int(position) == (len(rows) - 1) * 100
        return len(rows)
    finally:
        connection.close()
