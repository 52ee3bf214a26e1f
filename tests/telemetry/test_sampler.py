"""The NVML sampler on a fake driver, through the real nvidia-ml-py, in its real child process."""

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import FakeNvml
from sampling import HANGING, QUICK, sampling

from sglang_watchdog.model.observation import Watermark
from sglang_watchdog.model.series import EXTRA_SERIES
from sglang_watchdog.sources.nvml_child import Stamp, _paced
from sglang_watchdog.sources.nvml_quantities import counter_rate
from sglang_watchdog.sources.nvml_sampler import look_once
from sglang_watchdog.sources.nvml_status import advice

Fake = Callable[..., FakeNvml]


async def test_a_sample_holds_what_the_driver_says(fake: Fake) -> None:
    driver = fake(
        count=2,
        power_mw=251300,
        util=87,
        mem_util=31,
        sm_mhz=1980,
        reasons=4,
        temp=61,
        pstate=0,
        mem_used_mib=90000,
        gpm__2=55.5,
        gpm__3=20,
        gpm__5=7.25,
        gpm__10=41,
        gpm__20=100,
        gpm__21=200,
        procs="1:500",
        ecc_uncorrected=2,
        field__83=123456,
        field__186=260000,
        field__230=0,
        name="NVIDIA TEST",
    )
    async with sampling(driver) as (_, inbox):
        first = (await inbox.until(lambda _: inbox.samples(1)))[0]
        later = (await inbox.until(lambda _: [each for each in inbox.samples(1) if each.sm_active is not None]))[0]

    assert (first.name, first.uuid, first.gpu) == ("NVIDIA TEST", "GPU-00000001-fake", 1)
    assert (first.power_w, first.power_limit_w, first.power_limit_default_w) == (251.3, 700.0, 700.0)
    assert (first.sm_util, first.mem_util, first.sm_clock_mhz, first.sm_clock_max_mhz) == (87.0, 31.0, 1980.0, 1980.0)
    assert (first.throttle_reasons, first.temp_c, first.pstate) == (("SwPowerCap",), 61.0, 0)
    assert (first.mem_used_mib, first.mem_total_mib, first.extra["mem_reserved_mib"]) == (90000.0, 143771.0, 615.0)
    assert (first.energy_j, first.power_instant_w, first.ecc_uncorrected) == (123.456, 260.0, 2)
    assert first.extra["bandwidth_gbps"] == pytest.approx(4916.7, abs=0.1)
    assert first.processes is not None
    assert first.processes[0].pid == 1
    assert first.sm_active is None  # two snapshots 100 ms apart are needed
    assert (later.sm_active, later.sm_occupancy, later.tensor_active, later.dram_active) == (0.555, 0.2, 0.0725, 0.41)
    assert (later.pcie_tx_kbps, later.pcie_rx_kbps) == (102400.0, 204800.0)
    assert first.nvlink_tx_kbps is None  # not answered: not 0


async def test_each_tick_promises_that_nothing_comes_before_the_next(fake: Fake) -> None:
    """Log lines wait for no sample: the watermark of a tick stands just before the next one."""
    async with sampling(fake(count=1)) as (_, inbox):
        await inbox.new_samples(5)

    marks = [each.at_s for each in inbox.got if isinstance(each, Watermark)]
    stamps = [each.at_s for each in inbox.samples()]
    assert len(marks) >= 4
    for stamp in stamps[:-1]:
        assert any(stamp < mark < stamp + 0.5 for mark in marks)


async def test_slow_quantities_come_every_tenth_tick_and_not_in_between(fake: Fake) -> None:
    async with sampling(fake(count=1, field__83=1000)) as (_, inbox):
        samples = await inbox.new_samples(21)

    with_energy = [place for place, each in enumerate(samples) if each.energy_j is not None]
    assert [later - earlier for earlier, later in pairwise(with_energy)][:1] == [10]
    assert all(each.power_w is not None for each in samples)


async def test_further_readings_are_those_that_are_documented(fake: Fake) -> None:
    fields = {f"field__{number}": 1 for number in range(1, 320)}
    driver = fake(count=1, fan=50, links=18, fabric_state=3, mig=0, **fields)
    async with sampling(driver) as (_, inbox):
        samples = await inbox.new_samples(70)

    assert {name for each in samples for name in each.extra} == set(EXTRA_SERIES)


