"""Whoever reads from the daemon may stop, hang or never read: the way from a line to its finding stays as it is."""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from . import story
from .daemon import RunningDaemon

ALLOWED_S = 10.0  # from the write to the finding in the API, on a machine that is busy with other tests
MOST_GROWTH_BYTES = 64 * 1024 * 1024
FLOOD = 20_000  # lines while the consumer is stuck


@contextmanager
def stopped_watcher(daemon: RunningDaemon) -> Iterator[None]:
    """`findings --watch` of somebody who pressed Ctrl-Z."""
    watcher = subprocess.Popen(
        [sys.executable, "-m", "sglang_watchdog", "findings", "--watch", "--url", daemon.url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == b"no findings\n"
        os.kill(watcher.pid, signal.SIGSTOP)
        yield
        assert watcher.poll() is None
    finally:
        watcher.kill()
        watcher.communicate()


@contextmanager
def deaf(daemon: RunningDaemon, path: str, connections: int) -> Iterator[None]:
    """Clients that ask and never read the answer, with the smallest receive buffer there is."""
    host, _, port = daemon.url.removeprefix("http://").rpartition(":")
    with ExitStack() as stack:
        for _ in range(connections):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            client.connect((host, int(port)))
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode() * (1 if path.endswith("changes") else 50))
        yield


def follows_changes(daemon: RunningDaemon):
    return deaf(daemon, "/api/v1/changes", 8)


def reads_no_metrics(daemon: RunningDaemon):
    return deaf(daemon, "/metrics", 8)


def reads_no_signatures(daemon: RunningDaemon):
    return deaf(daemon, "/api/v1/signatures?limit=500", 8)


def memory_bytes(daemon: RunningDaemon) -> int:
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def lines_read(daemon: RunningDaemon) -> int:
    return sum(each["lines"] for each in daemon.all("sources"))


def finds_as_ever(daemon: RunningDaemon, log: Path) -> None:
    """A flood of ordinary lines and then the one that matters: found soon, with no memory taken."""
    before = memory_bytes(daemon)
    line = b'[2025-03-02 04:44:02] INFO:     10.0.0.7:41002 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    story.append(log, line * FLOOD)
    written_s = time.monotonic()
    story.append(log, story.lines()[1])
    daemon.wait_for(lambda: story.fires(daemon), ALLOWED_S)
    took_s = time.monotonic() - written_s
    assert took_s < ALLOWED_S
    daemon.wait_for(lambda: lines_read(daemon) == FLOOD + 40)
    assert memory_bytes(daemon) - before < MOST_GROWTH_BYTES


def begun(log: Path) -> tuple[str, ...]:
    log.write_bytes(story.lines()[0])
    return (str(log), "--telemetry", "none", "--state-dir", str(log.parent / "state"), "--timezone", "UTC")


@pytest.mark.slow
@pytest.mark.parametrize("consumer", [stopped_watcher, follows_changes, reads_no_metrics, reads_no_signatures])
def test_a_reader_that_stops_holds_nothing_up(tmp_path: Path, consumer: Callable) -> None:
    log = tmp_path / "server.log"
    with RunningDaemon(*begun(log)) as daemon:
        daemon.wait_for(lambda: lines_read(daemon) == 24)
        with consumer(daemon):
            finds_as_ever(daemon, log)


@pytest.mark.slow
def test_a_terminal_that_stops_holds_nothing_up(tmp_path: Path) -> None:
    """`run --print-findings | less`: the pipe is full, its reader sleeps."""
    log, full = tmp_path / "server.log", tmp_path / "errors"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    command = [sys.executable, "-m", "sglang_watchdog", "run", *begun(log), "--print-findings", "--listen", f"127.0.0.1:{port}"]
    with full.open("wb") as errors:
        process = subprocess.Popen(command, stdout=writer, stderr=errors)
    daemon = RunningDaemon()
    daemon.process, daemon.url, daemon.errors = process, f"http://127.0.0.1:{port}", []
    try:
        daemon.wait_for(lambda: lines_read(daemon) == 24, 60)
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"x")
        os.set_blocking(writer, True)
        finds_as_ever(daemon, log)
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reader)
        os.close(writer)


@pytest.mark.slow
def test_a_sink_that_never_answers_holds_nothing_up(tmp_path: Path) -> None:
    """An Alertmanager and a webhook that take connections and say nothing: notifications wait, the log does not."""
    log = tmp_path / "server.log"
    (tmp_path / "secret").write_text("0123456789" * 4)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        config = tmp_path / "watchdog.yaml"
        config.write_text(
            f"servers: [{{name: sglang, logs: [{log}], timezone: UTC}}]\ntelemetry: none\nnotify:\n"
            f"  - {{type: alertmanager, name: am, urls: ['{address}']}}\n"
            f"  - {{type: webhook, name: hook, url: '{address}/hook', secret_file: {tmp_path}/secret}}\n"
        )
        begun(log)
        with RunningDaemon("--config", str(config), "--state-dir", str(tmp_path / "state")) as daemon:
            daemon.wait_for(lambda: lines_read(daemon) == 24)
            finds_as_ever(daemon, log)
            silent.settimeout(20)
            silent.accept()[0].close()  # it did try
            assert 'sglang_watchdog_notification_queue{channel="hook"} 1.0' in daemon.text("/metrics")
            asked_s = time.monotonic()
        assert time.monotonic() - asked_s < 15, "nor does it hold the end up"
