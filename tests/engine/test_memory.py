"""However long a server runs, what the engine holds of it stays the same: windows are bounded, and so is all that is remembered."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "bench"))

from day import GPUS, simulate

from sglang_watchdog.engine.engine import Engine
from sglang_watchdog.model.signature import Library

MOST_POINTS = 1_800  # of one series: twice its 900 s, at 1 Hz


def test_two_hours_of_eight_gpus_hold_no_more_than_one():
    engine = Engine(Library(version="test", signatures={}, patterns={}), server="bench")

    figures = list(simulate(engine, 2.0, step_s=1800))

    held = [each["held_mib"] for each in figures]
    assert held[-1] <= 1.02 * held[1], held
    series = [each for gpu in engine.state.gpus.values() for each in gpu.series.values()]
    assert len(engine.state.gpus) == GPUS
    assert max(len(each) for each in series) <= MOST_POINTS + 1
    assert engine.run is not None
    assert max(len(each) for each in engine.run.load.series.values()) <= 2 * MOST_POINTS
