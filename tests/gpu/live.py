"""The daemon itself on real GPUs: two claimed servers, one starved and one busy, watched live.

    PYTHONPATH=daemon python tests/gpu/live.py OUT [--seconds 60]

Starts `sglang-watchdog run --telemetry nvml --record`, then the servers, and notes when which finding fires, what the
daemon says about the GPUs, and what its sampler costs. Needs two GPUs (with one, only the starved server runs).
"""

import argparse
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ADDRESS = "127.0.0.1:17999"


def ask(path: str) -> Any:
    """One answer of the daemon, None while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://{ADDRESS}{path}", timeout=3) as answer:
            return json.load(answer)
    except (urllib.error.URLError, TimeoutError, ValueError):
        return None


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def child_of(pid: int) -> int | None:
    """The sampler process of the daemon."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if parent == str(pid) and b"nvml_child" in command:
                return int(folder.name)
    return None


def main() -> None:
    """Run everything and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    gpus = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout.count("GPU ")
    works = {"spin": 0, "matmul": 1} if gpus > 1 else {"spin": 0}
    config = out / "watchdog.yaml"
    servers = "".join(f"  - {{name: {name}, logs: [{out / f'live-{name}.log'}], timezone: UTC}}\n" for name in works)
    config.write_text(f"servers:\n{servers}")
    with (out / "daemon.log").open("w") as words:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "sglang_watchdog", "run", "--config", str(config), "--telemetry", "nvml", "--listen", ADDRESS,
             "--state-dir", "none", "--record", str(out / "live.jsonl.gz"), "--print-findings"],
            stdout=words, stderr=subprocess.STDOUT,
        )  # fmt: skip
    began = time.time()
    while ask("/api/v1/gpus") is None or child_of(daemon.pid) is None:
        if time.time() - began > 60 or daemon.poll() is not None:
            sys.exit(f"the daemon does not answer: {(out / 'daemon.log').read_text()[-2000:]}")
        time.sleep(0.2)
    time.sleep(10)
    child = child_of(daemon.pid)
    assert child is not None
    quiet = (time.time(), cpu_s(child), cpu_s(daemon.pid))
    time.sleep(60)
    took_s = time.time() - quiet[0]
    figures: dict[str, Any] = {
        "gpus": gpus,
        "quiet_child_cpu_percent": round(100 * (cpu_s(child) - quiet[1]) / took_s, 3),
        "quiet_daemon_cpu_percent": round(100 * (cpu_s(daemon.pid) - quiet[2]) / took_s, 3),
    }
    running = [
        subprocess.Popen(
            [sys.executable, str(HERE / "claimed_server.py"), "--seconds", str(options.seconds), "--log", str(out / f"live-{name}.log"),
             "--gpus", str(gpu), "--works", name],
            stdout=subprocess.DEVNULL,
        )
        for name, gpu in works.items()
    ]  # fmt: skip
    began = time.time()
    seen: dict[str, Any] = {}
    while any(each.poll() is None for each in running):
        time.sleep(1)
        for finding in (ask("/api/v1/findings?limit=200") or {}).get("findings", []):
            key = f"{finding['server']} {finding['topic']} {finding['state']}"
            seen.setdefault(
                key,
                {
                    "after_s": round(time.time() - began, 1),
                    **{name: finding.get(name) for name in ("severity", "summary", "scope", "first_seen")},
                },
            )
        seen.setdefault("placements", None)
        placed = [(gpu["gpu"], gpu["placements"]) for gpu in (ask("/api/v1/gpus") or {"gpus": []})["gpus"] if gpu["placements"]]
        if placed and len(placed) == len(works):
            seen["placements"] = placed
    figures["findings"] = seen
    figures["loaded_child_cpu_percent"] = round(100 * (cpu_s(child) - quiet[1]) / (time.time() - quiet[0]), 3)
    figures["gpu_status"] = ask("/api/v1/gpus")
    daemon.terminate()
    figures["exit"] = daemon.wait(timeout=20)
    (out / "live.json").write_text(json.dumps(figures, indent=1))
    print(json.dumps({key: value for key, value in figures.items() if key != "gpu_status"}, indent=1))


if __name__ == "__main__":
    main()
