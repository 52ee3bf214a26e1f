"""What goes wrong around the real daemon: it goes on watching, says so, and recovers. The parts by themselves: tests/sinks/test_ledger_disk.py."""

import json
import os
import signal
import sqlite3
import subprocess
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from telemetry.fake_nvml import compiler

from .daemon import RunningDaemon

SIGNATURE = "startup-weights-not-ready"  # raised the moment it is read: waits for no more lines and no release


class Watched:
    """A log that is written while the daemon reads it: each `crash` is a server's start that comes to nothing, and a finding."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "server.log"
        self.path.touch()
        self.count = 0

    def crash(self, at_s: float | None = None) -> str:
        """Append one; returns the model path by which its run is known."""
        self.count += 1
        moment = datetime.fromtimestamp(time.time() if at_s is None else at_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
        model = f"/models/m{self.count}"
        with self.path.open("a") as log:
            log.write(
                f"[{moment}] server_args=ServerArgs(model_path='{model}', tp_size=1, log_level='info')\n"
                f"[{moment}] Weights are not ready after waiting 120 seconds\n"
            )
        return model


def daemon(folder: Path, state: Path, *more: str, environment: dict[str, str] | None = None) -> RunningDaemon:
    return RunningDaemon(
        str(folder / "server.log"), "--timezone", "UTC", "--telemetry", "none", "--state-dir", str(state), "--listen", "127.0.0.1:0", *more,
        environment=environment,
    )  # fmt: skip


def is_found(running: RunningDaemon, model: str) -> bool:
    runs = {run["id"] for run in running.all("runs") if run["args"].get("model_path") == model}
    return any(one["run"] in runs and one["signature"] == SIGNATURE for one in running.all("findings"))


def ledger(running: RunningDaemon) -> dict[str, Any]:
    return dict(running.get("/api/v1/status")["ledger"])


def in_file(state: Path, model: str) -> bool:
    connection = sqlite3.connect(f"file:{state}/ledger.sqlite3?mode=ro", uri=True)
    try:
        rows = connection.execute("SELECT r.doc FROM runs r JOIN findings f ON f.run = r.id WHERE f.signature = ?", (SIGNATURE,))
        return any(json.loads(doc)["args"].get("model_path") == model for (doc,) in rows)
    finally:
        connection.close()


# --- the disk -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(small_disk: Path) -> Path:
    return small_disk


def fill(disk: Path) -> None:
    with (disk / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space"):  # noqa: PT012 - the loop ends by it
        while True:
            filler.write(bytes(4096))


def remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", disk], check=True)


@pytest.mark.slow
def test_a_full_disk_is_survived_said_and_recovered_from(tmp_path: Path, disk: Path) -> None:
    log, state = Watched(tmp_path), disk / "state"
    with daemon(tmp_path, state) as running:
        before = log.crash()
        running.wait_for(lambda: is_found(running, before))
        assert ledger(running)["durable"]

        fill(disk)
        during = log.crash()
        running.wait_for(lambda: is_found(running, during))
        says_that_it_keeps_nothing(running)
        assert is_found(running, before), "what was written before is still told"

        (disk / "filler").unlink()
        running.wait_for(lambda: ledger(running)["durable"], 60)
        after = log.crash()
        running.wait_for(lambda: is_found(running, after))
        assert running.get("/api/v1/status")["engine_errors"] == 0
    assert [in_file(state, model) for model in (before, during, after)] == [True] * 3


@pytest.mark.slow
def test_a_disk_that_is_read_only_at_the_start_is_survived_said_and_recovered_from(tmp_path: Path, disk: Path) -> None:
    """As after an error that made the kernel mount it so. (A file system with files open for writing cannot be made so by hand.)"""
    log, state = Watched(tmp_path), disk / "state"
    with daemon(tmp_path, state) as running:
        before = log.crash()
        running.wait_for(lambda: is_found(running, before))
    remount(disk, "ro")
    with daemon(tmp_path, state) as running:
        during = log.crash()
        running.wait_for(lambda: is_found(running, during))
        says_that_it_keeps_nothing(running)
        assert is_found(running, before)

        remount(disk, "rw")
        running.wait_for(lambda: ledger(running)["durable"], 60)
        after = log.crash()
        running.wait_for(lambda: is_found(running, after))
    assert [in_file(state, model) for model in (before, during, after)] == [True] * 3


def says_that_it_keeps_nothing(running: RunningDaemon) -> None:
    said = running.wait_for(lambda: None if ledger(running)["durable"] else ledger(running))
    assert "kept in memory only" in said["because"]
    assert said["do"]
    assert "sglang_watchdog_ledger_durable 0.0" in running.text("/metrics")
    assert "kept in memory only" in running.text("/")
    assert any('"durable": false' in line for line in running.errors)


def test_a_corrupt_ledger_is_moved_aside_at_the_start_and_said(tmp_path: Path) -> None:
    log, state = Watched(tmp_path), tmp_path / "state"
    with daemon(tmp_path, state) as running:
        first = log.crash()
        running.wait_for(lambda: is_found(running, first))
    (state / "ledger.sqlite3").write_bytes(b"SQLite format 3\x00" + os.urandom(200_000))

    with daemon(tmp_path, state) as running:
        status = ledger(running)
        second = log.crash()
        running.wait_for(lambda: is_found(running, second))
        assert status["durable"]
        assert "begun anew" in status["because"]
        assert any("begun anew" in line for line in running.errors)
        assert "begun anew" in running.text("/")
    kept = [path for path in state.iterdir() if path.name.startswith("ledger.sqlite3") and path.name not in ("ledger.sqlite3", "ledger.sqlite3-wal", "ledger.sqlite3-shm")]
    assert [path.read_bytes()[:15] for path in kept if not path.name.endswith(("-wal", "-shm"))] == [b"SQLite format 3"]


def test_damage_while_running_is_moved_aside_and_the_watching_goes_on(tmp_path: Path) -> None:
    log, state = Watched(tmp_path), tmp_path / "state"
    with daemon(tmp_path, state) as running:
        first = log.crash()
        running.wait_for(lambda: is_found(running, first))
        for name in ("ledger.sqlite3", "ledger.sqlite3-wal"):
            if (state / name).exists():
                with (state / name).open("r+b") as file:
                    file.write(os.urandom(max(4096, (state / name).stat().st_size)))
        models = []

        def is_noticed() -> bool:
            models.append(log.crash())
            return bool(ledger(running)["because"])

        running.wait_for(is_noticed, 60)
        running.wait_for(lambda: ledger(running)["durable"], 60)
        last = log.crash()
        running.wait_for(lambda: is_found(running, last))
        assert running.process.poll() is None
    assert in_file(state, last)


# --- the clock -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step_s", [-7200, 7200], ids=["back", "forward"])
def test_after_a_step_of_the_clock_what_is_said_is_still_found(step_s: int, tmp_path: Path) -> None:
    """Two hours back or forward, as when NTP sets a clock that was wrong at boot. Log and daemon see the same clock. (After a step
    back, windows and silences wait until the clock is where it was; the daemon's log says so.)"""
    shim, step = tmp_path / "step.so", tmp_path / "step"
    subprocess.run([compiler(), "-shared", "-fPIC", "-O2", "-o", shim, Path(__file__).with_name("step_clock.c"), "-ldl"], check=True)
    step.write_text("0")
    log = Watched(tmp_path)
    with daemon(tmp_path, tmp_path / "state", environment={"LD_PRELOAD": str(shim), "STEP_FILE": str(step)}) as running:
        before = log.crash()
        running.wait_for(lambda: is_found(running, before))
        (tmp_path / "new").write_text(str(step_s))
        (tmp_path / "new").rename(step)

        stepped = datetime.fromisoformat(running.get("/api/v1/status")["now"])
        after = log.crash(time.time() + step_s)
        running.wait_for(lambda: is_found(running, after))
        later = log.crash(time.time() + step_s + 1)
        running.wait_for(lambda: is_found(running, later))

        assert abs(stepped.timestamp() - time.time() - step_s) < 60, "the daemon does see the step"
        assert is_found(running, before)
        assert running.get("/api/v1/status")["engine_errors"] == 0
        running.wait_for(lambda: running.get("/readyz")["status"] == "ok")  # looked at once a second
        running.wait_for(lambda: any("the clock was set" in line and f'"by_s": {step_s}' in line for line in running.errors))


# --- tokens and channels -----------------------------------------------------------------------------------------------


def asked(running: RunningDaemon, token: str) -> int:
    request = urllib.request.Request(running.url + "/api/v1/status", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as answer:
        with answer:
            return answer.code


def entry(name: str, token: str) -> str:
    from sglang_watchdog.sinks.web.tokens import digest

    return f"{name} write sha256:{digest(token)}\n"


def test_a_replaced_token_file_is_in_force_at_the_next_request_and_a_broken_one_leaves_the_old(tmp_path: Path) -> None:
    Watched(tmp_path)
    tokens, config = tmp_path / "tokens", tmp_path / "watchdog.yaml"
    tokens.write_text(entry("ada", "first"))
    config.write_text(
        f"servers: [{{name: a, logs: [{tmp_path}/server.log]}}]\ntelemetry: none\nstate_dir: none\nlisten: 127.0.0.1:0\nauth: {{token_file: {tokens}}}\n"
    )
    with RunningDaemon("--config", str(config)) as running:
        assert (asked(running, "first"), asked(running, "second")) == (200, 401)

        (tmp_path / "new").write_text(entry("bob", "second"))
        (tmp_path / "new").rename(tokens)
        assert (asked(running, "first"), asked(running, "second")) == (401, 200)

        tokens.write_text("ada write second\n")
        assert asked(running, "second") == 200
        fault = running.get("/api/v1/status")["tokens_fault"]
        assert "tokens:1:1: not `name scope" in fault
        assert "the tokens read before stay in force" in fault
        assert any("token file" in line and "tokens:1:1" in line for line in running.errors)

        tokens.unlink()
        assert asked(running, "second") == 200
        tokens.write_text(entry("ada", "third"))
        assert (asked(running, "third"), asked(running, "second")) == (200, 401)
        assert running.get("/api/v1/status")["tokens_fault"] == ""


def test_a_channel_that_is_down_is_said_with_its_reason_and_not_without_end(tmp_path: Path) -> None:
    log, config = Watched(tmp_path), tmp_path / "watchdog.yaml"
    (tmp_path / "secret").write_text("0123456789" * 4)
    config.write_text(
        f"servers: [{{name: a, logs: [{tmp_path}/server.log], timezone: UTC}}]\ntelemetry: none\nstate_dir: none\nlisten: 127.0.0.1:0\n"
        f"notify: [{{type: webhook, name: pager, url: 'http://127.0.0.1:1/hook/planted-path', secret_file: {tmp_path}/secret, min_severity: info}}]\n"
    )
    with RunningDaemon("--config", str(config)) as running:
        for _ in range(10):
            last = log.crash()
        running.wait_for(lambda: is_found(running, last))
        channel = running.wait_for(lambda: next((one for one in running.get("/api/v1/status")["notifications"] if one["failed"] >= 3), None))

        assert channel["channel"] == "pager"
        assert "Connection refused" in channel["error"]
        assert "Connection refused" in running.text("/")
        running.process.send_signal(signal.SIGTERM)
        running.process.wait(20)
    said = [line for line in running.errors if "notification failed" in line]
    assert 1 <= len(said) <= 5, said
    assert all('"part": "pager"' in line and "Connection refused" in line for line in said)
    assert "planted-path" not in repr(running.errors)
