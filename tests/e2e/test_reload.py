"""A reload of the real daemon: what changes at once, what waits for a restart, and what happens when the new configuration is bad."""

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sinks.receiver import Receiver, receiving

from .daemon import RunningDaemon

CAPTURE = Path(__file__).parents[1] / "captures" / "04-moe-disable-cuda-graph" / "server.log"
FIRING = "cuda-graph-disabled-by-argument"
OTHER = "moe-triton-default-config"


@dataclass
class Site:
    """A daemon over a recorded log, and the file that configures it."""

    folder: Path
    daemon: RunningDaemon
    pager: Receiver
    settings: dict[str, Any]

    def write(self, **changes: Any) -> None:
        self.settings = {**self.settings, **changes}
        (self.folder / "watchdog.yaml").write_text(json.dumps(self.settings))

    def reload(self, token: str) -> tuple[int, dict[str, Any]]:
        return ask(self.daemon, "/-/reload", token=token, method="POST")

    def findings(self) -> dict[str, dict[str, Any]]:
        return {one["signature"]: one for one in self.daemon.all("findings")}

    def metric(self, name: str) -> str:
        return next(line.split()[-1] for line in self.daemon.text("/metrics").splitlines() if line.startswith(f"sglang_watchdog_{name} "))


def ask(daemon: RunningDaemon, path: str, *, token: str = "", method: str = "GET", host: str = "") -> tuple[int, dict[str, Any]]:
    headers = {**({"Authorization": f"Bearer {token}"} if token else {}), **({"Host": host} if host else {})}
    request = urllib.request.Request(daemon.url + path, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as answer:
        return answer.code, json.load(answer)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "server.log").write_bytes(CAPTURE.read_bytes().partition(b"SIGTERM received")[0].rpartition(b"\n")[0] + b"\n")
    (tmp_path / "secret").write_text("0123456789" * 4)
    (tmp_path / "first").write_text("first-token")
    (tmp_path / "second").write_text("second-token")
    with receiving() as pager:
        settings = {
            "servers": [{"name": "moe", "logs": [str(tmp_path / "server.log")], "timezone": "UTC"}],
            "telemetry": "none", "clock": "log", "state_dir": str(tmp_path / "state"), "listen": "127.0.0.1:0",
            "auth": {"tokens": [{"name": "ada", "scope": "write", "file": str(tmp_path / "first")}]},
            "notify": [{"type": "webhook", "name": "pager", "url": f"{pager.url}/hook", "secret_file": str(tmp_path / "secret"),
                        "min_severity": "info"}],
        }  # fmt: skip
        (tmp_path / "watchdog.yaml").write_text(json.dumps(settings))
        with RunningDaemon("--config", str(tmp_path / "watchdog.yaml")) as daemon:
            made = Site(tmp_path, daemon, pager, settings)
            daemon.wait_for(lambda: FIRING in made.findings())
            yield made


def test_what_can_change_changes_at_once_and_the_rest_is_named(site: Site) -> None:
    """Token, limits, allowed hosts, path prefix, override, thresholds: in force with the answer. `listen` waits for a restart."""
    before = site.findings()[FIRING]
    site.write(
        auth={"tokens": [{"name": "bob", "scope": "write", "file": str(site.folder / "second")}], "allowed_hosts": ["watch.example"]},
        limits={"body_bytes": 2048}, root_path="/gpu-7", listen="127.0.0.1:1", log_level="debug",
        signatures={"disable": ["responses-api-missing"]},
        servers=[{**site.settings["servers"][0], "thresholds": {"window_s": 20}}],
    )  # fmt: skip
    assert ask(site.daemon, "/api/v1/status", host="watch.example")[0] == 421

    status, answer = site.reload("first-token")

    assert status == 200, answer
    assert answer["needs_restart"] == ["listen"]
    assert set(answer["changed"]) == {
        "auth.allowed_hosts", "auth.tokens", "limits.body_bytes", "log_level", "root_path", "servers.moe.thresholds.window_s",
        "signatures.disable",
    }  # fmt: skip
    assert ask(site.daemon, "/api/v1/status", host="watch.example")[0] == 200
    assert ask(site.daemon, "/gpu-7/api/v1/status")[0] == 200
    assert site.reload("first-token")[0] == 401
    assert site.reload("second-token")[0] == 200
    assert ask(site.daemon, "/api/v1/signatures/responses-api-missing")[0] == 404
    assert site.daemon.get("/api/v1/status")["reload"]["needs_restart"] == ["listen"]
    assert site.metric("config_restart_needed") == "1.0"
    assert any("changed, needs a restart" in line and '"listen"' in line for line in site.daemon.errors)
    after = site.findings()[FIRING]
    assert (after["id"], after["state"], after["first_seen"], after["count"]) == (before["id"], "firing", before["first_seen"], before["count"])

    site.write(listen="127.0.0.1:0")
    assert site.reload("second-token")[1]["needs_restart"] == []