async def test_each_pair_of_gpus_tells_its_peer_access_and_distance(fake: Fake) -> None:
    driver = fake(count=3, topology=50)
    driver.gpu(0, p2p__2__1=3, topology__1=20)

    async with sampling(driver) as (_, inbox):
        await inbox.new_samples(12)

    told = {gpu: next(sample.extra for sample in inbox.samples(gpu) if "topology_0" in sample.extra or gpu == 0) for gpu in (0, 1, 2)}
    assert {name: value for name, value in told[0].items() if name.startswith(("p2p", "topology"))} == {
        "p2p_status_1": 0, "p2p_status_2": 3, "topology_1": 20, "topology_2": 50,
    }  # fmt: skip
    assert (told[2]["p2p_status_0"], told[2]["p2p_status_1"], told[1]["topology_0"]) == (3, 0, 20)


async def test_a_machine_that_does_not_tell_of_pairs_is_sampled_all_the_same(fake: Fake) -> None:
    driver = fake(count=2, nvmlDeviceGetP2PStatus__rc=3, nvmlDeviceGetTopologyCommonAncestor__rc=999)

    async with sampling(driver) as (_, inbox):
        samples = await inbox.new_samples(12)

    assert all(sample.power_w is not None for sample in samples)
    assert not [name for sample in samples for name in sample.extra if name.startswith(("p2p", "topology"))]


# ---- chains: what a driver of another branch lacks -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("generation", "sources", "blind"),
    [
        (470, {"throttle_reasons": "nvmlDeviceGetCurrentClocksThrottleReasons", "memory": "nvmlDeviceGetMemoryInfo",
               "processes": "nvmlDeviceGetComputeRunningProcesses_v2", "temperature": "nvmlDeviceGetTemperature",
               "temperature_margin": "nvmlDeviceGetTemperatureThreshold"}, {"gpm", "fabric"}),
        (535, {"throttle_reasons": "nvmlDeviceGetCurrentClocksEventReasons", "memory": "nvmlDeviceGetMemoryInfo_v2",
               "processes": "nvmlDeviceGetComputeRunningProcesses_v3", "temperature": "nvmlDeviceGetTemperature",
               "gpm": "nvmlGpmMetricsGet"}, {"fabric"}),
        (550, {"fabric": "nvmlDeviceGetGpuFabricInfoV v2", "temperature": "nvmlDeviceGetTemperature"}, set()),
        (580, {"fabric": "nvmlDeviceGetGpuFabricInfoV v3", "temperature": "nvmlDeviceGetTemperatureV",
               "temperature_margin": "nvmlDeviceGetMarginTemperature"}, set()),
    ],
)  # fmt: skip
async def test_older_drivers_are_read_by_the_calls_they_have(fake: Fake, generation: int, sources: dict[str, str], blind: set[str]) -> None:
    driver = fake(generation, count=1, fabric_state=3, gpm__2=50, procs="1:5")
    async with sampling(driver) as (sampler, inbox):
        await inbox.new_samples(12)
        status = sampler.status

    assert sources.items() <= status.gpus[0].sources.items()
    for quantity in blind:
        assert "Function Not Found" in status.gpus[0].blind[quantity]
    last = inbox.samples()[-1]
    assert None not in (last.power_w, last.temp_c, last.mem_used_mib, last.throttle_reasons, last.processes)


