"""Which rank is on which GPU: by what the driver lists, what the log names, and what both did at the same time."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sglang_watchdog.engine.placement import Placement, PlacementTracker, rank_of_title
from sglang_watchdog.model.observation import GpuProcess, Sample

RECORDED = Path(__file__).with_name("placement-h200.jsonl.gz")
NEVER_ON_A_GPU = {"00-idle-baseline", "30-fail-unknown-flag", "31-fail-bad-model-path"}


def stories() -> Iterator[Any]:
    """What placement sees of twenty real starts on two H200: memory, process lists, and the log's facts."""
    with gzip.open(RECORDED) as lines:
        for line in lines:
            story = json.loads(line)
            yield pytest.param(story, id=story["story"])


def tell(story: dict[str, Any], *, without: str = "", every_s: float = 0.0) -> Placement:
    """Feed a story in time order, optionally without one kind of fact and with samples thinned out."""
    tracker = PlacementTracker()
    last: dict[int, float] = {}
    moments: list[tuple[float, int, Any]] = [(fact[0], 0, fact) for fact in story["facts"] if fact[1] != without]
    moments += [(row[0], 1, row) for row in story["samples"]]
    for at_s, is_sample, what in sorted(moments, key=lambda moment: moment[:2]):
        if is_sample:
            _, gpu, used, processes = what
            if at_s - last.get(gpu, 0.0) < every_s:
                continue
            last[gpu] = at_s
            tracker.on_sample(sample(at_s, gpu, used, processes, story["mem_total_mib"]))
        elif what[1] == "start":
            tracker.new_run(at_s)
        else:
            tracker.on_fact(what[1], what[2], at_s=at_s, rank=what[3])
    return tracker.current()


def sample(at_s: float, gpu: int, used: float, processes: list[Any] | None = None, total: float = 143771.0) -> Sample:
    listed = (
        None if processes is None else tuple(GpuProcess(pid=pid, ppid=ppid, name=name) for pid, ppid, name in processes)
    )
    return Sample(at_s=at_s, gpu=gpu, mem_used_mib=used, mem_total_mib=total, processes=listed, uuid=f"GPU-{gpu:08x}-0")


@pytest.mark.parametrize("without", ["", "launcher_pid"])
@pytest.mark.parametrize("every_s", [0.0, 0.9], ids=["5Hz", "1Hz"])
@pytest.mark.parametrize("story", list(stories()))
def test_real_starts_are_placed_right(story: dict[str, Any], without: str, every_s: float) -> None:
    """Two servers ran side by side in most of them; also without the line that names the launcher's pid."""
    placement = tell(story, without=without, every_s=every_s)

    if story["story"] in NEVER_ON_A_GPU:
        assert placement.gpus == {}
        assert placement.how
    elif without and every_s:
        # 1 Hz and no pid: twins that start within two seconds cannot always be told apart, but never wrongly
        assert sorted(placement.gpus) in (story["server_gpus"], [])
    else:
        assert sorted(placement.gpus) == story["server_gpus"]
    assert not placement.is_assumed


def test_a_launcher_in_the_log_names_its_children_on_the_gpus() -> None:
    tracker = PlacementTracker()
    tracker.on_sample(sample(10.0, 0, 9000, [[71, 70, "sglang::scheduler_TP1"]]))
    tracker.on_sample(sample(10.0, 1, 9000, [[72, 70, "sglang::scheduler_TP0"], [5, 4, "Xorg"]]))
    tracker.on_fact("launcher_pid", 70, at_s=11.0)

    placement = tracker.current()

    assert placement.gpus == {0: "TP1", 1: "TP0"}
    assert "[70]" in placement.how
    assert placement.pids == {71, 72}
    assert tracker.is_foreign(GpuProcess(pid=5, ppid=4)) is True
    assert tracker.is_foreign(GpuProcess(pid=71)) is False


def test_an_orphan_of_pid_1_is_not_the_child_of_a_container_s_launcher() -> None:
    """Inside a container the launcher often is pid 1; on the host every orphan has that parent."""
    tracker = PlacementTracker()
    tracker.on_sample(sample(10.0, 0, 9000, [[71, 1, "trainer"]]))
    tracker.on_sample(sample(10.0, 1, 9000, [[72, 1, "sglang::scheduler"]]))
    tracker.on_fact("launcher_pid", 1, at_s=11.0)

    assert tracker.current().gpus == {1: ""}


def test_a_killed_server_keeps_its_gpu_until_the_next_run() -> None:
    tracker = PlacementTracker()
    tracker.new_run(5.0)
    tracker.on_sample(sample(10.0, 0, 9000, [[71, 70, "sglang::scheduler"]]))
    tracker.on_fact("launcher_pid", 70, at_s=11.0)
    assert tracker.current().gpus == {0: ""}
    for second in range(12, 2000, 50):
        tracker.on_sample(sample(float(second), 0, 600, []))

    assert tracker.current().gpus == {0: ""}
    tracker.new_run(2000.0)
    assert tracker.current().gpus == {}


