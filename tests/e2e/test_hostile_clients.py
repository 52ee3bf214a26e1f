"""Clients of the real daemon that are slow, huge, broken or many on purpose: it answers others, reads its log, and does not grow."""

import contextlib
import json
import re
import socket
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from .daemon import RunningDaemon
from .test_faults import Watched, is_found

ROUNDS = 4
PIPELINED = 40
GROWTH_MIB = 24  # of a process of some 150 MiB; the first round warms allocators up and is not counted


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningDaemon, Watched]]:
    tmp_path = tmp_path_factory.mktemp("hostile")
    log = Watched(tmp_path)
    config = tmp_path / "watchdog.yaml"
    # Hostile clients and the test itself come from one address here: only what each connection may do is left at its default.
    config.write_text(
        f"servers: [{{name: a, logs: [{log.path}], timezone: UTC}}]\ntelemetry: none\nstate_dir: {tmp_path}/state\nlisten: 127.0.0.1:0\n"
        "limits: {connections: 120, connections_per_client: 120, request_s: 1, stream_stall_s: 1, requests_per_s: 1e6, burst: 1000000}\n"
    )
    with RunningDaemon("--config", str(config)) as daemon:
        yield daemon, log


def resident_mib(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def connected(daemon: RunningDaemon, receive_buffer: int | None = None) -> socket.socket:
    host, port = urllib.parse.urlsplit(daemon.url).netloc.split(":")
    client = socket.socket()
    client.settimeout(5)
    if receive_buffer is not None:  # before connecting: later it no longer shrinks the window that was offered
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.connect((host, int(port)))
    return client


def is_over(client: socket.socket) -> bool:
    """Whether the daemon ends the connection, whatever it says before."""
    try:
        while client.recv(65_536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def bytes_until_the_end(client: socket.socket) -> int:
    """What still comes until the connection is over; a connection that is not over fails the test."""
    taken = 0
    try:
        while part := client.recv(65_536):
            taken += len(part)
    except ConnectionError:
        pass
    return taken


def connections(daemon: RunningDaemon) -> int:
    """How many the daemon holds open, as the kernel knows."""
    port = f":{int(urllib.parse.urlsplit(daemon.url).netloc.rsplit(':')[1]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(port) and row[3] == "01" for row in rows)


def attack(daemon: RunningDaemon) -> dict[str, int]:
    """One round. Returns how many of each kind were ended by the daemon."""
    head = "POST /api/v1/silences HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    kinds = {
        "silent": ["" for _ in range(25)],
        "half a head": ["GET /api/v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: " for _ in range(25)],
        "half a body": [f"{head}Content-Length: 60000\r\n\r\n{{" for _ in range(20)],
        "huge header": ["GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Big: " + "x" * 200_000 for _ in range(10)],
        "huge body": [f"{head}Content-Length: 9000000\r\nConnection: close\r\n\r\n" + "x" * 200_000 for _ in range(10)],
        "garbage": ["\x00\xff" * 5_000 for _ in range(10)],
    }
    with contextlib.ExitStack() as stack:
        opened: list[tuple[str, socket.socket]] = []
        for kind, texts in kinds.items():
            for text in texts:
                client = stack.enter_context(connected(daemon))
                with contextlib.suppress(OSError):  # it may be refused before all is sent
                    client.sendall(text.encode("latin-1"))
                opened.append((kind, client))
        ended = {kind: sum(is_over(client) for each, client in opened if each == kind) for kind in kinds}
    assert ended == {kind: len(texts) for kind, texts in kinds.items()}
    return ended


@pytest.mark.slow
def test_it_answers_others_reads_on_and_does_not_grow(running: tuple[RunningDaemon, Watched]) -> None:
    daemon, log = running
    sizes = []
    for _ in range(ROUNDS):
        attack(daemon)
        model = log.crash()
        daemon.wait_for(lambda model=model: is_found(daemon, model))
        sizes.append(resident_mib(daemon.process.pid))

    print(f"resident after each of {ROUNDS} rounds of 100 hostile clients: {', '.join(f'{size:.0f}' for size in sizes)} MiB")
    assert sizes[-1] - sizes[0] < GROWTH_MIB
    assert daemon.get("/api/v1/status")["engine_errors"] == 0
    assert len(daemon.errors) < 60, "strangers cannot fill the log"


@pytest.mark.slow
def test_readers_that_do_not_read_are_cut_off_and_lose_nothing_but_their_connection(running: tuple[RunningDaemon, Watched]) -> None:
    daemon, log = running
    for _ in range(60):
        last = log.crash()
    daemon.wait_for(lambda: is_found(daemon, last), 60)
    answer_bytes = len(daemon.text("/api/v1/findings?limit=1000"))
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(20):
            client = stack.enter_context(connected(daemon, receive_buffer=2048))
            client.sendall(b"GET /api/v1/findings?limit=1000 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * PIPELINED)
            clients.append(client)
        before = time.monotonic()
        assert daemon.get("/api/v1/status")["engine_errors"] == 0
        model = log.crash()
        daemon.wait_for(lambda: is_found(daemon, model))
        assert time.monotonic() - before < 20
        daemon.wait_for(lambda: connections(daemon) <= 1)  # all are cut off before anybody reads
        taken = [bytes_until_the_end(client) for client in clients]
        assert max(taken) < PIPELINED * answer_bytes, "it was cut off, not served"
    assert json.loads(daemon.text("/readyz"))["status"] == "ok"