@pytest.mark.parametrize(
    ("call", "quantity", "attribute"),
    [
        ("nvmlDeviceGetPowerUsage", "power", "power_w"),
        ("nvmlDeviceGetUtilizationRates", "utilization", "sm_util"),
        ("nvmlDeviceGetClockInfo", "sm_clock", "sm_clock_mhz"),
        ("nvmlDeviceGetPerformanceState", "pstate", "pstate"),
        ("nvmlDeviceGetCurrPcieLinkGeneration", "pcie_gen", "pcie_gen"),
        ("nvmlDeviceGetCurrPcieLinkWidth", "pcie_width", "pcie_width"),
        ("nvmlDeviceGetPcieReplayCounter", "pcie_replay", "pcie_replay"),
        ("nvmlDeviceGetTotalEccErrors", "ecc", "ecc_uncorrected"),
        ("nvmlDeviceGetMaxClockInfo", "sm_clock_max", "sm_clock_max_mhz"),
        ("nvmlDeviceGetComputeRunningProcesses_v3", "", ""),
        ("nvmlGpmQueryDeviceSupport", "gpm", "sm_active"),
        ("nvmlDeviceGetFieldValues", "energy_j", "energy_j"),
    ],
)
@pytest.mark.parametrize("code", [3, 4], ids=["not-supported", "no-permission"])
async def test_what_is_not_supported_is_none_said_once_and_asked_once(fake: Fake, call: str, quantity: str, attribute: str, code: int) -> None:
    driver = fake(count=1, gpm__2=50, field__83=1000, **{f"{call}__rc": code})
    async with sampling(driver) as (sampler, inbox):
        samples = await inbox.new_samples(12)
        status = sampler.status

    assert samples[-1].error is None
    if not quantity:  # the list of an older version stands in
        assert status.gpus[0].sources["processes"] == "nvmlDeviceGetComputeRunningProcesses_v2"
        return
    assert all(getattr(each, attribute) is None for each in samples)
    assert {3: "Not Supported", 4: "Insufficient Permissions"}[code] in status.gpus[0].blind[quantity]
    assert status.calls[call]["count"] <= 2  # ClockInfo: once for each of two clocks


async def test_one_field_of_a_batch_that_is_not_supported_does_not_cost_the_others(fake: Fake) -> None:
    driver = fake(count=1, field__83=5000, field__186=1000, field__186__rc=3)
    async with sampling(driver) as (sampler, inbox):
        samples = await inbox.new_samples(12)

    assert {each.energy_j for each in samples} == {5.0, None}
    assert all(each.power_instant_w is None for each in samples)
    assert sampler.status.gpus[0].blind["power_instant_w"] == "field 186: Not Supported"


async def test_gpm_can_be_left_to_others(fake: Fake) -> None:
    async with sampling(fake(count=1, gpm__2=50, field__197=0), gpm=False) as (sampler, inbox):
        samples = await inbox.new_samples(12)
        status = sampler.status

    assert all(each.sm_active is None for each in samples)
    assert samples[-1].pcie_tx_kbps == 0
    assert status.gpus[0].blind["gpm"] == "switched off by configuration"
    assert "nvmlGpmSampleGet" not in status.calls


async def test_a_list_that_grows_between_two_calls_is_read_again(fake: Fake) -> None:
    driver = fake(count=1, procs=",".join(f"{pid}:10" for pid in range(500, 520)))
    async with sampling(driver) as (_, inbox):
        assert len((await inbox.new_samples())[-1].processes or ()) == 20
        driver.set(procs_grow=1)
        grown = (await inbox.new_samples(3))[-1]
        driver.set(procs_grow=0, procs="")
        last = (await inbox.new_samples(3))[-1]

    assert grown.processes is None  # not told this time; not "no process"
    assert last.processes == ()


# ---- no driver ------------------------------------------------------------------------------------------------------


async def test_no_library_is_an_ordinary_state_said_once_and_tried_again(fake: Fake) -> None:
    driver = fake(count=1)
    hidden = driver.library / "hidden"
    environment = driver.environment() | {"LD_LIBRARY_PATH": str(hidden)}
    async with sampling(driver, environment=environment) as (sampler, inbox):
        await inbox.until(lambda _: sampler.status.children >= 3)
        assert sampler.status.state in ("no-library", "starting")
        hidden.symlink_to(driver.library)
        try:
            await inbox.new_samples(1)
        finally:
            hidden.unlink()

    assert [each.reason.split(":")[0] for each in inbox.gaps()] == ["no-library"]
    assert "install the NVIDIA driver" in inbox.gaps()[0].reason
    assert any(isinstance(each, Watermark) for each in inbox.got[:3])  # the log never waits


