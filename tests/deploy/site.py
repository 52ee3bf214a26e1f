"""A whole site on loopback: the daemon beside a replayed server, Debian's Prometheus and Alertmanager with our files, and someone who is paged.

Only times are shortened (`for:`, windows, group waits, scrape interval) and addresses put in; rules, routes and inhibitions are the
ones we ship.
"""

import json
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from e2e.daemon import RunningDaemon

from .tools import PROMETHEUS, ROOT, RULES, tool

SECOND_RUN = "01-moe-default"
FIRST_RUN = "04-moe-disable-cuda-graph"
CAPTURES = ROOT / "tests" / "captures"


class Duty:
    """Whoever receives pages, tickets and heartbeats: notes when each message came."""

    def __init__(self) -> None:
        self.messages: list[tuple[float, str, dict[str, Any]]] = []
        duty = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                duty.messages.append((time.time(), self.path.strip("/"), body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def heard(self, receiver: str, status: str, **labels: str) -> tuple[float, dict[str, Any]] | None:
        """The first message to this receiver about such an alert in this status, with when it came."""
        for at_s, to, message in list(self.messages):
            for alert in message.get("alerts", ()):  # the daemon's own messages have none
                if to == receiver and alert["status"] == status and labels.items() <= alert["labels"].items():
                    return at_s, alert
        return None


class Growth:
    """When each byte of a file was there: looks at its size again and again."""

    def __init__(self, path: Path) -> None:
        self.sizes: list[tuple[float, int]] = []
        self._path, self._end = path, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._end.wait(0.02):
            size = self._path.stat().st_size
            if not self.sizes or size != self.sizes[-1][1]:
                self.sizes.append((time.time(), size))

    def close(self) -> None:
        self._end.set()
        self._thread.join()

    def written_at(self, offset: int) -> float:
        return next(at_s for at_s, size in self.sizes if size > offset)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def running(*command: str, ready: str) -> Iterator[None]:
    """A server process from its start (this address answers) to its end."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: answers(ready), 30.0, f"{command[0]} does not answer at {ready}")
        yield
    finally:
        process.terminate()
        process.communicate(timeout=20)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, ConnectionError):
        return False


def wait_for(what: Callable[[], Any], seconds: float, otherwise: str) -> Any:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if found := what():
            return found
        time.sleep(0.1)
    raise AssertionError(f"{otherwise} (waited {seconds:.0f} s)")


def get(url: str, **query: str) -> Any:
    asked = f"{url}?{urllib.parse.urlencode(query)}" if query else url
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return json.load(answer)


class Site:
    """The running site, for questions."""

    def __init__(self, folder: Path, daemon: RunningDaemon, prometheus: str, alertmanager: str, duty: Duty) -> None:
        self.folder, self.daemon, self.prometheus, self.alertmanager, self.duty = folder, daemon, prometheus, alertmanager, duty
        self.log = folder / "server.log"
        self.growth = Growth(self.log)
        self.began_s = time.time()

    def replay(self, capture: str) -> None:
        """Play a recorded run into the log that the daemon tails."""
        subprocess.run(
            [sys.executable, "-m", "sglang_watchdog", "replay", str(CAPTURES / capture), "--into", str(self.log), "--samples-into",
             str(self.folder / "gpus.jsonl"), "--speed", "12", "--longest-wait", "1", "--shift-to-now"],
            check=True, capture_output=True, timeout=80,
        )  # fmt: skip

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Every series that had a number at some time since the start, second by second."""
        data = get(f"{self.prometheus}/api/v1/query_range", query=expression, start=str(self.began_s), end=str(time.time()), step="1")["data"]
        return [row for row in data["result"] if any(value != "NaN" for _, value in row["values"])]

    def held_back(self) -> list[dict[str, Any]]:
        """Alerts that Alertmanager inhibits now."""
        return [alert for alert in get(f"{self.alertmanager}/api/v2/alerts") if alert["status"]["inhibitedBy"]]


def shortened(text: str) -> str:
    """Rules or routes with minutes made seconds; nothing else is touched."""
    text = re.sub(r"\bfor: \d+m", "for: 2s", text)
    text = re.sub(r"(max|min)_over_time\(([^\[]+)\[\d+m\]", r"\1_over_time(\2[5s]", text)
    return re.sub(r"(group_wait|group_interval): \w+", r"\1: 1s", text)


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    prometheus, alertmanager = tool("prometheus"), tool("prometheus-alertmanager")
    (folder / "server.log").touch()
    (folder / "gpus.jsonl").touch()
    (folder / "secret").write_text("0123456789" * 4)
    ports = {"prometheus": free_port(), "alertmanager": free_port()}
    addresses = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    with ExitStack() as stack:
        duty = Duty()
        stack.callback(duty.close)
        (folder / "alertmanager.yml").write_text(shortened((PROMETHEUS / "alertmanager.yml").read_text()).replace(":9097/", f":{duty.port}/"))
        (folder / "watchdog.yaml").write_text(
            f"servers: [{{name: moe, logs: [{folder}/server.log], timezone: UTC}}]\ntelemetry: replay:{folder}/gpus.jsonl\n"
            f"notify: [{{type: webhook, name: direct, url: 'http://127.0.0.1:{duty.port}/direct', secret_file: {folder}/secret}}]\n"
        )
        daemon = stack.enter_context(
            RunningDaemon("--config", f"{folder}/watchdog.yaml", "--clock", "log", "--state-dir", f"{folder}/state", "--listen", "127.0.0.1:0")
        )
        target = daemon.url.removeprefix("http://")
        for rules in RULES:
            (folder / rules.name).write_text(shortened(rules.read_text()))
        (folder / "prometheus.yml").write_text(
            (PROMETHEUS / "prometheus.yml").read_text().replace("15s", "1s").replace("127.0.0.1:17853", target)
            .replace("127.0.0.1:9093", f"127.0.0.1:{ports['alertmanager']}")
        )  # fmt: skip
        stack.enter_context(running(
            alertmanager, f"--config.file={folder}/alertmanager.yml", f"--storage.path={folder}/alertmanager", "--cluster.listen-address=",
            f"--web.listen-address=127.0.0.1:{ports['alertmanager']}", "--log.level=warn", ready=f"{addresses['alertmanager']}/-/ready",
        ))  # fmt: skip
        stack.enter_context(running(
            prometheus, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
            f"--web.listen-address=127.0.0.1:{ports['prometheus']}", "--log.level=warn",
            "--rules.alert.resend-delay=5s",  # what fired before Alertmanager was discovered is sent again, by default after a minute
            ready=f"{addresses['prometheus']}/-/ready",
        ))  # fmt: skip
        here = Site(folder, daemon, addresses["prometheus"], addresses["alertmanager"], duty)
        stack.callback(here.growth.close)
        yield here
