"""A day of samples and batch lines under a simulated clock: memory and speed at each simulated hour. Run it as a program.

Eight GPUs at 1 Hz and a Decode line every second go through the engine as the daemon would feed them. Without signatures a day takes
minutes and shows what windows and facts hold; with `--signatures` the whole library is judged every second, which takes an hour or more.
Prints the resident set, the size of what the engine holds and the milliseconds for each simulated second. Exit code 1 if the last
hour holds more than 2 % above the third (by then every window is full).

    python tests/bench/day.py --hours 24 [--signatures]
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2] / "daemon")]

from sglang_watchdog.engine.engine import Engine  # noqa: E402  # after the path is set: this is a program
from sglang_watchdog.library.load import load  # noqa: E402
from sglang_watchdog.model.observation import Batch, Dump, GpuProcess, Observation, Position, Probe, Sample, Watermark  # noqa: E402

T0 = 1_796_053_575.0
GPUS = 8
NAME = "NVIDIA H200"


def second(at_s: float, number: int) -> Iterator[Observation]:
    """What one second brings: a sample of each GPU, a Decode line, now and then a Prefill line, and the watermarks."""
    running, line = 64 + number % 7, Position("server.log", number + 10, 200 * number)
    for gpu in range(GPUS):
        slow: dict[str, Any] = {"extra": {"temp_margin_c": 40.0, "bandwidth_gbps": 4813.8}} if (number + gpu) % 10 == 0 else {}
        yield Sample(
            at_s=at_s, gpu=gpu, uuid=f"GPU-{gpu}", name=NAME, power_w=480.0 + (number + gpu) % 40, power_limit_w=700.0, sm_util=97.0, mem_util=60.0,
            sm_clock_mhz=1980.0, sm_clock_max_mhz=1980.0, mem_clock_mhz=3201.0, mem_clock_max_mhz=3201.0, temp_c=55.0, pstate=0,
            throttle_reasons=(), mem_used_mib=130_000.0, mem_total_mib=143_771.0, sm_active=0.7, sm_occupancy=0.3, tensor_active=0.1,
            dram_active=0.5, pcie_gen=5, pcie_gen_max=5, pcie_width=16, pcie_width_max=16, pcie_replay=0, energy_j=1e6 + 480.0 * number,
            processes=(GpuProcess(pid=100 + gpu, ppid=50, name="sglang::scheduler"),), **slow,
        )  # fmt: skip
    yield Watermark(source="gpus", at_s=at_s)
    if number % 20 == 0:
        yield Batch(at_s=at_s, position=line, is_decode=False, running_requests=running, queue_requests=0, new_sequences=1, new_tokens=300, cached_tokens=0)
    yield Batch(
        at_s=at_s, position=line, rank="TP0", is_decode=True, running_requests=running, queue_requests=0, used_tokens=90_000 + number % 1000,
        kv_used_ratio=0.2, tokens_per_s=13_000.0 + number % 300, graph=True, text=f"Decode batch, #running-req: {running}",
    )  # fmt: skip
    yield Watermark(source="server.log", at_s=at_s)


def start() -> Iterator[Observation]:
    """A server of eight GPUs that has been told everything a ceiling needs."""
    yield Dump(at_s=T0, position=Position("server.log", 1, 0), args={"tp_size": GPUS, "model_path": "/models/m"}, digest="0" * 16)
    facts = {"model.is_moe": False, "run.weights_gib": 15.0, "run.kv_tokens": 1_000_000, "run.k_gib": 50.0, "run.v_gib": 50.0, "run.launcher_pid": 50}
    yield Probe(at_s=T0, source="server.log", origin="bench", facts=facts)


def held_bytes(root: object) -> int:
    """Bytes of everything reachable from `root` that is data: containers, numbers, texts and objects with slots or a dict."""
    seen: set[int] = set()
    todo: list[object] = [root]
    total = 0
    while todo:
        each = todo.pop()
        if id(each) in seen or isinstance(each, type) or callable(each):
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        if isinstance(each, dict):
            todo += [*each.keys(), *each.values()]
        elif isinstance(each, str | bytes | int | float):
            continue
        else:
            if hasattr(each, "__iter__") and hasattr(each, "__len__"):
                todo += list(each)
            names = chain.from_iterable(getattr(kind, "__slots__", ()) for kind in type(each).__mro__)
            todo += [getattr(each, name, None) for name in names]
            todo += list(getattr(each, "__dict__", {}).values())
    return total


def resident_mib() -> float:
    """The resident set of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1024**2


def simulate(engine: Engine, hours: float, step_s: int = 3600) -> Iterator[dict[str, float]]:
    """Feed so many hours; yield the figures of each step."""
    for source in ("gpus", "server.log"):
        engine.announce(source)
    for observation in start():
        engine.feed(observation)
    began = time.perf_counter()
    for number in range(1, int(hours * 3600) + 1):
        for observation in second(T0 + number, number):
            engine.feed(observation)
        if number % step_s == 0:
            spent_ms = (time.perf_counter() - began) * 1e3 / step_s
            yield {
                "hour": round(number / 3600, 2), "rss_mib": round(resident_mib(), 1), "held_mib": round(held_bytes(engine.state) / 1024**2, 2),
                "ms_per_simulated_second": round(spent_ms, 2),
            }  # fmt: skip
            began = time.perf_counter()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--signatures", action="store_true", help="judge the whole library every second")
    asked = parser.parse_args()
    whole = load().library
    library = whole if asked.signatures else replace(whole, signatures={}, milestones=())
    rows = []
    for row in simulate(Engine(library, server="bench"), asked.hours):
        print(json.dumps(row), flush=True)
        rows.append(row)
    if len(rows) < 4:
        return 0
    return int(rows[-1]["held_mib"] > 1.02 * rows[2]["held_mib"] or rows[-1]["rss_mib"] > 1.05 * rows[2]["rss_mib"])


if __name__ == "__main__":
    sys.exit(main())