@pytest.mark.parametrize(
    ("state", "why"), [({"nvmlInitWithFlags.rc": 9}, "no-driver"), ({"nvmlInitWithFlags.rc": 18}, "mismatch"), ({"count": 0}, "no-gpu")]
)
async def test_a_driver_that_comes_later_is_found(fake: Fake, state: dict[str, Any], why: str) -> None:
    driver = fake(count=1)
    driver.update(state)
    async with sampling(driver) as (sampler, inbox):
        await inbox.until(lambda _: inbox.gaps())
        assert sampler.status.state == why
        assert inbox.gaps()[0].reason.startswith(why)
        driver.update(dict.fromkeys(state) | {"count": 1})
        await inbox.new_samples(1)
        await inbox.until(lambda _: sampler.status.is_up)


@pytest.mark.parametrize("code", [1, 9, 18], ids=["uninitialized", "driver-not-loaded", "version-mismatch"])
async def test_a_driver_that_goes_away_under_us_is_met_by_a_fresh_process(fake: Fake, code: int) -> None:
    driver = fake(count=1)
    async with sampling(driver) as (sampler, inbox):
        await inbox.new_samples(1)
        pid = sampler.status.child_pid
        driver.set(nvmlDeviceGetPowerUsage__rc=code)
        await inbox.until(lambda _: inbox.gaps())
        driver.set(nvmlDeviceGetPowerUsage__rc=0)
        await inbox.new_samples(2)
        assert sampler.status.child_pid != pid

    assert inbox.gaps()[0].reason.startswith("driver-gone: nvmlDeviceGetPowerUsage")


async def test_an_energy_counter_that_begins_anew_means_a_reloaded_driver(fake: Fake) -> None:
    driver = fake(count=1, field__83=9000)
    async with sampling(driver) as (_, inbox):
        await inbox.new_samples(1)
        driver.set(field__83=10)
        await inbox.until(lambda _: inbox.gaps())
        await inbox.new_samples(1)

    assert inbox.gaps()[0].reason.startswith("driver-reloaded")


async def test_a_single_look_tells_what_is_read_and_what_is_blind(fake: Fake) -> None:
    status = await look_once(environment=fake(count=2).environment())

    assert (status.state, status.driver, len(status.gpus)) == ("sampling", "580.00", 2)
    assert status.gpus[1].sources["power"] == "nvmlDeviceGetPowerUsage"
    assert status.gpus[1].blind["fan"] == "nvmlDeviceGetFanSpeed: Not Supported"
    assert status.to_json()["calls"]


async def test_a_single_look_at_a_machine_without_driver_tells_why_and_what_to_do(fake: Fake) -> None:
    status = await look_once(environment=fake(nvmlInitWithFlags__rc=9).environment())

    assert status.state == "no-driver"
    assert "kernel module" in status.reason
    assert "modprobe nvidia" in advice(status.state)


async def test_a_single_look_does_not_wait_for_a_driver_that_hangs(fake: Fake) -> None:
    status = await look_once(environment=fake(nvmlInitWithFlags__hang=1).environment(), within_s=1.5)

    assert (status.state, status.reason) == ("starting", "no answer within 1.5 s")


# ---- a GPU that fails -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [15, 16, 28], ids=["lost", "reset-required", "not-found"])
async def test_a_gpu_lost_in_mid_tick_is_benched_and_the_others_go_on(fake: Fake, code: int) -> None:
    driver = fake(count=8, power_mw=100000)
    async with sampling(driver) as (sampler, inbox):
        await inbox.new_samples(1, gpu=7)
        driver.gpu(3, rc=code)
        event = (await inbox.until(lambda _: inbox.events()))[0]
        others = await inbox.new_samples(3, gpu=4)
        lost = inbox.samples(3)[-1]
        calls = sampler.status.calls

    assert (event.event, event.gpu, event.uuid) == ("lost", 3, "GPU-00000003-fake")
    assert event.reason.startswith("nvmlDeviceGetPowerUsage: ")
    assert others[-1].power_w == 100.0
    assert (lost.power_w, lost.uuid) == (None, "GPU-00000003-fake")
    assert lost.error
    assert len(inbox.events()) == 1
    assert calls["nvmlDeviceGetHandleByIndex"]["count"] == 8  # not asked again at each tick


