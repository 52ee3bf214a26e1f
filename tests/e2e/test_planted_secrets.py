"""Keys and prompts planted in every place from which the daemon reads anything, and a search through everything that comes out of it."""

import base64
import gzip
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from planted import SECRETS, WORDINGS, planted_log, planted_runs
from sinks.receiver import receiving

from .daemon import RunningDaemon

sys.path.insert(0, str(Path(__file__).parent.parent / "sources"))
from fake_server import LAUNCHER

# By where each is planted; what people are meant to see stands in none of them.
PLACES = {
    "process command line": "sk-cmdline-0123456789abcdef",
    "process environment": "hf_EnvironOfServer0123456789",
    "/server_info": "sk-serverinfo-0123456789abc",
    "/server_info, admin": "serverinfo-admin-0123456789",
    "address of the server": "urlpassword0123456789",
    "own environment": "own-environment-0123456789",
    "webhook secret": "webhooksecret0123456789abcdef0123",
    "webhook address": "T0HOOKPATH0123456789",
    "Alertmanager token": "amtoken-0123456789abcdef",
    "API token": "sgwd_apitoken-0123456789abcdef",
    "wrong token": "sgwd_wrongtoken-0123456789abcdef",
    "query of a request": "queryplanted0123456789",
    "body of a request": "bodyplanted0123456789",
    "header of a request": "headerplanted0123456789",
    "process name in a sample": "sk-samplename-0123456789abc",
}


@dataclass
class Outcome:
    """Everything that came out of the daemon, by where it was found."""

    texts: dict[str, str] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    operations: set[str] = field(default_factory=set)

    def keep(self, where: str, data: bytes | str) -> None:
        self.texts[where] = data if isinstance(data, str) else data.decode("utf-8", "replace")


