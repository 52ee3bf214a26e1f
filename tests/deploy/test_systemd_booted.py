"""The service as its user runs it: install.sh on a real systemd, which starts, watches, reloads, restarts, confines and removes it.

The system lives in namespaces of its own over a copy-on-write view of this machine (boot.sh); where that is not allowed, these are skipped.
"""

import json
from collections.abc import Iterator

import pytest

from .booted import Booted, CannotBoot, booted, until

UNIT = "sglang-watchdog.service"
PROGRAM = "/opt/sglang-watchdog/bin/sglang-watchdog"
CAPTURE = "/src/tests/captures/04-moe-disable-cuda-graph"

# The server is a unit that prints a real recording, moved to now, into the journal; another one writes it into a file for group adm.
SERVERS = f"""
cat > /etc/systemd/system/sglang.service <<'E'
[Service]
DynamicUser=yes
RuntimeDirectory=sglang
ExecStart=/bin/bash -c '{PROGRAM} replay {CAPTURE} --into /run/sglang/log --speed 20 --longest-wait 0.2 --shift-to-now & exec tail -n +1 -F /run/sglang/log 2>/dev/null'
E
install -d -m 750 -g adm /var/log/sglang
cat > /etc/sglang-watchdog/watchdog.yaml <<'E'
servers:
  - name: journaled
    logs: ["journal:sglang.service"]
  - name: filed
    logs: [/var/log/sglang/server.log]
telemetry: {{source: none}}
E
systemctl daemon-reload
"""


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Booted]:
    """A booted system with the watchdog installed by its script and started."""
    try:
        with booted(tmp_path_factory.mktemp("booted")) as here:
            installed = here.install("--with", "journal,file-logs", "--no-start")
            assert installed.returncode == 0, installed.stdout + installed.stderr
            here.shell(SERVERS)
            here.shell(f"systemctl enable --now {UNIT}", timeout_s=120.0)
            yield here
    except CannotBoot as why:
        pytest.skip(f"no systemd can be booted here: {why}")