async def test_three_unknown_errors_in_a_row_are_a_lost_gpu(fake: Fake) -> None:
    """A fallen GPU may answer Unknown where GpuIsLost is meant."""
    driver = fake(count=2)
    async with sampling(driver) as (_, inbox):
        await inbox.new_samples(1)
        driver.gpu(1, rc=999)
        event = (await inbox.until(lambda _: inbox.events()))[0]

    assert (event.event, event.gpu) == ("lost", 1)
    assert "Unknown Error" in event.reason


async def test_a_gpu_lost_at_its_lookup_is_said_with_its_index(fake: Fake) -> None:
    driver = fake(count=3)
    driver.gpu(1, rc=15)
    async with sampling(driver) as (_, inbox):
        await inbox.new_samples(2, gpu=2)

    assert [(each.event, each.gpu) for each in inbox.events()] == [("lost", 1)]
    assert inbox.samples(1)[0].error == "GPU is lost"


async def test_a_node_whose_gpus_are_all_lost_is_tried_again_and_told_once(fake: Fake) -> None:
    driver = fake(count=2)
    async with sampling(driver) as (sampler, inbox):
        await inbox.new_samples(1)
        driver.set(nvmlDeviceGetHandleByIndex_v2__rc=15, nvmlDeviceGetPowerUsage__rc=15)
        await inbox.until(lambda _: sampler.status.children >= 3)
        driver.set(nvmlDeviceGetHandleByIndex_v2__rc=0, nvmlDeviceGetPowerUsage__rc=0)
        await inbox.until(lambda _: [each for each in inbox.events() if each.event == "recovered" and each.gpu == 1])

    told = [(each.event, each.gpu) for each in inbox.events()]
    assert sorted(told) == [("lost", 0), ("lost", 1), ("recovered", 0), ("recovered", 1)]


async def test_a_gpu_missing_after_a_reload_is_told_by_its_uuid(fake: Fake) -> None:
    driver = fake(count=2, field__83=9000)
    async with sampling(driver) as (_, inbox):
        await inbox.new_samples(1)
        driver.set(count=1, nvmlDeviceGetPowerUsage__rc=1)
        await inbox.until(lambda _: inbox.gaps())
        driver.set(nvmlDeviceGetPowerUsage__rc=0)
        event = (await inbox.until(lambda _: inbox.events()))[0]

    assert (event.event, event.gpu, event.uuid) == ("lost", 1, "GPU-00000001-fake")
    assert "no longer listed" in event.reason


async def test_a_mode_change_of_mig_starts_over_and_names_the_instances(fake: Fake) -> None:
    driver = fake(count=1, mig=1, mig_max=3, mig_at=1, util=0, nvmlDeviceGetUtilizationRates__rc=3)
    async with sampling(driver) as (sampler, inbox):
        samples = await inbox.new_samples(12)
        status = sampler.status

    assert status.gpus[0].mig_instances == ("MIG-00000000-fake",)
    assert samples[-1].sm_util is None
    assert samples[-1].mem_used_mib is not None


# ---- hangs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["nvmlDeviceGetPowerUsage", "nvmlDeviceGetFieldValues", "nvmlGpmSampleGet"])
async def test_a_call_that_does_not_return_becomes_an_event_that_names_it(fake: Fake, call: str) -> None:
    driver = fake(count=8, field__83=1000)
    async with sampling(driver, limits=HANGING) as (sampler, inbox):
        await inbox.new_samples(1, gpu=7)
        driver.gpu(5, **{f"{call}__hang": 1})
        event = (await inbox.until(lambda _: inbox.events()))[0]
        others = await inbox.new_samples(3, gpu=6)
        status = sampler.status

    assert (event.event, event.gpu, event.uuid) == ("unresponsive", 5, "GPU-00000005-fake")
    assert event.reason == f"{call} of GPU 5 did not return in 1.5 s"
    assert others
    assert inbox.samples(5)[-1].error == f"unresponsive: {event.reason}"
    assert inbox.samples(5)[-1].uuid == "GPU-00000005-fake"
    assert status.state == "sampling"
    assert [each.reason.split(":")[0] for each in inbox.gaps()] == ["late", "hung"]