def ask(url: str, path: str, *, method: str = "GET", body: bytes | None = None, **headers: str) -> bytes:
    request = urllib.request.Request(url + path, method=method, data=body, headers={name.replace("_", "-"): value for name, value in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return str(answer.headers).encode() + bytes(answer.read())
    except urllib.error.HTTPError as answer:
        with answer:
            return str(answer.headers).encode() + bytes(answer.read())


def stamps(began_s: float) -> Any:
    """Twenty seconds of the story in one of the clock: all of it after the daemon's start, or nobody would be told."""
    return lambda second: datetime.fromtimestamp(began_s + second / 20, UTC).strftime("%Y-%m-%d %H:%M:%S")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A process tree with SGLang's titles and a /server_info, keys in its command line and environment."""
    package = tmp_path_factory.mktemp("package") / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(
        LAUNCHER.replace("sk-very-secret", PLACES["/server_info"]).replace("sk-admin", PLACES["/server_info, admin"])
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    process = subprocess.Popen(
        [sys.executable, "-m", "sglang.launch_server", "--port", str(port), "--api-key", PLACES["process command line"]],
        env={**os.environ, "PYTHONPATH": str(package.parent), "HF_TOKEN": PLACES["process environment"]},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    yield port
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def samples(path: Path, began_s: float) -> None:
    """A GPU whose processes carry a command line as their name."""
    name = f"python --api-key {PLACES['process name in a sample']}"
    rows = [
        {"ts": began_s + second, "gpu": 0, "uuid": "GPU-1", "name": "NVIDIA H200", "power_w": 100.0, "power_limit_w": 700.0,
         "processes": [{"pid": 1, "ppid": 0, "mem_mib": 10, "name": name}]}
        for second in range(70)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory, server: int) -> Outcome:
    tmp_path = tmp_path_factory.mktemp("watched")
    log = tmp_path / "server.log"
    log.touch()
    samples(tmp_path / "gpus.jsonl", time.time())
    (tmp_path / "hook").write_text("whsec_" + base64.b64encode(PLACES["webhook secret"].encode()).decode())
    (tmp_path / "am").write_text(PLACES["Alertmanager token"])
    (tmp_path / "token").write_text(PLACES["API token"])
    out = Outcome()
    with receiving() as pager, receiving() as peer:
        settings = {
            "servers": [{"name": "moe", "logs": [str(log)], "timezone": "UTC", "url": f"http://me:{PLACES['address of the server']}@127.0.0.1:{server}"}],
            "telemetry": {"source": "replay", "file": str(tmp_path / "gpus.jsonl"), "record": str(tmp_path / "recording.jsonl")},
            "state_dir": str(tmp_path / "state"), "listen": "127.0.0.1:0", "log_level": "debug",
            "auth": {"tokens": [{"name": "ada", "scope": "write", "file": str(tmp_path / "token")}]},
            "notify": [
                {"type": "webhook", "name": "hook", "min_severity": "info", "secret_file": str(tmp_path / "hook"),
                 "url": f"{pager.url}/{PLACES['webhook address']}"},
                {"type": "webhook", "name": "broken", "min_severity": "info", "secret_file": str(tmp_path / "hook"),
                 "url": f"http://127.0.0.1:1/{PLACES['webhook address']}"},
                {"type": "alertmanager", "name": "am", "min_severity": "info", "urls": [peer.url], "bearer_file": str(tmp_path / "am")},
            ],
        }  # fmt: skip
        (tmp_path / "watchdog.yaml").write_text(json.dumps(settings, indent=1))
        daemon = RunningDaemon(
            "--config", str(tmp_path / "watchdog.yaml"), "--verbose", "--print-findings", environment={"HF_TOKEN": PLACES["own environment"]}
        )
        with daemon:
            stamp = stamps(time.time())
            runs = list(planted_runs(stamp))
            log.write_text("".join(lines for _, lines in runs) + planted_log(lambda second: stamp(len(runs) * 4 + second)))
            quoted = f"wording{len(WORDINGS) - 1:02}"
            daemon.wait_for(lambda: quoted in json.dumps(daemon.all("findings")) and len(daemon.all("runs")) >= len(WORDINGS) + 2, 60)
            daemon.wait_for(lambda: any("run.server_info" in fact or "server_info" in fact for fact in facts(daemon)), 60)
            for told in (pager, peer):
                daemon.wait_for(lambda told=told: any(b"starts again and again" in body for _, _, body in told.requests), 60)
            misbehave(daemon, out)
            operations(daemon, out)
            cli(daemon, out, tmp_path / "watchdog.yaml")
            out.findings = daemon.all("findings")
            daemon.wait_for(lambda: any("notification failed" in line for line in daemon.errors))
            files(tmp_path, out, "while running")
        out.keep("standard output", "\n".join(daemon.lines))
        out.keep("standard error", "\n".join(daemon.errors))
        files(tmp_path, out, "afterwards")
        out.keep("webhooks", b"\n".join(body for _, _, body in pager.requests))
        out.keep("webhook headers", repr([headers for _, headers, _ in pager.requests]))
        out.keep("alerts", b"\n".join(body for _, _, body in peer.requests))
    return out


def facts(daemon: RunningDaemon) -> list[str]:
    return [json.dumps(fact) for run in daemon.all("runs") for fact in daemon.get(f"/api/v1/runs/{run['id']}/facts")["facts"]]


def misbehave(daemon: RunningDaemon, out: Outcome) -> None:
    """Requests that are refused, with secrets in them: no answer and no log quotes them."""
    query, body, header = PLACES["query of a request"], PLACES["body of a request"], PLACES["header of a request"]
    token = f"Bearer {PLACES['API token']}"
    for number, (path, method, data, headers) in enumerate(
        [
            (f"/api/v1/findings?api_key={query}", "GET", None, {}),
            (f"/api/v1/findings?since={query}", "GET", None, {}),
            ("/api/v1/status", "GET", None, {"Authorization": f"Bearer {PLACES['wrong token']}"}),
            ("/api/v1/status", "GET", None, {"Host": header}),
            ("/api/v1/status", "GET", None, {"Origin": f"http://{header}"}),
            ("/api/v1/silences", "POST", json.dumps({"reason": body, "nonsense": body}).encode(), {"Authorization": token, "Content-Type": "application/json"}),
            ("/api/v1/silences", "POST", b"{" + body.encode(), {"Authorization": token, "Content-Type": "application/json"}),
            ("/-/reload", "POST", b"", {"Authorization": token}),
        ]
    ):  # fmt: skip
        out.keep(f"refused {number} {path.partition('?')[0]}", ask(daemon.url, path, method=method, body=data, **headers))


def operations(daemon: RunningDaemon, out: Outcome) -> None:
    """Every GET of the document, for everything there is; pages and stream too."""
    token = {"Authorization": f"Bearer {PLACES['API token']}"}
    document = json.loads(daemon.text("/openapi.json"))
    ids = {
        "findings": [one["id"] for one in daemon.all("findings")], "runs": [one["id"] for one in daemon.all("runs")],
        "gpus": ["0"], "signatures": [one["id"] for one in daemon.all("signatures")][:5],
    }  # fmt: skip
    for template, methods in document["paths"].items():
        if "get" not in methods:
            continue
        out.operations.add(template)
        noun = template.removeprefix("/api/v1/").partition("/")[0]
        values = ids.get(noun, [""])
        for value in values:
            path = re.sub(r"\{\w+\}", urllib.parse.quote(value, safe=""), template)
            query = "?after=0&duration_s=0" if template.endswith("/changes") else "?limit=1000" if template.count("/") == 3 and noun in ids else ""
            out.keep(f"{path}{query}", ask(daemon.url, path + query, **token))
    for path in ("/", "/docs", "/openapi.json"):
        out.keep(path, ask(daemon.url, path, **token))


def cli(daemon: RunningDaemon, out: Outcome, config: Path) -> None:
    for words in (["config", "show", "--config", config], ["doctor"], *([noun, "--url", daemon.url] for noun in ("findings", "runs"))):
        done = subprocess.run(
            [sys.executable, "-m", "sglang_watchdog", *map(str, words)], capture_output=True, text=True, timeout=60,
            env={**os.environ, "HF_TOKEN": PLACES["own environment"]},
        )  # fmt: skip
        out.keep(" ".join(map(str, words[:2])), done.stdout + done.stderr)


def files(folder: Path, out: Outcome, when: str) -> None:
    """The state directory byte for byte and, since the pages of a database cut long texts, as rows; and the recording."""
    for path in [*sorted((folder / "state").iterdir()), *folder.glob("recording*")]:
        data = path.read_bytes()
        out.keep(f"{path.name} {when}", gzip.decompress(data) if path.suffix == ".gz" else data)
    with sqlite3.connect(f"file:{folder}/state/ledger.sqlite3?mode=ro", uri=True) as connection:
        out.keep(f"rows {when}", "\n".join(connection.iterdump()))
    connection.close()


def test_nothing_planted_comes_out(outcome: Outcome) -> None:
    planted = {**dict.fromkeys(SECRETS, "log"), **{text: place for place, text in PLACES.items()}}
    planted |= {secret: f"wording {number}" for number, (secret, _) in enumerate(planted_runs(stamps(0.0)))}
    encoded = {base64.b64encode(secret.encode()).decode().rstrip("=")[:-2]: place for secret, place in planted.items()}

    found = [
        (place, where, text[max(0, text.index(secret) - 60) : text.index(secret) + 20])
        for where, text in outcome.texts.items()
        for secret, place in {**planted, **encoded}.items()
        if secret in text
    ]

    assert found == []


def test_the_search_looked_where_something_is(outcome: Outcome) -> None:
    """Each wording was quoted, each output holds what it should: an empty output would hold no secret either."""
    quoted = json.dumps(outcome.findings)
    assert [number for number in range(len(WORDINGS)) if f"wording{number:02}" not in quoted] == []
    for where in ("webhooks", "alerts"):
        assert "starts again and again" in outcome.texts[where], where
    for where in ("rows while running", "/", "/api/v1/changes?after=0&duration_s=0", "ledger.sqlite3 afterwards"):
        assert "Received sigquit from a child" in outcome.texts[where], where
    assert "GPU-1" in outcome.texts["recording.jsonl afterwards"]
    assert "notification failed" in outcome.texts["standard error"]
    assert "sglang_watchdog_finding_active" in outcome.texts["/metrics"]
    assert "moe" in outcome.texts["config show"]
    assert len(outcome.operations) >= 20
