"""`make run`: the daemon beside a recording that is played into a file it tails.

Nothing here is known to the daemon: it starts on an empty folder, the recording is written as a server would write it, and findings
appear as the lines do.
"""

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CAPTURES = ROOT / "tests" / "captures"
SCENES = {
    "graphs": (
        [CAPTURES / "04-moe-disable-cuda-graph", CAPTURES / "01-moe-default"],
        "Real recording, SGLang 0.5.11 on an H200: a server with --disable-cuda-graph, then the same model with graphs on.",
    ),
    "healthy": (
        [CAPTURES / "45-moe-tuned-config-present"],
        "Real recording, SGLang 0.5.11 on an H200: a tuned MoE config. What it still tells of are real stalls: "
        "each new prefill shape costs one to three seconds at idle GPUs.",
    ),
    "seed": (
        [ROOT / "tests" / "cases" / "perf-flashinfer-cutlass-autotune-never-ran"],
        "Synthetic log after a real report: FlashInfer's MoE kernels whose autotune never ran, 8 GPUs at 250 W of 600 W.",
    ),
}


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--scene", choices=SCENES, default="graphs")
    p.add_argument("--speed", type=float, default=12.0)
    p.add_argument("--exit-after", type=float, metavar="S", help="end this long after the last line (for tests)")
    options = p.parse_args()
    captures, about = SCENES[options.scene]
    with tempfile.TemporaryDirectory(prefix="sglang-watchdog-") as folder:
        return play(captures, about, Path(folder) / "server.log", options.speed, options.exit_after)


def play(captures: list[Path], about: str, log: Path, speed: float, exit_after: float | None) -> int:
    samples = log.with_name("gpus.jsonl")
    samples.touch()
    log.touch()
    print(about, flush=True)
    print(f"tailed file  {log}", flush=True)
    daemon = subprocess.Popen(
        [sys.executable, "-m", "sglang_watchdog", "run", str(log), "--telemetry", f"replay:{samples}", "--clock", "log",
         "--timezone", "UTC", "--next-free-port", "--print-findings", "--state-dir", str(log.parent / "state")],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    started = threading.Event()
    address: list[str] = []
    threading.Thread(target=relay, args=(daemon, started, address), daemon=True).start()
    try:
        if not started.wait(30):
            print("the daemon did not start; try: sglang-watchdog doctor", file=sys.stderr)
            return 4
        began = time.monotonic()
        replay = [sys.executable, "-m", "sglang_watchdog", "replay", *map(str, captures), "--into", str(log), "--samples-into", str(samples),
                  "--speed", str(speed), "--longest-wait", "1", "--shift-to-now"]  # fmt: skip
        played = subprocess.run(replay, check=False, stderr=subprocess.PIPE, text=True)
        if played.returncode:
            print(played.stderr.strip(), file=sys.stderr)
            return played.returncode
        show_runs(address[0])
        print(f"played in {time.monotonic() - began:.0f} s; the daemon goes on until Ctrl-C", flush=True)
        if exit_after is not None:
            time.sleep(exit_after)
        else:
            daemon.wait()
    except KeyboardInterrupt:
        pass
    finally:
        daemon.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(10)
    return 0


def show_runs(address: str) -> None:
    """The runs side by side, the newest last, with how much faster each is than the one before."""
    time.sleep(6)  # the newest second is judged when nothing has come for a while
    with urllib.request.urlopen(f"{address}/api/v1/runs", timeout=10) as answer:
        runs = sorted(json.load(answer)["runs"], key=lambda run: run["started_at"] or "")
    before = None
    for run in runs:
        speed, most = run["load"].get("decode_tokens_per_s"), run["load"].get("running_requests_max")
        times = f", {speed / before:.1f} times the run before" if speed and before else ""
        load = f"{speed:,.0f} tokens/s at {most:.0f} requests (Decode lines){times}" if speed and most else "no speed told (no Decode line with one)"
        print(f"run {run['id'][:8]}      {run['model']}, SGLang {run['sglang_version']['max']}: {load}", flush=True)
        before = speed


def relay(daemon: "subprocess.Popen[str]", started: threading.Event, address: list[str]) -> None:
    assert daemon.stdout is not None
    for line in daemon.stdout:
        print(line, end="", flush=True)
        if line.startswith("status page"):
            address.append(line.split()[2].partition("/#")[0])
            started.set()
    started.set()


if __name__ == "__main__":
    sys.exit(main())
