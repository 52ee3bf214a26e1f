"""Real processes with SGLang's titles: dead, stopped, never ready; where they write; what they are asked and what is not kept."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_server import write_package

from sglang_watchdog.model.observation import Probe, ProcessSeen, Watermark
from sglang_watchdog.sources.discover import FoundServer, find_servers
from sglang_watchdog.sources.launch_flags import facts_of_flags
from sglang_watchdog.sources.process import Launcher, ProcessSource, ProcessTable
from sglang_watchdog.sources.procfs import oom_kills
from sglang_watchdog.sources.server_info import ask_server_info, facts_of_answer
from sglang_watchdog.sources.titles import Title, launch_arguments, title_of

SECONDS = 20.0


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    port: int
    children: dict[str, int]
    log: Path

    def table(self) -> ProcessTable:
        return ProcessTable("processes", selects=lambda launcher: launcher.pid == self.process.pid)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    write_package(tmp_path)
    started: list[Server] = []

    def start_one(*flags: str, shell: str = "exec {command} > {log} 2>&1") -> Server:
        port, log = free_port(), tmp_path / f"server-{len(started)}.log"
        launch = f"{sys.executable} -m sglang.launch_server --port {port} {' '.join(flags)}"
        command = shell.format(command=launch, log=log)
        process = subprocess.Popen(["/bin/bash", "-c", command], env={**os.environ, "PYTHONPATH": str(tmp_path)}, start_new_session=True)
        deadline = time.monotonic() + SECONDS
        while not (log.exists() and log.read_bytes().endswith(b"\n")):
            assert time.monotonic() < deadline, "the fake server did not start"
            time.sleep(0.02)
        pids = [int(word) for word in log.read_text().split()[1:]]
        server = Server(process, port, dict(zip(("TP0", "TP1", "detokenizer"), pids, strict=True)), log)
        started.append(server)
        return server

    yield start_one
    for server in started:
        if server.process.returncode is None:
            os.killpg(server.process.pid, signal.SIGKILL)
            server.process.wait()


async def see(server: Server, wanted: Callable[[ProcessSeen | Probe], bool]) -> tuple[ProcessSeen | Probe, float]:
    """Watch until an observation is the wanted one; return it and how long that took."""
    began = time.monotonic()
    source = ProcessSource("processes", server.table(), every_s=0.1)
    async with asyncio.timeout(SECONDS), aclosing(source.events()) as events:
        async for event in events:
            if isinstance(event, ProcessSeen | Probe) and wanted(event):
                return event, time.monotonic() - began
    raise AssertionError("the source ended")


def state_of(pid: int, state: str) -> Callable[[ProcessSeen | Probe], bool]:
    return lambda event: isinstance(event, ProcessSeen) and (event.pid, event.state) == (pid, state)


def test_the_whole_tree_is_seen_once(start: Callable[..., Server]) -> None:
    server = start()
    table = server.table()
    deadline = time.monotonic() + SECONDS
    seen: list[ProcessSeen | Probe] = []
    while not table.is_port_open or len(table.members) < 4:
        assert time.monotonic() < deadline
        seen += table.step(time.time())
        time.sleep(0.05)

    roles = {(event.role, event.rank) for event in seen if isinstance(event, ProcessSeen)}
    assert roles == {("launcher", ""), ("scheduler", "TP0"), ("scheduler", "TP1"), ("detokenizer", "")}
    assert [event for event in table.step(time.time()) if isinstance(event, ProcessSeen)] == []
    told = next(event for event in seen if isinstance(event, Probe))
    assert told.origin == "process command line"
    assert told.facts["args.port"] == server.port
    assert told.command == ("--port", str(server.port))
    assert told.started_s is not None
    assert abs(told.started_s - time.time()) < 60


def test_the_launch_command_goes_on_without_its_secrets(start: Callable[..., Server]) -> None:
    server = start("--api-key sk-planted-1", "--admin-api-k=planted-2", "--attention-backend fa3")
    told = next(event for event in server.table().step(time.time()) if isinstance(event, Probe))

    assert told.command == ("--port", str(server.port), "--api-key", "***", "--admin-api-k=***", "--attention-backend", "fa3")
    assert "planted" not in repr(told)


def test_a_server_that_is_not_there_is_said_once_and_said_again_when_it_went(start: Callable[..., Server]) -> None:
    """Whoever waits for the launch command waits for an answer."""
    server = start()
    nobody = ProcessTable("processes", selects=lambda _: False)
    table = server.table()
    missing = [event for at_s in (1.0, 2.0, 9.0) for event in nobody.step(at_s) if isinstance(event, Probe)]
    there = [event for event in table.step(1.0) if isinstance(event, Probe)]
    os.killpg(server.process.pid, signal.SIGKILL)
    server.process.wait()
    gone = [event for at_s in (20.0, 30.0) for event in table.step(at_s) if isinstance(event, Probe)]

    assert [(event.origin, event.command, bool(event.error)) for event in missing] == [("process command line", None, True)]
    assert [event.command is not None for event in there] == [True]
    assert [(event.command, bool(event.error)) for event in gone] == [(None, True)]


def killed_when_seen(pid: int) -> Callable[[ProcessSeen | Probe], bool]:
    """Kill a process as soon as it was seen alive; wanted is its end."""

    def is_end(event: ProcessSeen | Probe) -> bool:
        if not isinstance(event, ProcessSeen) or event.pid != pid:
            return False
        if event.state in ("running", "sleeping"):
            os.kill(pid, signal.SIGKILL)
        return event.state in ("gone", "zombie")

    return is_end


async def test_a_scheduler_that_dies_silently_is_seen_within_seconds(start: Callable[..., Server]) -> None:
    server = start()
    event, _ = await see(server, killed_when_seen(server.children["TP1"]))

    assert isinstance(event, ProcessSeen)
    assert (event.rank, event.state, event.exit_code) == ("TP1", "zombie", -9)


async def test_a_stopped_scheduler_is_seen(start: Callable[..., Server]) -> None:
    server = start()
    os.kill(server.children["TP0"], signal.SIGSTOP)
    event, took_s = await see(server, state_of(server.children["TP0"], "stopped"))
    os.kill(server.children["TP0"], signal.SIGCONT)

    assert isinstance(event, ProcessSeen)
    assert event.rank == "TP0"
    assert took_s < 5


async def test_a_server_that_never_opens_its_port_is_seen(start: Callable[..., Server]) -> None:
    server = start("--opens", "never")
    event, _ = await see(server, lambda event: isinstance(event, ProcessSeen) and event.port_open is not None)

    assert isinstance(event, ProcessSeen)
    assert event.port_open is False


async def test_a_launcher_that_is_killed_is_seen(start: Callable[..., Server]) -> None:
    server = start()
    event, _ = await see(server, killed_when_seen(server.process.pid))

    assert isinstance(event, ProcessSeen)
    assert event.role == "launcher"


async def test_server_info_is_asked_once_and_its_secrets_are_dropped(start: Callable[..., Server]) -> None:
    server = start("--api-key", "sk-very-secret")
    event, _ = await see(server, lambda event: isinstance(event, Probe) and event.origin == "/server_info")

    assert isinstance(event, Probe)
    assert event.error is None
    assert event.facts["run.sglang_version"] == "0.5.11"
    assert event.facts["run.weights_gib"] == 4.93
    assert event.facts["args.load"] == {"kind": "auto"}
    assert "sk-" not in repr(event)
    assert "hf_x" not in repr(event)


async def test_a_server_that_does_not_answer_is_a_probe_with_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        probe = await ask_server_info("processes", silent.getsockname()[1], 1.0, within_s=0.2)

    assert probe.error == "no answer within 0 s"


async def test_only_this_machine_is_asked() -> None:
    with pytest.raises(ValueError, match="not a loopback address"):
        await ask_server_info("processes", 80, 1.0, host="10.0.0.1")


def found(server: Server) -> FoundServer:
    return next(each for each in find_servers() if each.launcher.port == server.port)


def test_a_redirected_log_is_found(start: Callable[..., Server]) -> None:
    server = start("--model-path", "/models/qwen3-moe", "--tp", "2", "--api-key", "sk-very-secret")
    one = found(server)

    assert one.logs == (str(server.log),)
    assert one.name == f"qwen3-moe:{server.port}"
    assert one.facts["args.tp"] == 2
    assert "sk-very-secret" not in repr(one.facts)


def test_a_log_behind_tee_is_found(start: Callable[..., Server]) -> None:
    server = start(shell="{command} 2>&1 | tee {log}")

    assert found(server).logs == (str(server.log),)
    assert "tee" in found(server).outputs[0].reason


def test_a_log_that_was_deleted_is_said(start: Callable[..., Server]) -> None:
    server = start()
    server.log.unlink()

    assert found(server).logs == ()
    assert "was deleted" in found(server).outputs[0].reason


def test_another_server_on_the_machine_is_not_ours(start: Callable[..., Server]) -> None:
    server, other = start(), start()
    table = server.table()
    table.step(time.time())

    assert not set(other.children.values()) & set(table.members)


@pytest.mark.parametrize(
    ("arguments", "title"),
    [
        (["sglang::scheduler"], Title("scheduler")),
        (["sglang::scheduler_DP0_TP3_EP3"], Title("scheduler", "DP0 TP3 EP3")),
        (["sglang::detokenizer"], Title("detokenizer")),
        (["sglang::data_parallel_controller"], Title("other")),
        (["python3", "-m", "sglang.launch_server", "--tp", "2"], Title("launcher")),
        (["/usr/bin/python3.12", "-u", "/opt/venv/bin/sglang", "serve", "--port", "1"], Title("launcher")),
        (["python", "/sgl/python/sglang/launch_server.py"], Title("launcher")),
        (["bash", "-c", "python -m sglang.launch_server"], None),
        (["vim", "launch_server.py"], None),
        (["python3", "-m", "sglang.bench_serving"], None),
        (["python3", "-m"], None),
        ([], None),
    ],
)
def test_titles(arguments: list[str], title: Title | None) -> None:
    assert title_of(arguments) == title


def test_flags_become_facts() -> None:
    flags = launch_arguments(["python", "-m", "sglang.launch_server", "--tp", "8", "--mem-fraction-static=0.9", "--trust-remote-code"])
    assert flags is not None
    facts = facts_of_flags(
        (*flags, "--model-path", "/m", "--cuda-graph-bs", "1", "2", "4", "--ssl-keyfile-password", "pw", "--schedule-conservativeness", "-1"),
        {"--tp": "tp_size"},
    )

    assert facts == {
        "args.tp_size": 8, "args.mem_fraction_static": 0.9, "args.trust_remote_code": True, "args.model_path": "/m",
        "args.cuda_graph_bs": [1, 2, 4], "args.schedule_conservativeness": -1,
    }  # fmt: skip


def test_a_real_answer_of_server_info_gives_arguments_and_release() -> None:
    answer = {"tp_size": 2, "version": "0.5.11", "status": "ready", "ssl_keyfile_password": "pw", "internal_states": []}

    assert facts_of_answer(answer) == {"args.tp_size": 2, "run.sglang_version": "0.5.11"}


def fake_proc(root: Path, *, kills: int) -> None:
    (root / "proc/7").mkdir(parents=True, exist_ok=True)
    (root / "proc/7/cgroup").write_text("0::/sglang.service\n")
    (root / "cgroup/sglang.service").mkdir(parents=True, exist_ok=True)
    (root / "cgroup/sglang.service/memory.events").write_text(f"low 0\noom 1\noom_kill {kills}\n")


def test_a_kill_for_memory_in_the_control_group_is_counted(tmp_path: Path) -> None:
    fake_proc(tmp_path, kills=2)
    assert oom_kills(7, str(tmp_path / "proc"), str(tmp_path / "cgroup")) == 2
    table = ProcessTable("processes", root=str(tmp_path / "proc"), cgroup_root=str(tmp_path / "cgroup"), launcher=Launcher(7, 1, (), 30000))
    table.step(1.0)
    fake_proc(tmp_path, kills=3)

    assert table.step(2.0) == [Probe(at_s=2.0, source="processes", origin="control group", facts={"run.oom_kills": 1})]


def test_a_kill_is_counted_in_the_older_layout_too(tmp_path: Path) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text("4:memory:/docker/abc\n0::/\n")
    (tmp_path / "cgroup/memory/docker/abc").mkdir(parents=True)
    (tmp_path / "cgroup/memory/docker/abc/memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")

    assert oom_kills(7, str(tmp_path / "proc"), str(tmp_path / "cgroup")) == 5


async def test_without_proc_the_source_says_so_and_goes_on(tmp_path: Path) -> None:
    source = ProcessSource("processes", ProcessTable("processes", root=str(tmp_path / "proc")), every_s=0.01)
    seen = []
    async with aclosing(source.events()) as events:
        async for event in events:
            seen.append(event)
            if len(seen) == 3:
                break

    told = [event for event in seen if not isinstance(event, Watermark)]
    assert [(event.origin, event.command, "mount /proc" in str(event.error)) for event in told] == [("process command line", None, True)]
    assert "mount /proc" in source.status().why_not
