"""What the daemon says when it starts on something that is missing, broken, or already watched, and after a restart."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.error
from pathlib import Path

import pytest

from . import story
from .daemon import RunningDaemon

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow
NO_STATE = ("--telemetry", "none", "--state-dir", "none")


def refused(*arguments: str) -> tuple[int, str]:
    """The exit code and words of a daemon that does not start."""
    done = subprocess.run(
        [sys.executable, "-m", "sglang_watchdog", "run", "--listen", "127.0.0.1:0", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr


def source(daemon: RunningDaemon, name: str) -> dict[str, object]:
    return next(each for each in daemon.all("sources") if each["name"] == name)


def readiness(daemon: RunningDaemon) -> tuple[int, str]:
    try:
        return 200, daemon.get("/readyz")["because"]
    except urllib.error.HTTPError as answer:
        return answer.code, answer.read().decode()


def said(daemon: RunningDaemon, words: str) -> list[str]:
    return [line for line in daemon.errors if words in line]


def test_a_log_that_is_late_is_said_once_and_read_when_it_comes(tmp_path: Path) -> None:
    """A server that is started after its watchdog is normal: no fault, but not silence either."""
    log = tmp_path / "server.log"
    with RunningDaemon(str(log), *NO_STATE) as daemon:
        daemon.wait_for(lambda: said(daemon, "source is not there yet"))
        late = source(daemon, "server.log")
        assert late["state"] == "waiting"
        assert str(log) in str(late["why"])
        assert "as soon as it is there" in str(late["do"])
        code, because = readiness(daemon)
        assert code == 200, "what waits for readiness would wait for a server that waits for it"
        assert "server.log" in because

        log.write_bytes(story.lines()[0])

        daemon.wait_for(lambda: said(daemon, "source is read"))
        daemon.wait_for(lambda: source(daemon, "server.log")["lines"] == 24)
        assert source(daemon, "server.log")["why"] == ""
        assert readiness(daemon) == (200, "")
        assert len(said(daemon, "source is not there yet")) == 1, daemon.errors


def test_a_log_that_cannot_be_read_is_no_readiness_until_it_can(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    os.mkfifo(log)
    with RunningDaemon(str(log), *NO_STATE) as daemon:
        daemon.wait_for(lambda: said(daemon, "source cannot be read"))
        assert source(daemon, "server.log")["state"] == "failed"
        code, text = readiness(daemon)
        assert code == 503
        assert "server.log" in text
        assert "not a regular file" in text
        assert daemon.get("/healthz")["status"] == "ok"

        log.unlink()
        log.write_bytes(story.lines()[0])

        daemon.wait_for(lambda: readiness(daemon)[0] == 200)


def test_a_pattern_without_a_file_is_shown_as_a_source(tmp_path: Path) -> None:
    with RunningDaemon(f"{tmp_path}/*.log", *NO_STATE) as daemon:
        daemon.wait_for(lambda: said(daemon, "no file matches"))
        assert source(daemon, "*.log")["state"] == "waiting"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{}/server.log", "--signatures", "{}/nowhere"], ["/nowhere does not exist", "--signatures"]),
        (["{}/server.log", "--telemetry", "replay:{}/nothing.jsonl"], ["/nothing.jsonl does not exist", "--record"]),
        (["{}"], ["is a folder", "/*.log"]),
        (["{}/server.log", "--telemetry", "replay:{}"], ["is a folder"]),
        (["{}/server.log", "--telemetry", "nope"], ["--telemetry", "`nope`"]),
    ],
)
def test_what_can_never_work_is_refused_as_configuration(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    """Exit 78: the service manager does not start it again."""
    (tmp_path / "server.log").touch()

    code, text = refused(*(each.replace("{}", str(tmp_path)) for each in arguments))

    assert code == 78
    assert all(word in text for word in words), text
    assert not text.splitlines()[0].endswith("run: "), "the first line says something"


def test_a_faulty_signature_is_left_out_and_said(tmp_path: Path) -> None:
    """One bad edit does not blind the watchdog at its next start, and is not to be overlooked."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "broken.yaml").write_text("id: broken\nkind: nonsense\n")
    (tmp_path / "server.log").touch()
    with RunningDaemon(str(tmp_path / "server.log"), *NO_STATE, "--signatures", str(tmp_path / "own")) as daemon:
        assert any("broken.yaml" in line for line in said(daemon, "signature left out"))
        assert "broken.yaml" in daemon.get("/api/v1/status")["reload"]["error"]
        assert "sglang_watchdog_config_last_reload_successful 0.0" in daemon.text("/metrics")


def test_a_state_folder_belongs_to_one_daemon(tmp_path: Path) -> None:
    """Two would write one ledger; what a killed one leaves behind holds nobody up."""
    (tmp_path / "server.log").touch()
    arguments = (str(tmp_path / "server.log"), "--telemetry", "none", "--state-dir", str(tmp_path / "state"))
    with RunningDaemon(*arguments) as first:
        code, text = refused(*arguments)
        assert code == 4
        assert f"pid {first.process.pid}" in text
        assert "--state-dir" in text
        assert first.get("/healthz")["status"] == "ok"
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
    with RunningDaemon(*arguments) as third:
        assert (tmp_path / "state" / "lock").read_text() == f"{third.process.pid}\n"


def test_a_restart_prints_no_old_finding_as_news(tmp_path: Path) -> None:
    """The engine reads the current run again; who reads the terminal must not take that for a second failure."""
    healthy, failing = story.lines()
    log = tmp_path / "server.log"
    log.write_bytes(healthy + failing)
    arguments = (str(log), "--telemetry", "none", "--state-dir", str(tmp_path / "state"), "--timezone", "UTC", "--print-findings")
    with RunningDaemon(*arguments) as first:
        first.wait_for(lambda: story.fires(first))
        first.wait_for(lambda: [line for line in first.lines if line.startswith("firing   CRITICAL")])
        told = [line for line in first.lines if line.startswith("firing")]
    with RunningDaemon(*arguments) as second:
        second.wait_for(lambda: source(second, "server.log")["lines"] == 40)
        second.wait_for(lambda: len([line for line in second.lines if line.startswith("still firing CRITICAL")]) == 1)
        story.append(log, b"[2025-03-02 04:44:30 TP0] Watchdog timeout (self.watchdog_timeout=300)\n")
        second.wait_for(lambda: [line for line in second.lines if line == "firing   CRITICAL SGLang's own watchdog fired"])
        assert [line for line in second.lines if line in told] == []


def test_make_run_with_a_log_finds_and_quotes(tmp_path: Path) -> None:
    """The command that `make run LOG=…` runs, on a log in a container's framing whose server ended long ago."""
    recipe = re.search(r'\$\(BIN\)/sglang-watchdog run ("\$\(LOG\)" .*)', (ROOT / "Makefile").read_text())
    assert recipe is not None
    log = tmp_path / "a server.log"
    shutil.copy(ROOT / "tests" / "cases" / "crash-illegal-memory-access-hicache-cri" / "server.log", log)
    os.utime(log, (1_770_000_000, 1_770_000_000))
    with RunningDaemon(*shlex.split(recipe[1].replace("$(LOG)", str(log)))) as daemon:
        daemon.wait_for(lambda: "firing   CRITICAL CUDA illegal memory access" in daemon.lines)
        daemon.wait_for(lambda: any("a server.log:19: torch.AcceleratorError" in line for line in daemon.lines))
        daemon.wait_for(lambda: any(line.startswith("note") and "sglang-watchdog check" in line for line in daemon.errors))
        assert f"watching     sglang: {log}" in daemon.lines
