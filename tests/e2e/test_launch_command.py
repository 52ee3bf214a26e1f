"""A server that runs with other values than it was asked for: found within seconds by the daemon beside it, shown in the table of its
flags, and the same for `check` with the same command. The keys in its command line turn up nowhere.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from sglang_watchdog.sinks import encode

from .daemon import RunningDaemon

sys.path.insert(0, str(Path(__file__).parent.parent / "sources"))
from fake_server import write_package

CAPTURE = Path(__file__).parents[1] / "captures" / "05-moe-seed-flags" / "server.log"
ASKED = ("--attention-backend", "flashinfer", "--cuda-graph-max-bs", "512", "--num-continuous-decode-steps", "4")
SECRETS = ("--api-key", "sk-planted-in-full", "--admin-api-k", "planted-in-short")
STAMP = re.compile(r"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)", re.MULTILINE)
OVERLAYS = ("acknowledgement", "silenced", "display_state")


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    port: int
    log: Path
    words: list[str]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """The recorded start of a real server, as if this process had printed it a moment after it was launched."""
    write_package(tmp_path)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["--port", str(port), "--model-path", "/models/moe-small", *ASKED, *SECRETS]
    process = subprocess.Popen(
        [sys.executable, "-m", "sglang.launch_server", *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(tmp_path)}, start_new_session=True,
    )  # fmt: skip
    log = tmp_path / "server.log"
    log.write_text(recorded(port))
    yield Server(process, port, log, words)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def recorded(port: int) -> str:
    """The capture to its 20th second of service, from now on."""
    lines = CAPTURE.read_text().splitlines(keepends=True)
    ready = next(index for index, line in enumerate(lines) if "fired up" in line)
    until = datetime.fromisoformat(STAMP.match(lines[ready])[1]) + timedelta(seconds=20)
    kept = [line for line in lines if not (found := STAMP.match(line)) or datetime.fromisoformat(found[1]) <= until]
    shift = datetime.now().replace(microsecond=0) + timedelta(seconds=1) - datetime.fromisoformat(next(filter(None, map(STAMP.match, kept)))[1])
    text = STAMP.sub(lambda found: f"[{datetime.fromisoformat(found[1]) + shift}", "".join(kept))
    return text.replace("port=30000,", f"port={port},", 1).replace("api_key=None", "api_key='sk-planted-in-full'", 1)


def flags(items: list[dict[str, Any]]) -> list[str]:
    shown = [{key: value for key, value in item.items() if key not in OVERLAYS} for item in items if item["topic"].startswith("flag.")]
    return sorted(encode.dumps(item) for item in shown)


def test_what_the_server_changed_is_found_shown_and_equal_to_check(server: Server, tmp_path: Path) -> None:
    config = tmp_path / "watchdog.yaml"
    state = tmp_path / "state"
    watched = {"name": "sglang", "logs": [str(server.log)], "url": f"http://127.0.0.1:{server.port}"}
    config.write_text(yaml.safe_dump({"servers": [watched], "telemetry": "none", "state_dir": str(state)}))
    with RunningDaemon("--config", str(config)) as daemon:
        began = time.monotonic()
        found = daemon.wait_for(lambda: {one["signature"]: one for one in daemon.all("findings", "&topic=flag.overridden")}, 20)
        seconds = time.monotonic() - began
        run = daemon.get("/api/v1/runs")["runs"][0]["id"]
        table = daemon.get(f"/api/v1/runs/{run}/flags")
        live = flags(daemon.all("findings"))
        told = "".join(
            [daemon.text(path) for path in ("/", "/metrics", "/api/v1/findings", "/api/v1/runs", f"/api/v1/runs/{run}/facts", "/api/v1/coverage")]
        )
        asked = subprocess.run(
            [sys.executable, "-m", "sglang_watchdog", "runs", run, "--flags", "--url", daemon.url], capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    checked = subprocess.run(
        [sys.executable, "-m", "sglang_watchdog", "check", str(server.log), "--command", " ".join(["python -m sglang.launch_server", *server.words]),
         "--format", "json", "--fail-on", "never"], capture_output=True, text=True, check=True,
    )  # fmt: skip
    document = json.loads(checked.stdout)

    assert seconds < 15
    assert "asked flashinfer, runs with triton" in found["flag-attention-backend"]["summary"]
    assert "asked 512, runs with 256" in found["flag-cuda-graph-max-bs"]["summary"]
    rows = {row["flag"]: row for row in table["flags"]}
    assert (rows["--attention-backend"]["asked"], rows["--attention-backend"]["runs_with"]) == ("flashinfer", "triton")
    assert rows["--attention-backend"]["verdict"] == rows["--cuda-graph-max-bs"]["verdict"] == "overridden"
    assert rows["--num-continuous-decode-steps"]["verdict"] == "dead"
    assert rows["--api-key"]["asked"] == "***"
    assert {one["name"]: one["value"] for one in table["decisions"]}["moe_runner"] == "triton"
    assert "overridden      --attention-backend flashinfer  (runs with triton)" in asked
    assert "Launch flags: " in told
    assert live == flags(document["findings"])
    assert document["runs"][-1]["flags"] == {key: value for key, value in table.items() if key != "run"} | {
        "launch": {"arguments": table["launch"]["arguments"], "source": "--command"}
    }
    kept = b"".join(path.read_bytes() for path in state.rglob("*") if path.is_file())
    everything = told + json.dumps(table) + asked + checked.stdout + checked.stderr + "".join(daemon.lines + daemon.errors)
    assert "planted" not in everything
    assert b"planted" not in kept
