"""The daemon through a day of log and GPU samples at speed: memory, tasks and metric series at the end of each simulated hour.

Usage: day_daemon.py [HOURS]     (24 if left out: some minutes)
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from e2e import day


def main() -> None:
    hours = float(sys.argv[1]) if len(sys.argv) > 1 else 24.0
    began_s = time.monotonic()
    print(f"{'hour':>5} {'lines':>9} {'memory MiB':>11} {'tasks':>6} {'series':>7} {'findings':>9} {'ledger KiB':>11} {'s':>6}")
    with tempfile.TemporaryDirectory() as folder:
        readings = []
        for reading in day.live(Path(folder), hours):
            readings.append(reading)
            print(
                f"{reading.hour:>5.0f} {reading.lines:>9,} {reading.memory_bytes / 2**20:>11.1f} {reading.tasks:>6.0f} {len(reading.series):>7} "
                f"{reading.findings:>9} {reading.ledger_bytes / 2**10:>11.0f} {time.monotonic() - began_s:>6.0f}",
                flush=True,
            )
    first, last = readings[0], readings[-1]
    print(f"series that came: {sorted(last.series - first.series) or 'none'}; that went: {sorted(first.series - last.series) or 'none'}")
    print(f"from hour 1 to {last.hour:.0f}: {(last.memory_bytes - first.memory_bytes) / 2**20:+.1f} MiB, {last.tasks - first.tasks:+.0f} tasks")


if __name__ == "__main__":
    main()