async def test_a_lookup_that_hangs_is_told_and_left_out(fake: Fake) -> None:
    driver = fake(count=2)
    driver.gpu(0, nvmlDeviceGetHandleByIndex_v2__hang=1)
    async with sampling(driver, limits=replace(HANGING, init_silent_s=1.5)) as (_, inbox):
        event = (await inbox.until(lambda _: inbox.events()))[0]
        await inbox.new_samples(2, gpu=1)

    assert (event.event, event.gpu) == ("unresponsive", 0)
    assert event.reason.startswith("nvmlDeviceGetHandleByIndex of GPU 0")


async def test_a_gpu_that_answers_again_after_its_hang_is_recovered(fake: Fake) -> None:
    driver = fake(count=2)
    async with sampling(driver, limits=replace(HANGING, skip_s=0.5)) as (_, inbox):
        await inbox.new_samples(1, gpu=1)
        driver.gpu(0, nvmlDeviceGetPowerUsage__hang=1)
        await inbox.until(lambda _: inbox.events())
        driver.gpu(0, nvmlDeviceGetPowerUsage__hang=0)
        await inbox.until(lambda _: len(inbox.events()) == 2)
        await inbox.new_samples(2, gpu=0)

    assert [(each.event, each.gpu) for each in inbox.events()] == [("unresponsive", 0), ("recovered", 0)]


async def test_a_process_that_cannot_be_killed_is_abandoned_and_no_other_is_started_for_a_while(fake: Fake) -> None:
    """In the kernel, uninterruptible, signals do not arrive; here the kill is a stand-in that does nothing."""
    driver = fake(count=1)
    kills: list[int] = []

    def deaf(pid: int, _: int) -> None:
        kills.append(pid)

    limits = replace(HANGING, pause_after_stuck_s=1.5)
    try:
        async with sampling(driver, limits=limits, kill=deaf) as (sampler, inbox):
            await inbox.new_samples(1)
            driver.set(nvmlDeviceGetPowerUsage__hang=1)
            event = (await inbox.until(lambda _: inbox.events()))[0]
            await inbox.until(lambda _: sampler.status.state == "stuck")
            loop = asyncio.get_running_loop()
            began = loop.time()
            await inbox.until(lambda _: sampler.status.children >= 2)
            waited_s = loop.time() - began
    finally:
        for pid in kills:
            os.kill(pid, signal.SIGKILL)

    assert "cannot be ended (state " in event.reason
    assert waited_s >= 1.2
    assert [each.reason.split(":")[0] for each in inbox.gaps()][:2] == ["late", "stuck"]


async def test_three_hangs_within_an_hour_end_the_attempts_and_the_log_goes_on(fake: Fake) -> None:
    driver = fake(count=1, nvmlDeviceGetCount_v2__hang=1)
    limits = replace(HANGING, init_silent_s=1.5)
    async with sampling(driver, limits=limits) as (sampler, inbox):
        await inbox.until(lambda _: sampler.status.children == 3 and sampler.status.state == "hung")
        marks = sum(isinstance(each, Watermark) for each in inbox.got)
        await inbox.until(lambda got: sum(isinstance(each, Watermark) for each in got) >= marks + 2)
        assert sampler.status.children == 3

    assert len(inbox.events()) == 1
    assert inbox.events()[0].reason.startswith("nvmlDeviceGetCount of the driver")


async def test_a_late_tick_is_a_gap_and_the_log_does_not_wait_for_it(fake: Fake) -> None:
    driver = fake(count=1)
    async with sampling(driver, limits=QUICK) as (_, inbox):
        await inbox.new_samples(1)
        driver.set(nvmlDeviceGetPowerUsage__ms=1200)
        gap = (await inbox.until(lambda _: inbox.gaps()))[0]
        place = inbox.got.index(gap)
        driver.set(nvmlDeviceGetPowerUsage__ms=0)
        await inbox.new_samples(2)

    assert gap.reason == "late: in nvmlDeviceGetPowerUsage of GPU 0"
    assert any(isinstance(each, Watermark) for each in inbox.got[place : place + 3])
    assert not inbox.events()


async def test_a_stopped_child_is_noticed_without_blaming_a_call(fake: Fake) -> None:
    driver = fake(count=1)
    async with sampling(driver, period_s=0.3, limits=HANGING) as (sampler, inbox):
        await inbox.new_samples(2)
        pid = sampler.status.child_pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        await inbox.until(lambda _: any(each.reason.startswith("hung") for each in inbox.gaps()))
        await inbox.new_samples(1)
        assert sampler.status.child_pid != pid

    assert all(each.event != "lost" for each in inbox.events())


