"""The sampler on real GPUs: what it reads beside nvidia-smi, what it costs, and captures of claimed and real load.

    PYTHONPATH=daemon python tests/gpu/measure.py OUT [--seconds 45]

Needs an NVIDIA GPU, PyTorch and nvidia-ml-py; about five minutes. Writes into OUT: nvml.jsonl.gz (a recording that
`check --telemetry` reads), server-*.log, nvidia-smi.csv, figures.json and probes.json. With two GPUs or more, a server
that is starved and one that is busy run side by side, then one server over two uneven GPUs.
"""

import argparse
import asyncio
import csv
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from sglang_watchdog.model.observation import Gap, GpuEvent, Observation, Sample
from sglang_watchdog.sources.nvml_sampler import NvmlSampler
from sglang_watchdog.sources.telemetry_writer import RecordingWriter

HERE = Path(__file__).parent
#: nvidia-smi's column: our field
COLUMNS = {
    "power.draw.average": "power_w",
    "power.draw": "power_w",
    "enforced.power.limit": "power_limit_w",
    "utilization.gpu": "sm_util",
    "utilization.memory": "mem_util",
    "memory.used": "mem_used_mib",
    "memory.total": "mem_total_mib",
    "clocks.sm": "sm_clock_mhz",
    "clocks.mem": "mem_clock_mhz",
    "clocks.max.sm": "sm_clock_max_mhz",
    "temperature.gpu": "temp_c",
    "pcie.link.gen.current": "pcie_gen",
    "pcie.link.gen.max": "pcie_gen_max",
    "pcie.link.width.current": "pcie_width",
    "pcie.link.width.max": "pcie_width_max",
}


class Run:
    """The sampler, its recording, and what happened when."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.samples: list[Sample] = []
        self.others: list[str] = []
        self.phases: list[dict[str, Any]] = []
        self._writer = RecordingWriter(out / "nvml.jsonl.gz", max_bytes=1 << 30)

    async def put(self, observation: Observation) -> None:
        """Record what the sampler delivers."""
        if isinstance(observation, Sample | GpuEvent | Gap):
            self._writer.write(observation)
        if isinstance(observation, Sample):
            self.samples.append(observation)
        elif isinstance(observation, GpuEvent | Gap):
            self.others.append(repr(observation))

    async def phase(self, name: str, *commands: list[str]) -> list[Any]:
        """Run programs of this folder side by side and note when, and what they printed."""
        began = time.time()
        running = [
            await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
            for command in commands
        ]
        outputs = await asyncio.gather(*(each.communicate() for each in running))
        answers = [json.loads(out.decode().strip().splitlines()[-1]) if out.strip() else None for out, _ in outputs]
        self.phases.append({"name": name, "from": began, "to": time.time(), "answers": answers})
        print(f"{name}: {time.time() - began:.1f} s", flush=True)
        return answers

    def close(self) -> None:
        """End the recording."""
        self._writer.close()


async def yardsticks(run: Run, gpus: int) -> dict[str, Any]:
    """Known copies beside what three sources say about them."""
    found: dict[str, Any] = {}
    for kind in ("h2d", "d2h", "d2d", *(["peer"] if gpus > 1 else []), "spin", "matmul"):
        worker = await asyncio.create_subprocess_exec(
            sys.executable, str(HERE / "work.py"), "0", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(b"context\n")
        await worker.stdout.readline()
        worker.stdin.write(f"{kind} 9\n".encode())
        await asyncio.sleep(2)
        rows = (await run.phase(f"yardstick {kind}", [str(HERE / "probe.py"), "traffic", "0", "5"]))[0]
        told = json.loads(await worker.stdout.readline())
        worker.stdin.write(b"exit\n")
        await worker.wait()
        found[kind] = {"work": told, "rows": rows}
        run.phases[-1]["answers"] = told
    return found


def beside_nvidia_smi(samples: list[Sample], path: Path) -> dict[str, Any]:
    """Compare each row of nvidia-smi with the nearest sample of the same GPU within 0.6 s."""
    found: dict[str, Any] = {}
    with path.open() as stream:
        rows = list(csv.DictReader(stream, skipinitialspace=True))
    by_gpu: dict[int, list[Sample]] = {}
    for sample in samples:
        by_gpu.setdefault(sample.gpu, []).append(sample)
    for column, name in COLUMNS.items():
        differences = []
        for row in rows:
            named = (
                column,
                column.replace("clocks.sm", "clocks.current.sm").replace("clocks.mem", "clocks.current.memory"),
            )
            cell = next((text for key, text in row.items() if key and key.split(" ")[0] in named), None)
            at_s = _stamp(row["timestamp"])
            near = min(by_gpu.get(int(row["index"]), []), key=lambda each: abs(each.at_s - at_s), default=None)
            ours = None if near is None else getattr(near, name)
            if cell is None or ours is None or near is None or abs(near.at_s - at_s) > 0.6:
                continue
            try:
                differences.append(abs(float(cell) - float(ours)))
            except ValueError:
                continue
        if differences:
            found[f"{column} / {name}"] = {
                "rows": len(differences),
                "median": round(statistics.median(differences), 3),
                "p90": round(sorted(differences)[int(0.9 * len(differences))], 3),
                "max": round(max(differences), 3),
            }
    return found


def known_columns(wanted: list[str]) -> list[str]:
    """Those that this nvidia-smi knows; one unknown name would make it refuse the whole query."""
    return [
        column
        for column in wanted
        if subprocess.run(
            ["nvidia-smi", f"--query-gpu={column}", "--format=csv"], capture_output=True, check=False
        ).returncode
        == 0
    ]


def _stamp(text: str) -> float:
    """nvidia-smi's local time, 2026/11/30 15:46:57.123, as Unix seconds."""
    whole, _, milliseconds = text.strip().partition(".")
    return time.mktime(time.strptime(whole, "%Y/%m/%d %H:%M:%S")) + int(milliseconds or 0) / 1000


