"""A real process tree with SGLang's titles, a real daemon: what a log cannot say is a finding within seconds."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from .daemon import RunningDaemon
from .firing import dump, stamp

sys.path.insert(0, str(Path(__file__).parent.parent / "sources"))
from fake_server import write_package

SECONDS = 60.0  # for a busy machine; what was needed is printed
READY = "The server is fired up and ready to roll!"


@dataclass
class Server:
    """The processes, and the log in which they say nothing of their end."""

    process: subprocess.Popen[bytes]
    port: int
    children: list[int]
    log: Path

    def say(self, text: str) -> None:
        with self.log.open("a") as out:
            out.write(text)

    def config(self, folder: Path, **more: Any) -> str:
        path = folder / "watchdog.yaml"
        one = {"name": "chat", "logs": [str(self.log)], "url": f"http://127.0.0.1:{self.port}", "timezone": "UTC"}
        path.write_text(yaml.safe_dump({"servers": [one], "telemetry": "none", "state_dir": "none", **more}))
        return str(path)


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    write_package(tmp_path)
    out = tmp_path / "out.txt"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "sglang.launch_server", "--port", str(port), *getattr(request, "param", ())]
    with out.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, "PYTHONPATH": str(tmp_path)}, start_new_session=True)
    ends = time.monotonic() + SECONDS
    while not out.read_bytes().endswith(b"\n"):
        assert time.monotonic() < ends, "the fake server did not start"
        time.sleep(0.02)
    log = tmp_path / "server.log"
    log.write_text(dump(1))
    yield Server(process, port, [int(word) for word in out.read_text().split()[1:]], log)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def facts(daemon: RunningDaemon) -> dict[str, Any]:
    runs = daemon.get("/api/v1/runs")["runs"]
    return {one["name"]: one["value"] for one in daemon.get(f"/api/v1/runs/{runs[0]['id']}/facts")["facts"]} if runs else {}


def firing(daemon: RunningDaemon, signature: str) -> bool:
    return bool(daemon.all("findings", f"&signature={signature}&state=firing"))


def test_a_scheduler_that_dies_silently(server: Server, tmp_path: Path):
    """The launcher and the other scheduler live on, and the log says nothing."""
    server.say(f"[{stamp()}] {READY}\n")
    with RunningDaemon("--config", server.config(tmp_path)) as daemon:
        daemon.wait_for(lambda: facts(daemon).get("run.scheduler_state") in ("running", "sleeping"), SECONDS)
        os.kill(server.children[1], signal.SIGKILL)
        began = time.monotonic()
        daemon.wait_for(lambda: firing(daemon, "scheduler-process-gone"), SECONDS)
        print(f"a dead scheduler: a finding after {time.monotonic() - began:.1f} s")


def test_a_scheduler_that_hangs_stopped_and_goes_on(server: Server, tmp_path: Path):
    server.say(f"[{stamp()}] {READY}\n")
    with RunningDaemon("--config", server.config(tmp_path)) as daemon:
        daemon.wait_for(lambda: facts(daemon).get("run.scheduler_state") in ("running", "sleeping"), SECONDS)
        os.kill(server.children[0], signal.SIGSTOP)
        began = time.monotonic()
        daemon.wait_for(lambda: firing(daemon, "scheduler-process-stopped"), SECONDS)
        print(f"a stopped scheduler: a finding after {time.monotonic() - began:.1f} s")
        os.kill(server.children[0], signal.SIGCONT)
        daemon.wait_for(lambda: daemon.all("findings", "&signature=scheduler-process-stopped&state=resolved"), SECONDS)


def test_a_server_that_is_killed(server: Server, tmp_path: Path):
    server.say(f"[{stamp()}] {READY}\n")
    with RunningDaemon("--config", server.config(tmp_path)) as daemon:
        daemon.wait_for(lambda: facts(daemon).get("run.launcher_state") in ("running", "sleeping"), SECONDS)
        os.kill(server.process.pid, signal.SIGKILL)
        began = time.monotonic()
        daemon.wait_for(lambda: firing(daemon, "server-process-gone"), SECONDS)
        print(f"a killed launcher: a finding after {time.monotonic() - began:.1f} s")


@pytest.mark.parametrize("server", [("--opens", "never")], indirect=True, ids=["never"])
def test_a_server_that_never_opens_its_port(server: Server, tmp_path: Path):
    """That the port is closed is known within seconds; that it is a fault is a question of patience, here the operator's three seconds."""
    server.say(f"[{stamp()} TP0] Load weight begin. avail mem=90.00 GB\n")
    patience = {"override": {"port-never-opens": {"threshold": 3.0}}}
    began = time.monotonic()
    with RunningDaemon("--config", server.config(tmp_path, signatures=patience)) as daemon:
        daemon.wait_for(lambda: facts(daemon).get("run.port_open") is False, SECONDS)
        daemon.wait_for(lambda: firing(daemon, "port-never-opens"), SECONDS)
        print(f"a closed port: a finding {time.monotonic() - began:.1f} s after the daemon was started")