def test_a_bad_configuration_is_refused_whole_and_told_everywhere(site: Site) -> None:
    """One good change and one bad one: neither is taken up."""
    site.write(limits={"body_bytes": 2048}, notify=[{"type": "webhook", "url": "http://127.0.0.1:1/", "secret_file": "/nowhere"}])

    status, problem = site.reload("first-token")

    assert status == 422
    assert "/nowhere cannot be read" in problem["detail"]
    assert "watchdog.yaml:1:" in problem["detail"]
    reload = site.daemon.get("/api/v1/status")["reload"]
    assert not reload["successful"]
    assert reload["error"] == problem["detail"]
    assert site.metric("config_last_reload_successful") == "0.0"
    assert any("reload refused" in line and "/nowhere" in line for line in site.daemon.errors)
    assert "The newest configuration was refused" in site.daemon.text("/")
    assert [one["channel"] for one in site.daemon.get("/api/v1/status")["notifications"]] == ["pager"]

    (site.folder / "watchdog.yaml").write_text("listen: [\n")
    site.daemon.process.send_signal(signal.SIGHUP)
    site.daemon.wait_for(lambda: "watchdog.yaml:2:1" in site.daemon.get("/api/v1/status")["reload"]["error"])

    site.write(notify=[])
    site.daemon.process.send_signal(signal.SIGHUP)
    site.daemon.wait_for(lambda: site.daemon.get("/api/v1/status")["reload"]["successful"])
    assert site.daemon.get("/api/v1/status")["notifications"] == []
    assert site.metric("config_last_reload_successful") == "1.0"


def test_the_findings_of_a_disabled_signature_expire_and_the_rest_goes_on(site: Site) -> None:
    site.write(signatures={"disable": [FIRING]})
    site.daemon.process.send_signal(signal.SIGHUP)

    gone = site.daemon.wait_for(lambda: site.findings()[FIRING]["state"] == "expired")

    assert gone
    assert site.findings()[OTHER]["state"] == "firing"


def test_channels_come_and_go_without_losing_count(site: Site) -> None:
    site.pager.wait_for(1)
    told = site.daemon.wait_for(lambda: site.daemon.get("/api/v1/status")["notifications"][0]["sent"])
    with receiving() as second:
        site.write(notify=[*site.settings["notify"], {"type": "alertmanager", "name": "am", "urls": [second.url], "min_severity": "info"}])
        assert site.reload("first-token")[0] == 200
        second.wait_for(1)
        channels = {one["channel"]: one for one in site.daemon.get("/api/v1/status")["notifications"]}

    assert channels["pager"]["sent"] >= told
    assert f"am {second.url}" in channels
    assert {alert["labels"].get("signature") for alert in second.bodies()[0]} >= {FIRING}


def test_the_last_token_cannot_go_while_others_can_reach_the_port(tmp_path: Path) -> None:
    """Good for the next start, since `listen` changes too; not for the port that is open now."""
    (tmp_path / "token").write_text("first-token")
    (tmp_path / "server.log").touch()
    config = tmp_path / "watchdog.yaml"
    base = {"servers": [{"name": "a", "logs": [str(tmp_path / "server.log")]}], "telemetry": "none", "state_dir": "none"}
    config.write_text(json.dumps({**base, "listen": "0.0.0.0:0", "auth": {"tokens": [{"name": "a", "scope": "write", "file": str(tmp_path / "token")}]}}))
    with RunningDaemon("--config", str(config)) as daemon:
        daemon.url = daemon.url.replace("0.0.0.0", "127.0.0.1")
        config.write_text(json.dumps({**base, "listen": "127.0.0.1:0"}))
        status, problem = ask(daemon, "/-/reload", token="first-token", method="POST")

        assert status == 422
        assert "the last token cannot go" in problem["detail"]
        assert ask(daemon, "/api/v1/status")[0] == 401
