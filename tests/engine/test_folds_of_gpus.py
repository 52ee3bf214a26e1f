"""One fact of a GPU is one finding: causes fold what they bring about, and what yields does not speak first."""

import pytest

from sglang_watchdog.library.examples import Player
from sglang_watchdog.library.load import load
from sglang_watchdog.library.stories import read_story

XID = "Mar 11 22:14:14 node-a kernel: NVRM: Xid (PCI:0000:44:00): 31, pid=4711, name=python3, Ch 00000010, intr 00000000. MMU Fault"
CRASH = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"


@pytest.fixture(scope="module")
def player() -> Player:
    return Player(load().library)


def test_a_degraded_link_is_one_finding_that_names_the_peers(player: Player) -> None:
    played = player.play(read_story(
        "0s..60s/1s (sample gpu=0 sm_util=99 pcie_gen=5 pcie_gen_max=5 pcie_width=16 pcie_width_max=16)\n"
        "0s..60s/1s (sample gpu=1 sm_util=99 pcie_gen=1 pcie_gen_max=5 pcie_width=8 pcie_width_max=16)\n"
        "61s (watermark)\n"
    ))  # fmt: skip
    pcie = [one for one in played.findings if one.topic == "gpu.pcie-degraded"]
    assert [one.signature for one in pcie] == ["pcie-degraded"]
    assert "gen 1 x8" in pcie[0].summary
    assert "gen 5 x16" in pcie[0].summary
    assert pcie[0].count == 1


def test_the_fault_of_a_program_explains_its_crash(player: Player) -> None:
    played = player.play(read_story(
        f"0s   The server is fired up and ready to roll!\n9s   [TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        f"     | {XID.replace('Mar 11 22:14:14 node-a ', '')}\n     | {CRASH}\n30s  (watermark)\n"
    ))  # fmt: skip
    by = {one.signature: one for one in played.findings}
    assert by["crash-illegal-memory-access"].explained_by == by["xid-application-fault"].id


SERVER_ON_GPU_0 = (
    "0s   [TP0] server_args=ServerArgs(model_path='m', tp_size=1, base_gpu_id=0, decode_log_interval=40)\n"
    "1s   The server is fired up and ready to roll!\n"
    "1s..60s/1s (sample gpu=0 power_w=400 power_limit_w=700 pids=901/834)\n"
)


def test_a_driver_that_hangs_is_told_while_it_is_not_known_where_the_server_runs(player: Player) -> None:
    played = player.play(read_story(
        "0s   [TP0] Load weight begin. avail mem=100.00 GB\n0s..9s/1s (sample gpu=0-7 power_w=400 power_limit_w=700)\n"
        "10s  (event gpu=5 event=unresponsive)\n20s  (watermark)\n"
    ))  # fmt: skip

    assert [(one.topic, one.gpus) for one in played.findings] == [("gpu.driver-hang", (5,))]


def test_a_gpu_of_no_server_is_watched_for_faults_of_the_hardware_only(player: Player) -> None:
    played = player.play(read_story(
        SERVER_ON_GPU_0 + "1s..60s/1s (sample gpu=1 power_w=200 power_limit_w=300 power_limit_default_w=700 ecc_uncorrected=0)\n"
        "60s..70s/1s (sample gpu=1 power_w=200 power_limit_w=300 power_limit_default_w=700 ecc_uncorrected=3)\n75s  (watermark)\n"
    ))  # fmt: skip

    assert [(one.topic, one.gpus) for one in played.findings if one.gpus] == [("gpu.ecc-uncorrectable", (1,))]
