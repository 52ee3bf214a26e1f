"""The unit's restrictions for real, without systemd as process 1: bubblewrap for the mounts, confined.py for the rest. The daemon works in them
(reads its log, finds, writes its state, answers on its port) and nothing else can be written.

Not tried here: device rules and address families of the cgroup's BPF programs, MemoryMax, CPUQuota.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from .tools import ROOT, run, tool
from .unit import UNIT, directives, system_calls

UID = 61_184  # the first one systemd takes for DynamicUser
LINES = """[2026-01-01 00:00:00] server_args=ServerArgs(model_path='m', tp_size=1)
[2026-01-01 00:00:01] Scheduler hit an exception: Traceback (most recent call last):
"""

PROBE = """
import ctypes, json, mmap, os, socket, sys
def tried(act):
    try:
        act()
    except (OSError, PermissionError, ValueError) as error:
        return type(error).__name__
    return "done"
def write(path):
    with open(path, "a") as file:
        file.write("x")
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *values):
    if getattr(libc, name)(*values) != 0:
        raise OSError(ctypes.get_errno(), name)
out = {path: tried(lambda: write(path)) for path in sys.argv[1:]}
out["mount"] = tried(lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, None))
out["chroot"] = tried(lambda: os.chroot("/"))
out["setuid"] = tried(lambda: os.setuid(0))
out["unshare"] = tried(lambda: call("unshare", 0x10000000))
out["write-execute"] = tried(lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC))
out["home"] = [os.path.join(*part) for top in ("/root", "/home") for part in os.walk(top) for part in [(part[0], name) for name in part[2]]
               if not part[0].startswith(sys.base_prefix)]
out["capabilities"] = [line.split()[1] for line in open("/proc/self/status") if line.startswith(("CapEff", "CapBnd", "CapAmb"))]
out["no-new-privileges"] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("NoNewPrivs")]
out["processes"] = sum(name.isdigit() for name in os.listdir("/proc")) > 1
print(json.dumps(out))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A log that the daemon may read and a state folder that it owns."""
    if os.getuid() != 0:
        said = "needs root, to become another user as systemd does"
        if os.environ.get("CI") == "true":
            pytest.fail(said)
        pytest.skip(said)
    (tmp_path / "log").mkdir(mode=0o755)
    (tmp_path / "log" / "server.log").touch(mode=0o644)
    (tmp_path / "state").mkdir(mode=0o700)
    os.chown(tmp_path / "state", UID, UID)
    return tmp_path


def confined(place: Path, *command: str) -> list[str]:
    unit = directives(UNIT)
    assert unit["ProtectSystem"] == ["strict"]
    assert unit["ProtectHome"] == ["yes"]
    assert unit["MemoryDenyWriteExecute"] == ["yes"]
    wanted = json.dumps({"uid": UID, "calls": system_calls(unit)})
    base: list[str] = []
    if not sys.base_prefix.startswith("/usr"):  # an interpreter from elsewhere: its folder alone, below folders that all may enter
        for parent in reversed(Path(sys.base_prefix).parents[:-1]):
            base += ["--perms", "0755", "--dir", str(parent)]
        base += ["--ro-bind", sys.base_prefix, sys.base_prefix]
    return [
        tool("bwrap"), "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
        "--tmpfs", "/tmp", "--tmpfs", "/var/tmp", "--tmpfs", "/home", "--tmpfs", "/root", "--tmpfs", "/srv",
        "--ro-bind", str(ROOT), "/srv/watchdog", "--ro-bind", sys.prefix, "/srv/python",
        "--ro-bind", str(place / "log"), "/srv/log", "--bind", str(place / "state"), "/srv/state",
        "--setenv", "PYTHONPATH", "/srv/watchdog/daemon", "--setenv", "STATE_DIRECTORY", "/srv/state", "--setenv", "HOME", "/",
        "--setenv", "PYTHONDONTWRITEBYTECODE", "1", "--chdir", "/", *base,
        "/srv/python/bin/python", "/srv/watchdog/tests/deploy/confined.py", wanted,
        "/srv/python/bin/python", *command,
    ]  # fmt: skip


def test_the_restrictions_hold(place: Path) -> None:
    paths = ["/etc/x", "/usr/x", "/var/lib/x", "/srv/log/server.log", "/srv/watchdog/x", "/proc/sys/kernel/hostname", "/srv/state/x"]
    outcome = run(*confined(place, "-c", PROBE, *paths))
    assert outcome.returncode == 0, outcome.stderr
    found = json.loads(outcome.stdout)
    assert found.pop("/srv/state/x") == "done", "its own state is writable"
    assert found.pop("home") == []
    assert set(found.pop("capabilities")) == {"0000000000000000"}
    assert found.pop("no-new-privileges") == ["1"]
    assert found.pop("processes"), "it sees the processes of others"
    assert "done" not in found.values(), found


def test_the_daemon_works_in_them(place: Path) -> None:
    options = ["--telemetry", "none", "--timezone", "UTC", "--clock", "log", "--listen", "127.0.0.1:0"]
    command = confined(place, "-m", "sglang_watchdog", "run", "/srv/log/server.log", *options)
    daemon = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert daemon.stdout is not None
        first = daemon.stdout.readline()
        assert first.startswith("status page"), first + daemon.stderr.read() if daemon.stderr else first
        url = first.split()[2].partition("#")[0].rstrip("/")
        (place / "log" / "server.log").write_text(LINES)
        assert wait_for(lambda: topics(url)), "no finding"
        assert (place / "state" / "ledger.sqlite3").stat().st_uid == UID
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
            assert "sglang_watchdog_ledger_durable 1.0" in answer.read().decode()
    finally:
        os.killpg(daemon.pid, signal.SIGTERM)  # bubblewrap and the daemon below it; both have ended when the pipe is closed
        daemon.communicate(timeout=20)


def topics(url: str) -> list[str]:
    with urllib.request.urlopen(f"{url}/api/v1/findings", timeout=10) as answer:
        return [finding["topic"] for finding in json.load(answer)["findings"]]


def wait_for(what: object, seconds: float = 30.0) -> bool:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if what():  # type: ignore[operator]
            return True
        time.sleep(0.1)
    return False
