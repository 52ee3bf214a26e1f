"""A day of a server, made: real starts and stops of a capture, between them the lines and GPU samples of hours of serving; and the daemon's way
through it, hour by hour.

Load follows the clock, with an idle quarter of an hour in each; the cache runs full once an hour; the server is restarted every six hours.
The same seed makes the same day.
"""

import json
import math
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .daemon import RunningDaemon

CAPTURE: Final = Path(__file__).resolve().parents[1] / "captures" / "01-moe-default" / "server.log"
BEGIN_S: Final = 1_796_083_200  # 2026-12-01 00:00:00 UTC
HOUR_S: Final = 3600
CHUNK_S: Final = 600
RUN_S: Final = 6 * HOUR_S
IDLE_S: Final = 900  # of each hour
GPUS: Final = 2
_STAMP: Final = re.compile(rb"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)", re.M)
_CLOCK: Final = "%Y-%m-%d %H:%M:%S"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some minutes: what is written to the log and to the recording, and the time it ends at."""

    ends_s: int
    log: bytes
    samples: bytes


def chunks(hours: float, *, run_s: int = RUN_S, chunk_s: int = CHUNK_S, seed: int = 1) -> Iterator[Chunk]:
    """The day up to so many hours, with a restart every `run_s`."""
    chance = random.Random(seed)
    start, stop = _start_and_stop()
    for begins_s in range(BEGIN_S, BEGIN_S + int(hours * HOUR_S), chunk_s):
        ends_s = begins_s + chunk_s
        since_start_s = (begins_s - BEGIN_S) % run_s
        log = bytearray()
        serving_from_s = begins_s
        if since_start_s == 0:
            shifted, serving_from_s = _shifted(start, begins_s)
            log += shifted
        is_last = since_start_s + chunk_s == run_s
        for at_s in range(serving_from_s + 1, ends_s - (30 if is_last else 0)):
            log += _second(at_s, chance)
        if is_last:
            log += _shifted(stop, ends_s - 20)[0]
        samples = "".join(_sample(at_s, gpu, chance) for at_s in range(begins_s, ends_s) for gpu in range(GPUS))
        yield Chunk(ends_s, bytes(log), samples.encode())


def _start_and_stop() -> tuple[bytes, bytes]:
    lines = CAPTURE.read_bytes().splitlines(keepends=True)
    ready = next(index for index, line in enumerate(lines) if b"The server is fired up" in line)
    return b"".join(lines[: ready + 1]), b"".join(line for line in lines[-5:] if b"SIGTERM" in line or b"Gracefully" in line)


def _seconds(stamp: bytes) -> int:
    return int(time.mktime(time.strptime(stamp.decode(), _CLOCK)))


def _shifted(text: bytes, begins_s: int) -> tuple[bytes, int]:
    """The text with its first stamp at `begins_s`, and the time of its last."""
    stamps = _STAMP.findall(text)
    first = _seconds(stamps[0])
    return _STAMP.sub(lambda found: f"[{_clock(begins_s + _seconds(found[1]) - first)}".encode(), text), begins_s + _seconds(stamps[-1]) - first


def _clock(at_s: float) -> str:
    return time.strftime(_CLOCK, time.gmtime(at_s))


def _running(at_s: int) -> int:
    """Requests at a time: none in the idle quarter, else up to 64 at noon."""
    if at_s % HOUR_S >= HOUR_S - IDLE_S:
        return 0
    return 8 + int(56 * (0.5 - 0.5 * math.cos((at_s % 86_400) / 86_400 * 2 * math.pi)))


def _second(at_s: int, chance: random.Random) -> bytes:
    running, stamp = _running(at_s), _clock(at_s)
    if not running:
        return f'[{stamp}] INFO:     127.0.0.1:{chance.randrange(30000, 60000)} - "GET /health HTTP/1.1" 200 OK\n'.encode() if at_s % 10 == 0 else b""
    tokens = running * chance.randrange(600, 700)
    lines = [
        f"Decode batch, #running-req: {running}, #token: {tokens}, token usage: {tokens / 200_000:.2f}, cuda graph: True, "
        f"gen throughput (token/s): {running * chance.uniform(310, 330):.2f}, #queue-req: 0"
    ]
    if at_s % 2:
        lines.append(
            f"Prefill batch, #new-seq: 1, #new-token: {chance.randrange(64, 512)}, #cached-token: 0, token usage: {tokens / 200_000:.2f}, "
            f"#running-req: {running}, #queue-req: 0, #pending-token: 0, cuda graph: True, input throughput (token/s): {chance.uniform(100, 500):.2f}"
        )
    lines += [f'INFO:     127.0.0.1:{chance.randrange(30000, 60000)} - "POST /generate HTTP/1.1" 200 OK' for _ in range(2)]
    if at_s % HOUR_S in range(1200, 1230):
        lines.append("KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 960, #new_token_ratio: 0.7515 -> 0.9569")
    return "".join(f"[{stamp}] {line}\n" for line in lines).encode()


def _sample(at_s: int, gpu: int, chance: random.Random) -> str:
    is_at_work = gpu == 0 and _running(at_s) > 0
    power_w = chance.uniform(480, 520) if is_at_work else chance.uniform(76, 80)
    fields = {
        "ts": at_s + 0.25, "gpu": gpu, "uuid": f"GPU-{gpu}", "name": "NVIDIA H200", "power_w": round(power_w, 1), "power_limit_w": 700,
        "sm_util": 95 if is_at_work else 0, "pcie_gen": 5, "pcie_gen_max": 5, "pcie_width": 16, "pcie_width_max": 16,
        "sm_clock_mhz": 1980 if is_at_work else 345, "sm_clock_max_mhz": 1980, "temp_c": 55 if is_at_work else 38,
        "throttle_reasons": [] if is_at_work else ["GpuIdle"], "mem_used_mib": 125_000 if gpu == 0 else 600, "mem_total_mib": 143_771,
        "sm_active": 0.8 if is_at_work else 0.0,
    }  # fmt: skip
    return json.dumps(fields) + "\n"


@dataclass(frozen=True, slots=True)
class Reading:
    """The daemon at one moment of the day; `hour` is simulated."""

    hour: float
    memory_bytes: float
    tasks: float
    series: frozenset[str]
    ledger_bytes: float
    lines: int
    findings: int


def live(folder: Path, hours: float, *, every_s: int = HOUR_S, run_s: int = RUN_S, chunk_s: int = CHUNK_S) -> Iterator[Reading]:
    """Lead the real daemon through the day; a reading every so many simulated seconds. It is never more than a chunk behind."""
    log, samples = folder / "server.log", folder / "gpus.jsonl"
    log.touch()
    samples.touch()
    arguments = (str(log), "--telemetry", f"replay:{samples}", "--clock", "log", "--timezone", "UTC", "--state-dir", str(folder / "state"))
    with RunningDaemon(*arguments) as daemon, log.open("ab", 0) as log_out, samples.open("ab", 0) as samples_out:
        lines = 0
        for chunk in chunks(hours, run_s=run_s, chunk_s=chunk_s):
            lines += chunk.log.count(b"\n")
            log_out.write(chunk.log)
            samples_out.write(chunk.samples)
            daemon.wait_for(lambda lines=lines: daemon.all("sources")[0]["lines"] == lines, 120)
            daemon.wait_for(lambda ends_s=chunk.ends_s: _newest_sample(daemon) == _clock(ends_s - 1), 120)
            if (chunk.ends_s - BEGIN_S) % every_s == 0:
                yield _reading(daemon, (chunk.ends_s - BEGIN_S) / HOUR_S, lines)


def _newest_sample(daemon: RunningDaemon) -> str:
    gpus = daemon.all("gpus")
    return gpus[-1]["latest"]["at"].replace("T", " ")[:19] if gpus else ""


def _reading(daemon: RunningDaemon, hour: float, lines: int) -> Reading:
    values = dict(line.rsplit(" ", 1) for line in daemon.text("/metrics").splitlines() if not line.startswith("#"))
    return Reading(
        hour=hour,
        memory_bytes=float(values["process_resident_memory_bytes"]),
        tasks=float(values["sglang_watchdog_tasks"]),
        # The run's identity is a label, and changes with the run: one series goes, another comes.
        series=frozenset(re.sub(r'run="[^"]*"', "", name) for name in values),
        ledger_bytes=float(values["sglang_watchdog_ledger_bytes"]),
        lines=lines,
        findings=len(daemon.all("findings")),
    )
