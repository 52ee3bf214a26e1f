"""`sglang-watchdog run` without a log: the server is found by its processes, its log is read, its processes are facts of the run."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.tools import run, tool

from .daemon import RunningDaemon

sys.path.insert(0, str(Path(__file__).parent.parent / "sources"))
from fake_server import write_package

SECONDS = 60.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, Path]]:
    write_package(tmp_path)
    log = tmp_path / "server.log"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "sglang.launch_server", "--port", str(port), "--mem-fraction-static", "0.83", "--api-key", "sk-planted"],
            stdout=out, stderr=out, env={**os.environ, "PYTHONPATH": str(tmp_path)}, start_new_session=True,
        )  # fmt: skip
    yield process, port, log
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def facts(daemon: RunningDaemon) -> dict[str, Any]:
    """The facts of the newest run by name, {} before there is one."""
    runs = daemon.get("/api/v1/runs")["runs"]
    if not runs:
        return {}
    return {one["name"]: one["value"] for one in daemon.get(f"/api/v1/runs/{runs[0]['id']}/facts")["facts"]}


def until(daemon: RunningDaemon, name: str, *values: Any) -> dict[str, Any]:
    deadline = time.monotonic() + SECONDS
    while (seen := facts(daemon)).get(name) not in values:
        assert time.monotonic() < deadline, repr(sorted(seen.items())) + repr(daemon.errors) + repr(daemon.get("/api/v1/sources"))
        time.sleep(0.2)
    return seen


def test_a_server_is_found_read_and_watched(server: tuple[subprocess.Popen[bytes], int, Path]) -> None:
    process, port, log = server
    while not log.read_bytes().endswith(b"\n"):
        time.sleep(0.02)
    scheduler = int(log.read_text().split()[1])
    with log.open("ab") as file:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        file.write(f"[{stamp} TP0] Load weight end. type=Qwen3MoeForCausalLM, dtype=torch.bfloat16, avail mem=70.00 GB.\n".encode())
    with RunningDaemon() as daemon:
        daemon.wait_for(lambda: any(str(log) in line and f":{port}" in line for line in daemon.lines if line.startswith("watching")))
        known = until(daemon, "run.scheduler_state", "running", "sleeping")
        assert known["args.mem_fraction_static"] == 0.83
        os.kill(scheduler, signal.SIGKILL)
        until(daemon, "run.scheduler_state", "zombie")
        sources = daemon.get("/api/v1/sources")["sources"]
        assert {one["kind"] for one in sources} >= {"file"}
        assert "sk-planted" not in repr(daemon.get("/api/v1/runs")) + repr(facts(daemon))
    assert process.poll() is None


def test_without_proc_it_says_so_and_what_to_do() -> None:
    """A container without /proc, and systems that have none: no server can be found, a named log can be watched."""
    places = [part for path in sorted(Path("/").iterdir()) if path.name not in ("proc", "dev") for part in _as_it_is(path)]
    command = [sys.executable, "-m", "sglang_watchdog", "run", "--telemetry", "none", "--state-dir", "none", "--listen", "127.0.0.1:0"]
    told = run(tool("bwrap"), *places, "--dev", "/dev", "--chdir", os.getcwd(), *command)

    assert told.returncode == 4, told.stderr
    assert "processes of this machine cannot be listed" in told.stderr
    assert "name the log" in told.stderr


def _as_it_is(path: Path) -> list[str]:
    return ["--symlink", os.readlink(path), str(path)] if path.is_symlink() else ["--ro-bind", str(path), str(path)]
