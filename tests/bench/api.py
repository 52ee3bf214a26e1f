"""How fast the API and the metrics answer, and what that costs the ledger meanwhile. Needs wrk.

Usage: api.py [SECONDS]               (5 for each row if left out)

Prints requests/s and latency of `/api/v1/findings` with 1,000 findings, and of `/metrics` with about 2,500 series, then
the time from handing a change to the ledger until it is committed, alone and under that load.
"""

import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from sglang_watchdog.model.words import Severity
from sglang_watchdog.sinks.ledger import Ledger
from sglang_watchdog.sinks.metrics import BoardCollector
from sglang_watchdog.sinks.state import Board, Reload
from sglang_watchdog.sinks.web.broadcast import Broadcast
from sglang_watchdog.sinks.web.limits import Limits
from sglang_watchdog.sinks.web.parts import Parts, WebSettings
from sglang_watchdog.sinks.web.tokens import TokenStore
from sinks import material
from sinks.live import serving


def filled(directory: Path) -> Parts:
    """1,000 findings of ordinary size in the ledger, three servers and eight GPUs on the board."""
    servers = ("chat", "code", "embed")
    board = Board(
        version="0",
        started_at_s=material.T0,
        servers=servers,
        topics={f"area.topic-{n}": Severity.INFO for n in range(144)},
    )
    ledger = Ledger(directory / "ledger.db")
    changes = [material.fired(f"f{n}", topic=f"area.topic-{n % 144}", server=servers[n % 3]) for n in range(1000)]
    for change in changes:
        board.apply(change)
    ledger.commit(changes).result(30)
    for gpu in range(8):
        board.add_sample(material.sample(gpu))
    board.set_sources([material.source(name) for name in servers])

    async def reload() -> Reload:
        return Reload()

    limits = Limits(requests_per_s=1e9, burst=10**9, connections=1000, connections_per_client=1000)
    return Parts(
        board=board,
        ledger=ledger,
        library=lambda: material.LIBRARY,
        collector=BoardCollector(board),
        broadcast=Broadcast(),
        tokens=TokenStore(),
        reload=reload,
        settings=WebSettings(limits=limits),
    )


def wrk(url: str, seconds: int, connections: int) -> tuple[float, str, str]:
    """Requests/s, p50 and p99."""
    told = subprocess.run(
        ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", url],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "Non-2xx" not in told, told
    found = {
        name: re.search(pattern, told)
        for name, pattern in (
            ("rate", r"Requests/sec:\s+([\d.]+)"),
            ("p50", r"(?m)^\s+50%\s+(\S+)"),
            ("p99", r"(?m)^\s+99%\s+(\S+)"),
        )
    }
    assert all(found.values()), told
    return float(found["rate"][1]), found["p50"][1], found["p99"][1]  # type: ignore[index]


def commit_times_ms(ledger: Ledger, until: threading.Event) -> list[float]:
    """One change every 10 ms, as a busy log would make them."""
    times, n = [], 0
    while not until.wait(0.01):
        begun = time.perf_counter()
        ledger.commit([material.fired(f"latency-{n}")], {"server.log": n}).result(10)
        times.append((time.perf_counter() - begun) * 1000)
        n += 1
    return times


def measured(ledger: Ledger, load: threading.Thread | None, seconds: float) -> str:
    stop, times = threading.Event(), []
    committer = threading.Thread(target=lambda: times.extend(commit_times_ms(ledger, stop)))
    committer.start()
    if load is not None:
        load.start()
        load.join()
    else:
        threading.Event().wait(seconds)
    stop.set()
    committer.join()
    cuts = statistics.quantiles(times, n=100)
    return f"p50 {cuts[49]:.2f} ms, p99 {cuts[98]:.2f} ms, n {len(times)}"


def main(seconds: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        parts = filled(Path(directory))
        with serving(parts) as (host, port):
            series = sum(1 for line in parts.collector.exposition().splitlines() if not line.startswith(b"#"))
            begun = time.perf_counter()
            for _ in range(50):
                parts.collector.exposition()
            print(f"one scrape of {series} series, nothing moved:   {(time.perf_counter() - begun) / 50 * 1000:.2f} ms")
            spent = 0.0
            for n in range(50):
                parts.board.apply(material.fired(f"moved-{n}", topic="area.topic-0"))
                begun = time.perf_counter()
                parts.collector.exposition()
                spent += time.perf_counter() - begun
            print(f"one scrape of {series} series, a finding moved: {spent / 50 * 1000:.2f} ms")
            for path in ("/api/v1/findings?limit=1000", "/api/v1/findings?limit=100", "/metrics", "/healthz"):
                for connections in (1, 16):
                    rate, p50, p99 = wrk(f"http://{host}:{port}{path}", seconds, connections)
                    print(f"{path:30} connections {connections:3}: {rate:8.0f} requests/s  p50 {p50:>9}  p99 {p99:>9}")
            print(f"commit, nobody asks:       {measured(parts.ledger, None, seconds)}")
            for path, who in (("/api/v1/findings?limit=100", "clients"), ("/metrics", "scrapers")):
                load = threading.Thread(target=wrk, args=(f"http://{host}:{port}{path}", seconds, 4))
                print(f"commit, under 4 {who + ':':11}{measured(parts.ledger, load, seconds)}")
        parts.ledger.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
