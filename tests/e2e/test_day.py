"""A long life takes no more than a short one: memory, tasks and metric series over restarts of the server. `tests/bench/day_daemon.py` is the day."""

from pathlib import Path

import pytest

from . import day

RUN_S = 300
MOST_GROWTH_BYTES = 16 * 1024 * 1024  # of about 115 MiB, from the end of the first run on


@pytest.mark.slow
def test_three_runs_of_a_server_leave_nothing_behind(tmp_path: Path) -> None:
    first, *later = day.live(tmp_path, 3 * RUN_S / day.HOUR_S, every_s=RUN_S, run_s=RUN_S, chunk_s=RUN_S // 2)

    assert len(later) == 2
    unchanged(first, later)


@pytest.mark.soak
def test_hours_with_idle_times_leave_nothing_behind(tmp_path: Path) -> None:
    first, *later = day.live(tmp_path, 4.0, run_s=2 * day.HOUR_S)

    assert len(later) == 3
    unchanged(first, later)


def unchanged(first: day.Reading, later: list[day.Reading]) -> None:
    for reading in later:
        assert reading.lines > first.lines
        assert reading.series == first.series
        assert reading.tasks == first.tasks
        assert reading.memory_bytes - first.memory_bytes < MOST_GROWTH_BYTES, (first, reading)
