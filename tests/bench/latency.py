"""Time from the write of a log line to the arrival of its finding on `/api/v1/changes`: the real daemon, a real file, a real client.

Usage: PYTHONPATH=tests latency.py [FINDINGS]               (200 for each way of waking if left out)

Every finding is a new one: a run begins, then one line comes from the library's examples that raises a finding at once, another
signature each time. Written and received in this process, so by one clock. Prints p50, p99 and the largest, with inotify and by
polling.
"""

import itertools
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import BinaryIO

from e2e.changes import ChangesClient, Event
from e2e.daemon import RunningDaemon
from e2e.firing import dump, lines_that_fire, stamped

TARGET_MS = {"inotify": 50.0, "poll": 300.0}
WAIT_S = 15.0


def fired(client: ChangesClient, signature: str, run: str) -> Event:
    """The event that says it fires now, in that run."""
    ends = time.monotonic() + WAIT_S
    while True:
        event = client.events.get(timeout=max(0.01, ends - time.monotonic()))
        finding = event.data.get("finding")
        if finding and finding["signature"] == signature and finding["run"] == run and event.data["was"] is None and event.data["state"] == "firing":
            return event


def opened(client: ChangesClient, known: set[str]) -> str:
    ends = time.monotonic() + WAIT_S
    while True:
        event = client.events.get(timeout=max(0.01, ends - time.monotonic()))
        if event.name == "run" and event.data["run"]["id"] not in known:
            known.add(event.data["run"]["id"])
            return str(event.data["run"]["id"])


def measure(wake: str, findings: int, lines: dict[str, str]) -> list[float]:
    """Milliseconds for each finding."""
    dice, known = random.Random(4), set[str]()
    times: list[float] = []
    with tempfile.TemporaryDirectory(prefix="latency-") as directory:
        log = Path(directory, "server.log")
        log.touch()
        arguments = (str(log), "--telemetry", "none", "--timezone", "UTC", "--state-dir", f"{directory}/state")
        with RunningDaemon(*arguments, environment={"SGLANG_WATCHDOG_TAIL__WAKE": wake}) as daemon, log.open("ab", buffering=0) as out:
            client = following(daemon)
            for seed, (signature, line) in zip(range(findings), itertools.cycle(lines.items())):
                times.append(one_finding(client, out, known, seed, signature, line, dice.uniform(0.05, 0.35)))
        client.join()
    return times


def following(daemon: RunningDaemon) -> ChangesClient:
    """A client of the daemon's changes, once its log is being read."""
    daemon.wait_for(lambda: any(one["state"] == "reading" for one in daemon.all("sources")))
    client = ChangesClient()
    client.connect(daemon.url)
    return client


def one_finding(client: ChangesClient, out: BinaryIO, known: set[str], seed: int, signature: str, line: str, pause_s: float) -> float:
    """Begin a run, write the line `pause_s` later; milliseconds from there to the arrival of its finding."""
    out.write(dump(seed).encode())
    run = opened(client, known)
    time.sleep(pause_s)  # not in step with anything that beats in the daemon
    data = stamped(line).encode()
    began = time.monotonic()
    out.write(data)
    return (fired(client, signature, run).arrived_s - began) * 1000


def main(findings: int) -> None:
    lines = lines_that_fire()
    print(f"{len(lines)} signatures with a line that raises them at once; load average {os.getloadavg()[0]:.2f}")
    for wake, target_ms in TARGET_MS.items():
        times = measure(wake, findings, lines)
        cuts = statistics.quantiles(times, n=100, method="inclusive")
        verdict = "met" if cuts[98] <= target_ms else "missed"
        print(f"{wake:8} {len(times)} findings: p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms (target {target_ms:.0f}: {verdict}), largest {max(times):.1f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
