"""What the NVML sampler costs, on the fake driver with eight GPUs: run it as a program.

Prints the child's share of a core at 1 Hz, the cost of a tick, and how long the parent's event loop was held up while a
call hung. The fake answers at once, so this is the cost of our own code and of nvidia-ml-py; what the driver adds is in
tests/gpu. Exit code 1 if a budget is broken: 1 % of a core, 50 ms a tick (99th percentile), 50 ms of held-up loop.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "daemon"), str(Path(__file__).parents[1] / "telemetry")]

from fake_nvml import FakeNvml, build  # noqa: E402  # after the path is set: this is a program

from sglang_watchdog.model.observation import GpuEvent, Observation, Sample  # noqa: E402
from sglang_watchdog.sources.nvml_sampler import NvmlSampler  # noqa: E402

STATE = {
    "count": 8, "power_mw": 412345, "util": 97, "mem_util": 41, "sm_mhz": 1980, "reasons": 4, "mem_used_mib": 130000,
    "procs": f"{os.getpid()}:130000,{os.getppid()}:500", "links": 18, "fabric_state": 3, "field.83": 123456789,
    "field.186": 500000, "field.230": 0, "field.74": 1000000, "field.82": 60, "field.90": 26562,
    **{f"gpm.{metric}": 33.3 for metric in (2, 3, 5, 10, 20, 21, 60, 61)},
}  # fmt: skip


def percentile(values: list[float], share: float) -> float:
    """Return the value below which this share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def cpu_s(pid: int) -> float:
    """Processor time of a process so far, from /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def loop_lags(lags: list[float]) -> None:
    """Note how late the loop wakes a sleeper of 10 ms: what it was held up by."""
    while True:
        began = time.perf_counter()
        await asyncio.sleep(0.01)
        lags.append(time.perf_counter() - began - 0.01)


async def measure(driver: FakeNvml, seconds: float, hang_s: float) -> dict[str, float]:
    """Run the sampler, quiet and then with a hanging call, and return the figures."""
    ticks: list[float] = []
    got: list[Observation] = []

    async def put(observation: Observation) -> None:
        got.append(observation)

    sampler = NvmlSampler(put, environment=driver.environment())
    task = asyncio.create_task(sampler.run())
    while not sampler.status.is_up or sampler.status.child_pid is None:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await asyncio.sleep(2)  # imports and first probes are no part of the steady cost
    pid = sampler.status.child_pid
    began_s, began_cpu_s, parent_cpu_s = time.perf_counter(), cpu_s(pid), time.process_time()
    seen = sampler.status.tick_ms
    lags: list[float] = []
    watch = asyncio.create_task(loop_lags(lags))
    while time.perf_counter() - began_s < seconds:
        await asyncio.sleep(0.05)
        if sampler.status.tick_ms is not None and sampler.status.tick_ms != seen:
            seen = sampler.status.tick_ms
            ticks.append(seen)
    took_s = time.perf_counter() - began_s
    figures = {
        "seconds": round(took_s, 1),
        "gpus": 8,
        "child_cpu_percent": round(100 * (cpu_s(pid) - began_cpu_s) / took_s, 3),
        "parent_cpu_percent": round(100 * (time.process_time() - parent_cpu_s) / took_s, 3),
        "tick_ms_median": percentile(ticks, 0.5),
        "tick_ms_p99": percentile(ticks, 0.99),
        "loop_lag_ms_p99": round(1e3 * percentile(lags, 0.99), 2),
        "loop_lag_ms_max": round(1e3 * max(lags), 2),
        "samples": sum(isinstance(each, Sample) for each in got),
    }
    lags.clear()
    driver.gpu(5, nvmlDeviceGetPowerUsage__hang=1)
    await asyncio.sleep(hang_s)
    driver.gpu(5, nvmlDeviceGetPowerUsage__hang=0)
    watch.cancel()
    task.cancel()
    await asyncio.gather(task, watch, return_exceptions=True)
    events = [each for each in got if isinstance(each, GpuEvent)]
    return figures | {
        "hang_seconds": hang_s,
        "hang_events": len(events),
        "hang_loop_lag_ms_p99": round(1e3 * percentile(lags, 0.99), 2),
        "hang_loop_lag_ms_max": round(1e3 * max(lags), 2),
    }


def main() -> int:
    """Measure, print one JSON object, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="quiet sampling")
    parser.add_argument("--hang", type=float, default=60, help="seconds for which one call does not return")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        driver = FakeNvml(Path(folder), build(Path(folder)))
        driver.update(STATE)
        figures = asyncio.run(measure(driver, options.seconds, options.hang))
    print(json.dumps(figures, indent=2))
    held = [
        figures["child_cpu_percent"] <= 1.0,
        figures["tick_ms_p99"] <= 50.0,
        figures["hang_loop_lag_ms_p99"] <= 50.0,
        figures["hang_events"] == (1 if options.hang > 12 else 0),
    ]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