async def test_a_child_that_falls_over_tells_its_last_words(fake: Fake) -> None:
    driver = fake(count=1)
    environment = driver.environment() | {"PYTHONHOME": str(driver.folder)}
    async with sampling(driver, environment=environment) as (_, inbox):
        gap = (await inbox.until(lambda _: inbox.gaps()))[0]

    assert gap.reason.startswith("crashed: the sampler process ended with")
    assert "(" in gap.reason  # what Python said last on its standard error


async def test_the_child_goes_when_the_sampler_goes(fake: Fake) -> None:
    async with sampling(fake(count=1)) as (sampler, inbox):
        await inbox.new_samples(1)
        pid = sampler.status.child_pid
        assert pid is not None

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# ---- events ---------------------------------------------------------------------------------------------------------


async def test_an_xid_is_an_event_and_a_burst_of_them_is_two(fake: Fake) -> None:
    driver = fake(count=2, events=0)
    async with sampling(driver) as (sampler, inbox):
        await inbox.until(lambda _: sampler.status.events_error is None and inbox.samples())
        driver.update({"event.any": "1 8 79", "events": 1000})
        await inbox.until(lambda _: len(inbox.events()) == 2)

    first, rest = inbox.events()
    assert (first.event, first.gpu, first.xid, first.reason, first.uuid) == ("xid", 1, 79, "", "GPU-00000001-fake")
    assert (rest.xid, rest.reason) == (79, "999 more of the same")


async def test_an_unavailable_gpu_is_lost(fake: Fake) -> None:
    driver = fake(count=2, events=0)
    async with sampling(driver) as (sampler, inbox):
        await inbox.until(lambda _: sampler.status.events_error is None and inbox.samples())
        driver.update({"event.1": f"1 {0x4000} 79", "events": 1})
        event = (await inbox.until(lambda _: inbox.events()))[0]

    assert (event.event, event.gpu) == ("lost", 1)


async def test_a_driver_without_events_says_so_and_is_sampled(fake: Fake) -> None:
    driver = fake(count=1, nvmlDeviceRegisterEvents__rc=3)
    async with sampling(driver) as (sampler, inbox):
        await inbox.new_samples(1)
        await inbox.until(lambda _: sampler.status.events_error != "not registered yet")

    assert sampler.status.events_error == "no events: Not Supported"


# ---- counters and time ----------------------------------------------------------------------------------------------


async def test_byte_counters_of_32_bits_wrap_and_stay_a_rate(fake: Fake) -> None:
    """Without GPM the traffic is known from counters that wrap every 4 GiB."""
    driver = fake(count=1, gpm=0, field__197__type=1, field__198__type=1, field__197=4294967000, field__198=0)
    async with sampling(driver, period_s=0.1) as (_, inbox):
        await inbox.new_samples(3)
        driver.set(field__197=704)  # 1,000 bytes further
        samples = await inbox.new_samples(3)

    rates = [each.pcie_tx_kbps for each in samples if each.pcie_tx_kbps]
    assert len(rates) == 1
    assert 0 < rates[0] < 1000  # about 10 KiB/s, and not minus 4 GiB
    assert all(each.pcie_rx_kbps == 0 for each in samples)


@pytest.mark.parametrize("true_rate", [1e3, 3e9, 25e9, 56e9])
def test_a_hint_from_a_short_moment_tells_how_often_a_counter_wrapped(true_rate: float) -> None:
    before, seconds = 123_456_789, 1.07
    now = (before + int(true_rate * seconds)) % (1 << 32)
    hint = true_rate * 1.03  # the moment was a little busier

    assert counter_rate(before, now, seconds, 32, hint) == pytest.approx(true_rate, rel=0.04, abs=2)


