"""What all tests share: the library, loaded once."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sglang_watchdog.engine.settings import EngineSettings
from sglang_watchdog.library.load import Loaded, load
from sglang_watchdog.model.signature import Library
from sglang_watchdog.offline.inputs import open_inputs
from sglang_watchdog.offline.pipeline import Judged, judge
from sglang_watchdog.parse.zone import Zone
from sglang_watchdog.scan.patterns import compile_patterns
from sglang_watchdog.sources.telemetry_recording import Recording
from sglang_watchdog.triage.findings import flag_judge
from sinks.needs import can_mount

ROOT = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def loaded() -> Loaded:
    """The built-in signatures; a fault in one fails every test that uses it."""
    result = load()
    assert not result.errors, "\n".join(fault.render() for fault in result.errors)
    return result


@pytest.fixture(scope="session")
def library(loaded: Loaded) -> Library:
    return loaded.library


@pytest.fixture(scope="session")
def judge_files(library: Library) -> Callable[..., Judged]:
    """Judge log files (and a recording) as `check` does."""

    flags, patterns = flag_judge(library), compile_patterns(library)

    def run(*logs: Path, telemetry: Path | None = None, zone: str = "UTC") -> Judged:
        inputs, faults = open_inputs([str(log) for log in logs])
        assert not faults
        samples = list(Recording(telemetry)) if telemetry is not None else None
        return judge(inputs, library, zone=Zone.named(zone), samples=samples, settings=EngineSettings(flag_judge=flags), patterns=patterns)

    return run


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of eight megabytes."""
    if not can_mount():
        pytest.skip("mounting a tmpfs is not permitted here: run as root with CAP_SYS_ADMIN")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)
