"""What a driver call that does not return costs the log: line to `/api/v1/changes`, before, during and after the hang.

Usage: PYTHONPATH=tests latency_hang.py [--hang SECONDS] [--quiet SECONDS]           (60 and 40 if left out)

The real daemon reads its telemetry from the fake driver with eight GPUs, each ticking once a second. First it is quiet; then a call of
one GPU hangs for the given time while lines go on being written. Exit code 1 if the 99th percentile grew by more than
20 ms, or if the hang became no finding.
"""

import argparse
import itertools
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "telemetry"))

from fake_nvml import FakeNvml, build
from latency import following, one_finding

from e2e.daemon import RunningDaemon  # after the path is set: this is a program
from e2e.firing import lines_that_fire

GPUS = 8
MAY_GROW_MS = 20.0
CALL = "nvmlDeviceGetPowerUsage"


def said(name: str, times: list[float]) -> float:
    """Print one row; return its 99th percentile."""
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    print(f"{name:14} {len(times):4} findings: p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms, largest {max(times):.1f} ms", flush=True)
    return cuts[98]


def measure(driver: FakeNvml, folder: Path, hang_s: float, quiet_s: float) -> tuple[float, float, bool]:
    """The 99th percentiles without and with the hang, and whether the hang became a finding."""
    dice, known = random.Random(4), set[str]()
    seeds, lines = itertools.count(), itertools.cycle(lines_that_fire().items())
    log = folder / "server.log"
    log.touch()
    arguments = (str(log), "--telemetry", "nvml", "--timezone", "UTC", "--state-dir", str(folder / "ledger"))
    with RunningDaemon(*arguments, environment=driver.environment()) as daemon, log.open("ab", buffering=0) as out:
        daemon.wait_for(lambda: len([gpu for gpu in daemon.all("gpus") if gpu.get("latest")]) == GPUS)
        client = following(daemon)

        def for_seconds(seconds: float) -> list[float]:
            ends, times = time.monotonic() + seconds, list[float]()
            while time.monotonic() < ends:
                signature, line = next(lines)
                times.append(one_finding(client, out, known, next(seeds), signature, line, dice.uniform(0.05, 0.35)))
            return times

        quiet = said("no hang", for_seconds(quiet_s))
        driver.gpu(5, **{f"{CALL}__hang": 1})
        hanging = said(f"hang of {hang_s:.0f} s", for_seconds(hang_s))
        driver.gpu(5, **{f"{CALL}__hang": 0})
        told = any(one["topic"] == "gpu.driver-hang" for one in daemon.all("findings"))
        said("afterwards", for_seconds(min(quiet_s, 15.0)))
    client.join()
    return quiet, hanging, told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hang", type=float, default=60.0, help="seconds for which one call does not return")
    parser.add_argument("--quiet", type=float, default=40.0, help="seconds without a hang, before")
    options = parser.parse_args()
    print(f"{GPUS} GPUs of the fake driver; load average {os.getloadavg()[0]:.2f}", flush=True)
    with tempfile.TemporaryDirectory(prefix="latency-hang-") as name:
        folder = Path(name)
        driver = FakeNvml(folder, build(folder))
        driver.set(count=GPUS, power_mw=412345, util=97, mem_used_mib=130000)
        quiet, hanging, told = measure(driver, folder, options.hang, options.quiet)
    print(f"p99 {hanging - quiet:+.1f} ms by the hang; gpu.driver-hang {'was' if told else 'was not'} told")
    return 0 if told and hanging - quiet <= MAY_GROW_MS else 1


if __name__ == "__main__":
    sys.exit(main())