def test_a_small_step_back_of_the_clock_is_ironed_out_and_a_great_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, monotonic = [1000.0], [50.0]
    monkeypatch.setattr("sglang_watchdog.sources.nvml_child.time.time", lambda: wall[0])
    monkeypatch.setattr("sglang_watchdog.sources.nvml_child.time.monotonic", lambda: monotonic[0])
    stamp = Stamp()
    assert stamp.next() == 1000.0
    wall[0], monotonic[0] = 999.0, 51.0
    assert stamp.next() == pytest.approx(1000.9)
    wall[0], monotonic[0] = 400.0, 52.0
    assert stamp.next() == 400.0


def test_a_slow_driver_is_asked_less_often_and_a_quick_one_again_at_the_wanted_rate() -> None:
    assert _paced(1.0, 250.0, 1.0) == 2.0
    assert _paced(8.0, 250.0, 1.0) == 8.0
    assert _paced(2.0, 100.0, 1.0) == 2.0
    assert _paced(2.0, 20.0, 1.0) == 1.0


async def test_observations_stay_in_order_and_apart_when_the_clock_jumps_back(fake: Fake) -> None:
    """The inbox of these tests fails on anything that a watermark has promised away."""
    ahead_s = time.time() + 3600  # the daemon's clock, before it is set right
    driver = fake(count=1, nvmlInitWithFlags__rc=9)
    async with sampling(driver, clock=lambda: ahead_s) as (_, inbox):
        await inbox.until(lambda got: any(isinstance(each, Watermark) for each in got))
        driver.set(nvmlInitWithFlags__rc=0)
        samples = await inbox.new_samples(5)

    assert "stepped back by 3" in inbox.gaps()[-1].reason
    assert all(0.01 < later.at_s - earlier.at_s < 2 for earlier, later in pairwise(samples))


# ---- the fake itself ------------------------------------------------------------------------------------------------


def test_the_fake_s_structs_are_those_of_the_binding(fake: Fake) -> None:
    pynvml: Any = pytest.importorskip("pynvml", reason="install nvidia-ml-py")
    library = ctypes.CDLL(str(fake().library / "libnvidia-ml.so.1"))
    for name, struct in {
        "memory2": pynvml.c_nvmlMemory_v2_t,
        "process": pynvml.c_nvmlProcessInfo_v3_t,
        "field": pynvml.c_nvmlFieldValue_t,
        "event": pynvml.c_nvmlEventData_t,
        "fabric": pynvml.c_nvmlGpuFabricInfo_v3_t,
        "gpm_metric": pynvml.c_nvmlGpmMetric_t,
    }.items():
        size = getattr(library, f"fake_sizeof_{name}")
        size.restype = ctypes.c_size_t
        assert size() == ctypes.sizeof(struct), name


def test_process_titles_hold_no_command_line(tmp_path: Path) -> None:
    from sglang_watchdog.sources.nvml_processes import ProcessNames

    for pid, comm, command in (
        (10, "sglang::schedul", b"sglang::scheduler_TP1\0--api-key\0secret"),
        (11, "python3", b"python3\0-m\0sglang.launch_server\0--api-key\0secret"),
        (12, "odd) name", b"odd\0"),
    ):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({comm}) S 7 1 1 0")
        (tmp_path / str(pid) / "cmdline").write_bytes(command)
    names = ProcessNames(tmp_path)

    assert names.look_up(10) == (7, "sglang::scheduler_TP1")
    assert names.look_up(11) == (7, "python3")
    assert names.look_up(12) == (7, "odd) name")
    assert names.look_up(13) == (None, None)


async def test_a_machine_whose_counters_belong_to_another_profiler_is_sampled_without_them(fake: Fake) -> None:
    driver = fake(count=1, gpm__2=50)

    async with sampling(driver, gpm=False) as (_, inbox):
        sample = (await inbox.new_samples(3))[-1]

    assert sample.sm_active is None
    assert sample.power_w is not None


async def test_processes_are_listed_as_often_as_asked(fake: Fake) -> None:
    """Between two lists the field is absent: not read, not empty."""
    driver = fake(count=1, procs="1:5")

    async with sampling(driver, period_s=0.05, process_s=0.5) as (_, inbox):
        samples = await inbox.new_samples(24)

    listed = [sample.at_s for sample in samples if sample.processes is not None]
    assert 1 <= len(listed) <= len(samples) / 3
    assert all(after - before >= 0.3 for before, after in pairwise(listed))
