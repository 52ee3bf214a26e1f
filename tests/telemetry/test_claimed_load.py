"""The sampler's own recording of two real H200, as it is committed: read without a bad line, and placed by its logs."""

import calendar
import gzip
import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglang_watchdog.engine.placement import PlacementTracker
from sglang_watchdog.model.observation import Json, Sample
from sglang_watchdog.sources.telemetry_recording import Recording

CAPTURES = Path(__file__).parents[1] / "captures"
LINE = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) ?([A-Z0-9 ]*)\] (.*)")


def samples(name: str) -> list[Sample]:
    recording = Recording(CAPTURES / name / "nvml.jsonl.gz")
    read = [each for each in recording if isinstance(each, Sample)]
    assert recording.bad_lines == 0
    return read


def facts(name: str) -> Iterator[tuple[float, str, Json, str]]:
    with gzip.open(CAPTURES / name / "server.log.gz", "rt") as lines:
        for line in lines:
            match = LINE.match(line)
            assert match is not None
            at_s, rank, message = calendar.timegm(time.strptime(match[1], "%Y-%m-%d %H:%M:%S")), match[2], match[3]
            if message.startswith("server_args="):
                size = re.search(r"\btp_size=(\d+)", message)
                assert size is not None
                yield at_s, "args", {"tp_size": int(size[1])}, ""
            if "Init torch distributed begin" in message:
                yield at_s, "dist_begin", None, rank
            if "Init torch distributed ends" in message:
                yield at_s, "dist_end", None, rank
            if free := re.search(r"avail mem=([\d.]+) GB", message):
                yield at_s, "avail_gib", float(free[1]), rank
            if pid := re.search(r"Started server process \[(\d+)\]", message):
                yield at_s, "launcher_pid", int(pid[1]), ""


@pytest.mark.parametrize("without", ["", "launcher_pid"])
@pytest.mark.parametrize(
    ("log", "gpus"), [("h200-claimed-spin", {0: ""}), ("h200-claimed-matmul", {1: ""}), ("h200-claimed-uneven", {0: "TP0", 1: "TP1"})]
)
def test_each_log_finds_its_own_gpus(log: str, gpus: dict[int, str], without: str) -> None:
    """Spin and matmul started in the same second with the same memory: without the pid they cannot be told apart."""
    told = [fact for fact in facts(log) if fact[1] != without]
    moments = sorted([(fact[0], 0, fact) for fact in told] + [(each.at_s, 1, each) for each in samples(log)], key=lambda m: m[:2])
    tracker = PlacementTracker()
    tracker.new_run(told[0][0])
    for _, _, what in moments:
        if isinstance(what, Sample):
            tracker.on_sample(what)
        else:
            tracker.on_fact(what[1], what[2], at_s=what[0], rank=what[3])

    twins = without and log != "h200-claimed-uneven"
    assert tracker.current().gpus == ({} if twins else gpus)
    assert tracker.current().how


def test_a_gpu_that_only_spins_and_one_that_computes_lie_far_apart() -> None:
    """Both read 100 % utilisation; power, SM, tensor and DRAM activity tell them apart."""
    under_load = [each for each in samples("h200-claimed-spin") if 1796063553 < each.at_s < 1796063590]
    by_gpu = {gpu: [each for each in under_load if each.gpu == gpu] for gpu in (0, 1)}

    def median(gpu: int, name: str) -> float:
        return statistics.median(value for each in by_gpu[gpu] if (value := getattr(each, name)) is not None)

    assert median(0, "sm_util") == median(1, "sm_util") == 100.0
    assert median(0, "power_w") / 700 < 0.2
    assert median(1, "power_w") / 700 > 0.95
    assert (median(0, "sm_active") < 0.01, median(1, "sm_active") > 0.9) == (True, True)
