"""A real Alertmanager: it takes our alerts, groups them, tells its receiver, and resolves, over restarts of either
side."""

import http.client
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sglang_watchdog.sinks.ledger import Ledger
from sglang_watchdog.sinks.ledger_writes import Acknowledgement, Silence
from sglang_watchdog.sinks.notify.alertmanager import ALIVE
from sglang_watchdog.sinks.notify.build import notifier
from sglang_watchdog.sinks.notify.notifier import Notifier
from sglang_watchdog.sinks.notify.settings import AlertmanagerSettings, Pace
from sinks import material
from sinks.needs import needs
from sinks.receiver import Receiver, receiving

pytestmark = [needs("prometheus-alertmanager"), pytest.mark.slow]

CONFIG = """
global: {resolve_timeout: 10m}
route: {receiver: pager, group_by: [finding], group_wait: 100ms, group_interval: 200ms, repeat_interval: 1h}
receivers: [{name: pager, webhook_configs: [{url: '%s', send_resolved: true}]}]
"""


class Alertmanager:
    """Debian's, on a free loopback port, with its state in a directory that survives `restart`."""

    def __init__(self, place: Path, receiver: Receiver) -> None:
        self.place, self.receiver = place, receiver
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        (place / "am.yaml").write_text(CONFIG % receiver.url)
        self.start()

    def start(self) -> None:
        program = shutil.which("prometheus-alertmanager")
        assert program is not None
        self.log = (self.place / "am.log").open("ab")
        self.process = subprocess.Popen(
            [
                program,
                f"--config.file={self.place / 'am.yaml'}",
                f"--storage.path={self.place / 'data'}",
                "--cluster.listen-address=",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=self.log,
            stderr=self.log,
        )
        until(lambda: self.get("/-/ready") is not None)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        self.log.close()

    def get(self, path: str) -> bytes | None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.read() if answer.status == 200 else None
        except OSError:
            return None
        finally:
            connection.close()

    def alerts(self) -> dict[str, Any]:
        """What it holds as active, by finding."""
        return {alert["labels"].get("finding", ALIVE): alert for alert in json.loads(self.get("/api/v2/alerts?active=true") or b"[]")}

    def told(self, finding: str) -> list[str]:
        """What its receiver was told of a finding, in order."""
        return [alert["status"] for body in self.receiver.bodies() for alert in body["alerts"] if alert["labels"].get("finding") == finding]


def until(holds: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Wait for the world outside to get there."""
    ends_at, tick = time.monotonic() + timeout_s, threading.Event()
    while not holds():
        assert time.monotonic() < ends_at, "it did not come to pass in time"
        tick.wait(0.05)


@pytest.fixture
def alertmanager(tmp_path) -> Iterator[Alertmanager]:
    with receiving() as receiver:
        running = Alertmanager(tmp_path, receiver)
        yield running
        if running.process.poll() is None:
            running.stop()


class Sender:
    """Ledger and notifier as the daemon wires them."""

    def __init__(self, path: Path, url: str) -> None:
        settings = AlertmanagerSettings(name="am", urls=(url,), resend_s=0.5, resolved_for_s=300)
        self.running: Notifier | None = None
        self.ledger = Ledger(path, on_committed=lambda _: self.running and self.running.wake())
        self.running = notifier([settings], self.ledger, pace=Pace(backoff_s=0.2))
        self.running.start()

    def tell(self, *changes: object) -> None:
        self.ledger.commit(changes).result(5)

    def stop(self) -> None:
        assert self.running is not None
        self.running.stop()
        self.ledger.close()


def now_fired(id: str) -> Any:
    return material.fired(id, at_s=time.time(), first_seen_s=time.time() - 1, last_seen_s=time.time())


def now_resolved(id: str) -> Any:
    return material.resolved(id, at_s=time.time(), first_seen_s=time.time() - 1)


def test_a_finding_fires_is_resent_and_resolves_in_a_real_alertmanager(alertmanager, tmp_path):
    sender = Sender(tmp_path / "ledger.db", alertmanager.url)
    sender.tell(now_fired("f1"))
    until(lambda: "f1" in alertmanager.alerts() and ALIVE in alertmanager.alerts())
    first = alertmanager.alerts()["f1"]

    until(lambda: alertmanager.alerts()["f1"]["endsAt"] > first["endsAt"])
    assert first["labels"]["severity"] == "warning"
    assert first["annotations"]["evidence"].startswith("server.log:28: ")
    sender.tell(now_resolved("f1"))
    until(lambda: alertmanager.told("f1") == ["firing", "resolved"])
    until(lambda: "f1" not in alertmanager.alerts())

    sender.stop()


def test_what_people_take_or_silence_ends_there_and_comes_back_when_they_let_go(alertmanager, tmp_path):
    """Alertmanager hears of our acknowledgements and silences as an end, at once and not after its time-out."""
    sender = Sender(tmp_path / "ledger.db", alertmanager.url)
    sender.tell(now_fired("taken"), now_fired("silenced"))
    until(lambda: alertmanager.told("taken") == alertmanager.told("silenced") == ["firing"])

    sender.ledger.acknowledge(Acknowledgement(finding="taken", author="ada", note="", at_s=time.time())).result(5)
    word = Silence(id="s", matchers={"finding": "silenced"}, author="ada", reason="r", starts_s=time.time(), ends_s=time.time() + 3600)
    sender.ledger.silence(word).result(5)
    until(lambda: alertmanager.told("taken") == alertmanager.told("silenced") == ["firing", "resolved"])
    assert set(alertmanager.alerts()) == {ALIVE}

    sender.ledger.withdraw("taken", "ada").result(5)
    sender.ledger.end_silence("s", "ada").result(5)
    until(lambda: alertmanager.told("taken") == alertmanager.told("silenced") == ["firing", "resolved", "firing"])
    sender.tell(now_resolved("taken"))
    until(lambda: alertmanager.told("taken") == ["firing", "resolved", "firing", "resolved"])
    sender.stop()


def test_a_restart_of_either_side_loses_nothing_and_repeats_nothing(alertmanager, tmp_path):
    sender = Sender(tmp_path / "ledger.db", alertmanager.url)
    sender.tell(now_fired("stays"), now_fired("ends"))
    until(lambda: alertmanager.told("stays") == alertmanager.told("ends") == ["firing"])

    alertmanager.stop()
    sender.tell(now_resolved("ends"), now_fired("new"))
    sender.stop()
    alertmanager.start()
    again = Sender(tmp_path / "ledger.db", alertmanager.url)

    until(lambda: alertmanager.told("new") == ["firing"])
    until(lambda: alertmanager.told("ends") == ["firing", "resolved"])
    assert alertmanager.told("stays") == ["firing"]
    assert set(alertmanager.alerts()) == {"stays", "new", ALIVE}
    again.stop()


def test_a_sender_that_dies_is_noticed_by_the_end_of_its_alerts(alertmanager, tmp_path):
    """endsAt is four resends ahead, so a dead daemon's alerts, and the one that says it is alive, end by themselves."""
    sender = Sender(tmp_path / "ledger.db", alertmanager.url)
    sender.tell(now_fired("f1"))
    until(lambda: ALIVE in alertmanager.alerts())
    sender.stop()

    until(lambda: alertmanager.alerts() == {})


def test_a_flapping_finding_is_one_alert_and_few_notifications(alertmanager, tmp_path):
    sender = Sender(tmp_path / "ledger.db", alertmanager.url)
    for _ in range(30):
        sender.tell(now_fired("f1"))
        sender.tell(now_resolved("f1"))
    sender.tell(now_fired("f1"))
    until(lambda: "f1" in alertmanager.alerts())
    until(lambda: bool(alertmanager.told("f1")))
    sender.stop()

    told = alertmanager.told("f1")
    print(f"30 flaps: {len(told)} notifications by Alertmanager")
    assert len(told) <= 5