async def measure(out: Path, seconds: float) -> None:
    """All phases, then the figures."""
    run = Run(out)
    sampler = NvmlSampler(run.put)
    task = asyncio.create_task(sampler.run())
    while not sampler.status.is_up:
        if sampler.status.reason:
            sys.exit(sampler.status.reason)
        await asyncio.sleep(0.1)
    gpus = len(sampler.status.gpus)
    columns = ",".join(
        known_columns(["timestamp", "index", *COLUMNS, "memory.reserved", "clocks_event_reasons.active"])
    )
    with (out / "nvidia-smi.csv").open("wb") as rows:
        smi = subprocess.Popen(  # noqa: ASYNC220  # a measurement: nothing else waits for this loop
            ["nvidia-smi", f"--query-gpu={columns}", "--format=csv,nounits", "-lms", "1000"], stdout=rows
        )
        await asyncio.sleep(8)
        run.phases.append({"name": "idle", "from": time.time() - 8, "to": time.time()})
        server = [str(HERE / "claimed_server.py"), "--seconds", str(seconds)]
        spin = [*server, "--log", str(out / "server-spin.log"), "--gpus", "0", "--works", "spin"]
        matmul = [
            *server,
            "--log",
            str(out / "server-matmul.log"),
            "--gpus",
            str(1 if gpus > 1 else 0),
            "--works",
            "matmul",
        ]
        if gpus > 1:
            await run.phase("spin and matmul side by side", spin, matmul)
            await asyncio.sleep(4)
            uneven = [*server, "--log", str(out / "server-uneven.log"), "--gpus", "0,1", "--works", "matmul,spin"]
            await run.phase("uneven tp2", uneven)
        else:
            await run.phase("spin", spin)
            await asyncio.sleep(4)
            await run.phase("matmul", matmul)
        await asyncio.sleep(4)
        quiet_calls, quiet_cpu = dict(sampler.status.calls), sampler.status.cpu_ratio
        smi.terminate()
        smi.wait()
    status = sampler.status
    recorded = list(run.samples)
    task.cancel()  # the probes below have the driver to themselves; their costs are not the sampler's
    await asyncio.gather(task, return_exceptions=True)
    run.close()
    probes = {
        "fields": (await run.phase("fields", [str(HERE / "probe.py"), "fields", "0"]))[0],
        "costs idle": (await run.phase("costs idle", [str(HERE / "probe.py"), "costs", "0"]))[0],
        "traffic": await yardsticks(run, gpus),
    }
    (out / "probes.json").write_text(json.dumps(probes))
    figures = {
        "status": status.to_json(),
        "calls": quiet_calls,
        "cpu_ratio": quiet_cpu,
        "others": run.others,
        "phases": [
            {key: value for key, value in each.items() if key != "rows"}
            for each in run.phases
            if not each["name"].startswith(("fields", "costs"))
        ],
        "read_ms": {
            "median": statistics.median(each.extra["read_ms"] for each in recorded if "read_ms" in each.extra),
            "max": max(each.extra["read_ms"] for each in recorded if "read_ms" in each.extra),
        },
        "beside_nvidia_smi": beside_nvidia_smi(recorded, out / "nvidia-smi.csv"),
    }
    (out / "figures.json").write_text(json.dumps(figures, indent=1))
    print(json.dumps(figures["beside_nvidia_smi"], indent=1))
    print(json.dumps({"cpu_ratio": quiet_cpu, "read_ms": figures["read_ms"], "tick_max_ms": status.tick_max_ms}))


def main() -> None:
    """Entry."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=45)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    asyncio.run(measure(options.out, options.seconds))


if __name__ == "__main__":
    main()