def test_two_servers_and_a_log_without_a_pid_stay_unknown_with_the_line_that_would_help() -> None:
    tracker = PlacementTracker()
    for gpu, pid in ((0, 71), (1, 81)):
        tracker.on_sample(sample(10.0, gpu, 9000, [[pid, pid - 1, "sglang::scheduler"]]))
    tracker.on_fact("ready", None, at_s=11.0)

    placement = tracker.current()

    assert placement.gpus == {}
    assert "Started server process" in placement.how


def test_the_only_server_of_a_node_is_the_one_whose_log_says_it_serves() -> None:
    tracker = PlacementTracker()
    tracker.on_sample(sample(10.0, 1, 9000, [[71, 70, "sglang::scheduler"]]))
    tracker.on_sample(sample(10.0, 0, 9000, []))
    assert tracker.current().gpus == {}
    tracker.on_fact("ready", None, at_s=11.0)

    assert tracker.current().gpus == {1: ""}


def test_visible_devices_of_the_launcher_shift_the_formula() -> None:
    tracker = PlacementTracker()
    for gpu in range(8):
        tracker.on_sample(sample(10.0, gpu, 9000, []))
    tracker.on_fact("args", {"tp_size": 2, "pp_size": 2, "dp_size": 1, "base_gpu_id": 0, "gpu_id_step": 1})
    tracker.on_fact("visible_devices", "4,5,GPU-00000007,6")

    assert tracker.current().gpus == {4: "PP0 TP0", 5: "PP0 TP1", 7: "PP1 TP0", 6: "PP1 TP1"}


def test_cuda_stops_at_the_first_entry_that_names_no_gpu() -> None:
    tracker = PlacementTracker()
    for gpu in range(2):
        tracker.on_sample(sample(10.0, gpu, 9000, []))
    tracker.on_fact("args", {"tp_size": 2})
    tracker.on_fact("visible_devices", "0,9,1")

    assert tracker.current().gpus == {}


def test_the_second_node_of_two_holds_the_upper_half_of_the_ranks() -> None:
    tracker = PlacementTracker()
    for gpu in range(4):
        tracker.on_sample(sample(10.0, gpu, 9000, None))
    tracker.on_fact("args", {"tp_size": 8, "nnodes": 2, "node_rank": 1})

    placement = tracker.current()

    assert placement.gpus == {0: "TP4", 1: "TP5", 2: "TP6", 3: "TP7"}
    assert placement.is_assumed


def test_data_parallel_replicas_take_one_gpu_after_the_other() -> None:
    tracker = PlacementTracker()
    for gpu in range(4):
        tracker.on_sample(sample(10.0, gpu, 9000, None))
    tracker.on_fact("args", {"tp_size": 2, "dp_size": 2})

    assert tracker.current().gpus == {0: "DP0 TP0", 1: "DP0 TP1", 2: "DP1 TP0", 3: "DP1 TP1"}


def test_telemetry_without_processes_is_taken_for_the_server_s_and_said_to_be_assumed() -> None:
    tracker = PlacementTracker()
    for gpu in range(4):
        tracker.on_sample(sample(10.0, gpu, 9000, None))
    tracker.on_fact("rank", "TP0")

    assert sorted(tracker.current().gpus) == [0, 1, 2, 3]
    assert tracker.current().is_assumed


def test_configuration_wins_over_everything() -> None:
    tracker = PlacementTracker()
    tracker.on_sample(sample(10.0, 0, 9000, [[71, 70, "sglang::scheduler"]]))
    tracker.on_fact("launcher_pid", 70, at_s=11.0)
    tracker.on_fact("gpus", [3])

    assert tracker.current().gpus == {3: ""}


def test_samples_that_did_not_read_the_process_list_change_nothing() -> None:
    tracker = PlacementTracker()
    tracker.on_sample(sample(10.0, 0, 9000, [[71, 70, "sglang::scheduler"]]))
    tracker.on_fact("launcher_pid", 70, at_s=11.0)
    tracker.on_sample(sample(11.0, 0, 9000, None))

    assert tracker.current().gpus == {0: ""}


def test_an_unknown_fact_is_refused() -> None:
    with pytest.raises(ValueError, match="no fact 'gpu_count'"):
        PlacementTracker().on_fact("gpu_count", 8)


@pytest.mark.parametrize(
    ("title", "rank"),
    [
        ("sglang::scheduler", ""),
        ("sglang::scheduler_TP3", "TP3"),
        ("sglang::scheduler_DP0_TP3_EP3", "DP0 TP3 EP3"),
        ("sglang::scheduler_PP1_ATTN_CP0_MOE_DP2_TP1", "PP1 ATTN_CP0 MOE_DP2 TP1"),
        ("sglang::detokenizer", None),
        (None, None),
    ],
)
def test_a_scheduler_s_title_holds_its_rank(title: str | None, rank: str | None) -> None:
    assert rank_of_title(title) == rank
