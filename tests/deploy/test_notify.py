"""The service manager's protocol as systemd would see it: READY, WATCHDOG, RELOADING, STOPPING; no ping from a stuck engine."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglang_watchdog.runtime.systemd import Notifier

from .stuck import STUCK


class Manager:
    """The socket of a service manager, with everything it was told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self.told: list[str] = []

    def until(self, word: str, seconds: float = 30.0) -> bool:
        """Whether a message with this assignment comes within so many seconds."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                message = self._socket.recv(4096).decode()
            except TimeoutError:
                return False
            self.told.append(message)
            if word in message.split("\n"):
                return True
        return False

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    one = Manager(tmp_path / "notify")
    yield one
    one.close()


def start(manager: Manager, *command: str) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "4000000"}
    environment.pop("WATCHDOG_PID", None)
    return subprocess.Popen([sys.executable, *command], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def options(folder: Path) -> list[str]:
    log = folder / "server.log"
    log.touch()
    (folder / "gpus.jsonl").touch()
    return [str(log), "--telemetry", f"replay:{folder}/gpus.jsonl", "--state-dir", "none", "--listen", "127.0.0.1:0"]


def test_the_manager_hears_each_step_of_a_life(manager: Manager, tmp_path: Path) -> None:
    daemon = start(manager, "-m", "sglang_watchdog", "run", *options(tmp_path))
    try:
        assert manager.until("READY=1")
        assert manager.until("WATCHDOG=1")
        daemon.send_signal(signal.SIGHUP)
        assert manager.until("RELOADING=1")
        assert any(part.startswith("MONOTONIC_USEC=") for part in manager.told[-1].split("\n"))
        assert manager.until("READY=1")
        assert manager.until("WATCHDOG=1")
        daemon.send_signal(signal.SIGTERM)
        assert manager.until("STOPPING=1")
        assert daemon.wait(15) == 0
    finally:
        daemon.kill()
        daemon.wait()


def test_a_manager_that_is_away_for_a_moment_is_told_again(tmp_path: Path) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000000"})
    notifier.alive("nobody hears this")
    manager = Manager(tmp_path / "notify")
    notifier.alive("here again")
    assert manager.until("STATUS=here again", 5.0)
    assert manager.told == ["WATCHDOG=1\nSTATUS=here again"]
    assert notifier.watchdog_s == 30.0
    manager.close()


def test_parts_that_are_idle_are_pinged_for(manager: Manager, tmp_path: Path) -> None:
    """Nothing to read is no hanging: not in a quiet log, not in one that is late, not while a part waits to be started again."""
    (tmp_path / "quiet").mkdir()
    daemon = start(manager, "-m", "sglang_watchdog", "run", *options(tmp_path / "quiet"), str(tmp_path / "late.log"), "docker:nobody", f"{tmp_path}/*.none")
    try:
        assert manager.until("READY=1")
        for _ in range(6):  # longer than a part may hang with WATCHDOG_USEC=4000000
            assert manager.until("WATCHDOG=1", 4.0)
    finally:
        daemon.kill()
        daemon.wait()


def test_without_a_manager_nothing_is_said() -> None:
    notifier = Notifier({})
    notifier.ready("to nobody")
    assert notifier.watchdog_s is None


@pytest.mark.parametrize("how", ["busy", "waiting", "source", "sampler"])
def test_no_ping_from_a_stuck_part(manager: Manager, tmp_path: Path, how: str) -> None:
    """Busy: the engine never returns from one event. Waiting: the consumer never comes back though events wait. Source, sampler: the loop
    that reads the log, or the GPUs, does not turn any more while all else goes on."""
    daemon = start(manager, "-c", STUCK, how, *options(tmp_path))
    try:
        assert manager.until("READY=1")
        assert manager.until("WATCHDOG=1"), "a healthy daemon pings"
        (tmp_path / "server.log").write_text("[2026-01-01 00:00:00] one\n[2026-01-01 00:00:01] two\n")
        (tmp_path / "gpus.jsonl").write_text('{"ts": 1767225600.0, "gpu": 0, "power_w": 100.0}\n')
        while manager.until("WATCHDOG=1", 4.0):  # WATCHDOG_USEC: silence for this long and the manager would act
            assert len(manager.told) < 30, "it goes on pinging"
        assert daemon.poll() is None, "it is stuck, not ended"
    finally:
        daemon.kill()
        daemon.wait()
