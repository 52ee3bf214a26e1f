"""`make soak`: the model of the tail with new runs for as long as there is time, and the torture with real processes."""

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from test_tail_model import TailMachine, TestTail

import soak

TORTURE = Path(__file__).parent.parent / "bench" / "tail_torture.py"


@pytest.mark.soak
def test_the_model_finds_nothing_lost_or_repeated() -> None:
    """Each run is a new one; a byte that is lost without a word, delivered twice or invented ends it with the steps that led there."""
    totals: Counter[str] = Counter()

    class Counting(TailMachine):
        def teardown(self) -> None:
            super().teardown()
            totals["runs"] += 1
            totals["operations"] += self.operations
            totals["bytes"] += sum(len(life.content) for life in self.lives)
            totals["not delivered, said"] += sum(len(life.content) - life.covered for life in self.lives)
            totals.update(f"gap {gap.reason}" for gap in self.gaps)

    ends = time.monotonic() + soak.seconds(0.35)
    while time.monotonic() < ends:
        run_state_machine_as_test(Counting, settings=settings(TestTail.settings, max_examples=200, derandomize=False, print_blob=True))
    print("\ntail model:", ", ".join(f"{name} {number}" for name, number in sorted(totals.items())), "lost 0, repeated 0", sep=" ")

    assert totals["operations"] > 1000


@pytest.mark.soak
def test_nothing_is_lost_or_repeated_under_torture() -> None:
    """Written at 20 MB/s, rotated every second, its reader killed again and again; counted by a process of its own."""
    told_s = soak.seconds(0.15)
    done = subprocess.run([sys.executable, str(TORTURE), "--seconds", str(told_s), "--kills", str(max(3, int(told_s / 10)))], capture_output=True, text=True)
    print(f"\n{done.stdout.strip()}")

    assert done.returncode == 0, done.stdout + done.stderr