def ask(system: Booted, path: str) -> list[dict[str, object]]:
    out = system.run("/usr/bin/python3", "-c", f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:17853/api/v1/{path}').read().decode())")
    return json.loads(out.stdout)[path] if out.returncode == 0 else []


def raised(system: Booted, server: str, topic: str) -> bool:
    return any(each["server"] == server and each["topic"] == topic for each in ask(system, "findings"))


def test_it_starts_and_tells_systemd_what_it_does(system: Booted) -> None:
    state = system.shown(UNIT, "ActiveState", "SubState", "StatusText", "Type", "WatchdogUSec", "User")
    assert (state["ActiveState"], state["SubState"]) == ("active", "running")
    assert "2 servers" in state["StatusText"]
    assert state["WatchdogUSec"] == "30s"


def test_a_server_in_the_journal_is_watched_by_its_unit(system: Booted) -> None:
    system.shell("systemctl start sglang.service")
    took = until(
        lambda: raised(system, "journaled", "cuda-graph.disabled"), 60.0,
        lambda: system.run(PROGRAM, "sources").stdout + system.run("journalctl", "-n30", "--no-pager").stdout,
    )  # fmt: skip
    print(f"from the start of the server to the finding: {took:.1f} s")


def test_a_log_that_only_a_group_may_read_is_read(system: Booted) -> None:
    system.shell(
        f"umask 027; {PROGRAM} replay {CAPTURE} --into /tmp/log --speed 1000 --longest-wait 0 --shift-to-now;"
        "install -m 640 -g adm /tmp/log /var/log/sglang/server.log"
    )
    until(lambda: raised(system, "filed", "cuda-graph.disabled"), 30.0, lambda: system.run(PROGRAM, "sources").stdout)


def test_it_cannot_write_what_is_not_its_own(system: Booted) -> None:
    pid = system.shown(UNIT, "MainPID")["MainPID"]
    tried = {
        place: system.run("nsenter", "-t", pid, "-m", "-r", "-w", "/usr/bin/touch", f"{place}/by-the-watchdog").returncode
        for place in ("/etc", "/var/log/sglang", "/opt/sglang-watchdog", "/usr", "/var/lib/private/sglang-watchdog")
    }
    assert {place for place, code in tried.items() if code == 0} == {"/var/lib/private/sglang-watchdog"}
    status = system.shell(f"cat /proc/{pid}/status")
    assert "CapEff:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status


def test_a_reload_keeps_the_process_and_a_bad_configuration_is_refused(system: Booted) -> None:
    before = system.shown(UNIT, "MainPID")["MainPID"]
    assert system.run("systemctl", "reload", UNIT).returncode == 0
    system.shell("cp /etc/sglang-watchdog/watchdog.yaml /tmp/good.yaml; echo 'nonsense: 1' >> /etc/sglang-watchdog/watchdog.yaml")
    assert system.run("systemctl", "reload", UNIT).returncode != 0
    after = system.shown(UNIT, "MainPID", "ActiveState")
    assert (after["MainPID"], after["ActiveState"]) == (before, "active")
    system.shell("cp /tmp/good.yaml /etc/sglang-watchdog/watchdog.yaml")


@pytest.mark.parametrize("signal", ["STOP", "KILL"])
def test_a_stuck_or_killed_daemon_is_started_again_and_remembers(system: Booted, signal: str) -> None:
    """Stopped, it no longer answers the service watchdog; with 2 s instead of 30 that takes no longer than the test can wait."""
    system.shell(
        f"mkdir -p /run/systemd/system/{UNIT}.d; printf '[Service]\\nWatchdogSec=2s\\nRestartSec=1s\\n' > /run/systemd/system/{UNIT}.d/quick.conf;"
        f"systemctl daemon-reload; systemctl restart {UNIT}",
        timeout_s=120.0,
    )
    until(lambda: raised(system, "filed", "cuda-graph.disabled"), 30.0, lambda: "the finding is gone")
    ids = {each["id"] for each in ask(system, "findings")}
    before = system.shown(UNIT, "NRestarts", "MainPID")
    system.shell(f"kill -{signal} {before['MainPID']}")
    until(
        lambda: int(system.shown(UNIT, "NRestarts")["NRestarts"]) > int(before["NRestarts"]), 30.0,
        lambda: system.run("systemctl", "status", UNIT).stdout,
    )  # fmt: skip
    until(lambda: {each["id"] for each in ask(system, "findings")} >= ids, 30.0, lambda: system.run("journalctl", "-n30", "--no-pager").stdout)


def test_a_configuration_that_is_refused_stops_it_and_is_not_tried_again(system: Booted) -> None:
    system.shell(f"echo 'nonsense: 1' >> /etc/sglang-watchdog/watchdog.yaml; systemctl stop {UNIT}; systemctl reset-failed {UNIT}")
    system.run("systemctl", "start", UNIT)
    until(lambda: system.shown(UNIT, "ActiveState")["ActiveState"] == "failed", 30.0, lambda: str(system.shown(UNIT, "ActiveState", "SubState")))
    state = system.shown(UNIT, "NRestarts", "ExecMainStatus", "ActiveState")
    assert state == {"NRestarts": "0", "ExecMainStatus": "78", "ActiveState": "failed"}
    said = system.run("journalctl", "-u", UNIT, "--no-pager").stdout
    assert "unknown key `nonsense`" in said
    system.shell(f"cp /tmp/good.yaml /etc/sglang-watchdog/watchdog.yaml; systemctl reset-failed {UNIT}; systemctl start {UNIT}")


def test_a_second_server_has_a_unit_of_its_own(system: Booted) -> None:
    system.shell(
        "mkdir -p /etc/sglang-watchdog/chat; printf 'servers: [{name: chat, logs: [/var/log/sglang/chat.log]}]\\ntelemetry: {source: none}\\n"
        "listen: 127.0.0.1:17854\\n' > /etc/sglang-watchdog/chat.yaml; systemctl start sglang-watchdog@chat.service",
        timeout_s=120.0,
    )
    assert system.shown("sglang-watchdog@chat.service", "ActiveState")["ActiveState"] == "active"
    system.shell("systemctl stop sglang-watchdog@chat.service")


def test_removing_it_leaves_configuration_and_state(system: Booted) -> None:
    out = system.shell("/src/deploy/systemd/uninstall.sh", timeout_s=120.0)
    assert "sglang-watchdog.service" in out
    assert system.run("systemctl", "cat", UNIT).returncode != 0
    left = system.shell("ls /etc/sglang-watchdog /var/lib/private/sglang-watchdog; ls /opt | grep -c sglang-watchdog || true").split()
    assert "watchdog.yaml" in left
    assert left[-1] == "0"
