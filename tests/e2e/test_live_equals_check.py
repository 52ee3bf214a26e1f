"""The daemon that tails a file while it is written finds what `check` finds in the finished file, byte for byte."""

import shutil
import time
from pathlib import Path

import pytest
import yaml

from labels import Case, all_cases
from sglang_watchdog.engine.settings import EngineSettings
from sglang_watchdog.offline.inputs import Input
from sglang_watchdog.offline.pipeline import judge
from sglang_watchdog.offline.replay import Capture, Pace, play
from sglang_watchdog.parse.zone import Zone
from sglang_watchdog.sinks import encode
from sglang_watchdog.sources.telemetry_recording import Recording
from sglang_watchdog.triage.findings import flag_judge

from .daemon import RunningDaemon, line_count, settled

CASES = all_cases()
PACE = Pace(speed=10_000.0, longest_wait_s=0.02)
SETTLE_S = 6.5  # --clock log judges the newest second after five quiet seconds
OVERLAYS = ("acknowledgement", "silenced", "display_state")
# With telemetry each needs a daemon of its own; these show every kind, `make soak` takes all.
IN_CI = ("04-moe-disable-cuda-graph", "07-kill9-scheduler-midload", "41-moe-small-tp2", "hang-silent-gpu-spins-low-power", "hw-xid79-gpu-fell-off-bus")


def expected(case: Case, library, server: str, names: list[str]) -> list[str]:
    """What check says, as the texts that it prints."""
    inputs = [Input(name, path, None, None, "gzip" if path.suffix == ".gz" else "") for name, path in zip(names, case.logs, strict=True)]
    samples = list(Recording(case.telemetry)) if case.telemetry else None
    settings = EngineSettings(flag_judge=flag_judge(library))
    judged = judge(inputs, library, zone=Zone.named(case.zone), samples=samples, server=server, settings=settings)
    return sorted(encode.dumps(encode.finding(finding)) for finding in judged.engine.findings.all())


def found(daemon: RunningDaemon, server: str) -> list[str]:
    items = daemon.all("findings", f"&server={server}")
    return sorted(encode.dumps({key: value for key, value in item.items() if key not in OVERLAYS}) for item in items)


@pytest.mark.slow
def test_all_logs_without_telemetry_at_once(tmp_path: Path, library):
    """One daemon, one server for each case, all logs growing side by side."""
    cases = [case for case in CASES if case.telemetry is None and len(case.logs) == 1 and case.logs[0].suffix != ".gz"]
    servers, names = {}, {}
    for index, case in enumerate(cases):
        log = tmp_path / f"{index}" / "server.log"
        log.parent.mkdir()
        log.touch()
        servers[f"s{index}"] = {"name": f"s{index}", "logs": [str(log)], "timezone": case.zone}
        names[f"s{index}"] = f"s{index}/server.log"
    config = tmp_path / "watchdog.yaml"
    config.write_text(yaml.safe_dump({"servers": list(servers.values()), "telemetry": "none", "clock": "log", "state_dir": "none"}))
    with RunningDaemon("--config", str(config)) as daemon:
        for index, case in enumerate(cases):
            play([Capture(case.logs[0], None)], tmp_path / f"{index}" / "server.log", None, zone=Zone.named(case.zone), pace=PACE)
        written = {f"s{i}/server.log": line_count(tmp_path / f"{i}" / "server.log") for i in range(len(cases))}
        daemon.wait_for(lambda: settled(daemon, written), 60)
        time.sleep(SETTLE_S)
        for index, case in enumerate(cases):
            name = f"s{index}"
            wanted = expected(case, library, name, [names[name]])
            assert agree(daemon, name, wanted) or found(daemon, name) == wanted, case.folder.name


def agree(daemon: RunningDaemon, server: str, wanted: list[str]) -> bool:
    """Whether the daemon says so too, now or when a busy machine has let it come to its quiet seconds."""
    ends = time.monotonic() + 60
    while found(daemon, server) != wanted and time.monotonic() < ends:
        time.sleep(0.5)
    return found(daemon, server) == wanted


def follow(case: Case, library, tmp_path: Path) -> None:
    log, samples = tmp_path / "server.log", tmp_path / "gpus.jsonl"
    log.touch()
    samples.touch()
    with RunningDaemon(str(log), "--telemetry", f"replay:{samples}", "--clock", "log", "--timezone", case.zone, "--state-dir", "none") as daemon:
        play([Capture(case.logs[0], case.telemetry)], log, samples, zone=Zone.named(case.zone), pace=PACE)
        daemon.wait_for(lambda: settled(daemon, {"server.log": line_count(log)}), 60)
        time.sleep(SETTLE_S)
        wanted = expected(case, library, "sglang", ["server.log"])
        assert agree(daemon, "sglang", wanted) or found(daemon, "sglang") == wanted


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_CI)
def test_a_log_with_its_telemetry(name: str, library, tmp_path: Path):
    follow(next(case for case in CASES if case.folder.name == name), library, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("case", [c for c in CASES if c.telemetry and c.folder.name not in IN_CI], ids=lambda case: case.folder.name)
def test_every_other_log_with_its_telemetry(case: Case, library, tmp_path: Path):
    follow(case, library, tmp_path)


def test_blocks_of_any_size_give_the_same(library, tmp_path: Path):
    """The same log cut into blocks of a few bytes, and read at once."""
    from sglang_watchdog.engine.engine import Engine
    from sglang_watchdog.scan.patterns import compile_patterns
    from sglang_watchdog.scan.scanner import Scanner

    patterns = compile_patterns(library)
    for case in CASES[::6]:
        data = case.logs[0].read_bytes()
        texts = set()
        for size in (1 << 20, 4096, 700):
            engine, scanner = Engine(library), Scanner(library, "server.log", zone=Zone.named(case.zone), patterns=patterns)
            for at in range(0, len(data), size):
                for observation in scanner.feed(data[at : at + size], offset=at, line=data.count(b"\n", 0, at) + 1):
                    engine.feed(observation)
            for observation in scanner.finish():
                engine.feed(observation)
            engine.finish()
            texts.add("\n".join(encode.dumps(encode.finding(finding)) for finding in engine.findings.all()))
        assert len(texts) == 1, case.folder.name


def test_copies_are_whole(tmp_path: Path):
    """The replay writes what it reads."""
    case = CASES[0]
    target = tmp_path / "copy.log"
    play([Capture(case.logs[0], None)], target, None, zone=Zone.utc(), pace=PACE)
    shutil.copy(case.logs[0], tmp_path / "original.log")

    assert target.read_bytes() == (tmp_path / "original.log").read_bytes()
