"""Places as the configuration names them: globs, containers, pods, pipes."""

import asyncio
import json
import os
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from sglang_watchdog.model.observation import Opened
from sglang_watchdog.sources.block import Block
from sglang_watchdog.sources.container import ContainerUnknown, docker_log, pod_log_pattern
from sglang_watchdog.sources.follow import TailSource
from sglang_watchdog.sources.globs import GlobSource, logs_matching
from sglang_watchdog.sources.hints import file_system_of
from sglang_watchdog.sources.journal import JournalSource
from sglang_watchdog.sources.kernel import KernelSource
from sglang_watchdog.sources.places import BadPlace, open_place
from sglang_watchdog.sources.siblings import is_rotation_of
from sglang_watchdog.sources.stdin import StdinSource
from sglang_watchdog.sources.tail import TailEvent


async def until(source: GlobSource | TailSource, done: Callable[[list[TailEvent]], bool]) -> list[TailEvent]:
    seen: list[TailEvent] = []
    async with asyncio.timeout(15), aclosing(source.events()) as events:
        async for event in events:
            seen.append(event)
            if done(seen):
                break
    return seen


def texts(events: list[TailEvent]) -> dict[str, bytes]:
    out: dict[str, bytes] = {}
    for event in events:
        if isinstance(event, Block):
            out[event.source] = out.get(event.source, b"") + event.data
    return out


def test_rotated_files_of_a_match_are_no_logs_of_their_own(tmp_path: Path) -> None:
    for name in ("a.log", "a.log.1", "a.log.2.gz", "b.log", "rank-0.log", "rank-1.log", "c.log-20260219"):
        (tmp_path / name).touch()

    assert [Path(path).name for path in logs_matching(str(tmp_path / "*"))] == ["a.log", "b.log", "c.log-20260219", "rank-0.log", "rank-1.log"]


async def test_each_file_of_a_glob_is_a_source_and_new_ones_join(tmp_path: Path) -> None:
    (tmp_path / "rank-0.log").write_bytes(b"zero\n")
    source = GlobSource("srv", str(tmp_path / "rank-*.log"))

    def write_another(seen: list[TailEvent]) -> bool:
        if texts(seen) and not (tmp_path / "rank-1.log").exists():
            (tmp_path / "rank-1.log").write_bytes(b"one\n")
        return len(texts(seen)) == 2

    seen = await until(source, write_another)

    assert texts(seen) == {f"srv:{tmp_path}/rank-0.log": b"zero\n", f"srv:{tmp_path}/rank-1.log": b"one\n"}
    assert [event.from_start for event in seen if isinstance(event, Opened)] == [True, True]
    assert source.status().bytes_read == 9
    assert len(source.statuses()) == 2


async def test_old_logs_of_a_glob_are_left_out_and_said(tmp_path: Path) -> None:
    for name, age_s in (("old.log", 90_000.0), ("older.log", 900_000.0), ("new.log", 10.0)):
        (tmp_path / name).write_bytes(name.encode() + b"\n")
        written_s = 1_771_000_000.0 - age_s
        os.utime(tmp_path / name, (written_s, written_s))
    source = GlobSource("srv", str(tmp_path / "*.log"), clock=lambda: 1_771_000_000.0)
    seen = await until(source, lambda seen: bool(texts(seen)))

    assert list(texts(seen).values()) == [b"new.log\n"]
    assert [Path(note.split(": ")[1]).name for note in source.status().notes] == ["old.log", "older.log"]


def container(root: Path, number: str, name: str, created: str) -> Path:
    directory = root / "containers" / (number * 64)
    directory.mkdir(parents=True)
    log = directory / f"{number * 64}-json.log"
    log.write_bytes(b'{"log":"hello\\n","stream":"stdout","time":"2026-02-19T08:10:03.1Z"}\n')
    config = {"Name": f"/{name}", "Created": created, "LogPath": f"/var/lib/docker/containers/{number * 64}/{log.name}"}
    (directory / "config.v2.json").write_text(json.dumps(config))
    return log


def test_a_container_is_found_by_name_and_by_id(tmp_path: Path) -> None:
    old = container(tmp_path, "a", "sglang", "2026-02-18T00:00:00Z")
    new = container(tmp_path, "b", "sglang", "2026-02-19T00:00:00Z")
    container(tmp_path, "c", "other", "2026-02-20T00:00:00Z")

    assert docker_log("sglang", str(tmp_path)) == str(new)
    assert docker_log("aaaaaaaaaaaa", str(tmp_path)) == str(old)


def test_an_unknown_container_says_where_was_looked(tmp_path: Path) -> None:
    with pytest.raises(ContainerUnknown, match="No such file or directory"):
        docker_log("sglang", str(tmp_path))
    container(tmp_path, "a", "other", "2026-02-18T00:00:00Z")
    with pytest.raises(ContainerUnknown, match="no container of this name or id"):
        docker_log("sglang", str(tmp_path))


async def test_a_container_made_anew_is_followed(tmp_path: Path) -> None:
    """docker rm and docker run: another id, another file, the same name."""
    container(tmp_path, "a", "sglang", "2026-02-18T00:00:00Z")
    source = TailSource("srv", lambda: docker_log("sglang", str(tmp_path)))

    def make_another(seen: list[TailEvent]) -> bool:
        blocks = [event for event in seen if isinstance(event, Block)]
        if blocks and not (tmp_path / "containers" / ("b" * 64)).exists():
            container(tmp_path, "b", "sglang", "2026-02-19T00:00:00Z")
        return len(blocks) == 2

    seen = await until(source, make_another)

    assert [event.generation for event in seen if isinstance(event, Block)] == [0, 1]


def test_a_container_that_is_missing_shows_in_the_status(tmp_path: Path) -> None:
    source = TailSource("srv", lambda: docker_log("sglang", str(tmp_path)))
    source.tail.step(1.0)

    status = source.status()
    assert status.why_not.startswith(f"docker:sglang: {tmp_path}/containers: No such file or directory; run as root")
    assert not status.is_late, "no folder of docker's is not a container that is yet to come"


def test_a_container_that_is_not_there_yet_is_late(tmp_path: Path) -> None:
    (tmp_path / "containers").mkdir()
    source = TailSource("srv", lambda: docker_log("sglang", str(tmp_path)))
    source.tail.step(1.0)

    assert source.status().is_late
    assert "no container of this name" in source.status().why_not


def test_pod_logs_are_a_pattern() -> None:
    assert pod_log_pattern("serving/qwen/sglang") == "/var/log/pods/serving_qwen*_*/sglang/*.log"
    with pytest.raises(ContainerUnknown, match="expected cri:NAMESPACE/POD/CONTAINER"):
        pod_log_pattern("serving/qwen")


async def test_a_pod_log_is_followed_over_the_kubelets_rotation(tmp_path: Path) -> None:
    directory = tmp_path / "pods" / "serving_qwen-7d9_0b1c" / "sglang"
    directory.mkdir(parents=True)
    (directory / "0.log").write_bytes(b"2026-02-19T08:10:03.1Z stdout F one\n")
    source = open_place("srv", pod_log_pattern("serving/qwen/sglang", str(tmp_path / "pods")))
    assert isinstance(source, GlobSource)

    def rotate(seen: list[TailEvent]) -> bool:
        if b"one" in b"".join(texts(seen).values()) and not (directory / "0.log.20260219-081500").exists():
            (directory / "0.log").rename(directory / "0.log.20260219-081500")
            (directory / "0.log").write_bytes(b"2026-02-19T08:15:03.1Z stdout F two\n")
        return b"two" in b"".join(texts(seen).values())

    seen = await until(source, rotate)

    assert len(texts(seen)) == 1


@pytest.mark.parametrize(
    ("where", "kind"),
    [
        ("-", StdinSource), ("journal:sglang", JournalSource), ("kmsg:", KernelSource), ("docker:sglang", TailSource),
        ("cri:serving/qwen/sglang", GlobSource), ("cri:/var/log/pods/*/sglang/*.log", GlobSource), ("/var/log/*.log", GlobSource),
        ("/var/log/server.log", TailSource), ("C:odd.log", TailSource),
    ],
)  # fmt: skip
def test_each_place_has_its_source(where: str, kind: type) -> None:
    assert isinstance(open_place("srv", where), kind)


@pytest.mark.parametrize("where", ["journal:", "docker:", "cri:only-one"])
def test_bad_places_are_refused(where: str) -> None:
    with pytest.raises(BadPlace, match=where):
        open_place("srv", where)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("server.log.1", True), ("server.log.12.gz", True), ("server.log-20260219", True), ("server.log-20260219.gz", True),
        ("server.log.2026-02-19_10-00", True), ("server.log.gz", True), ("server.log.old", True), ("server-20260219.log", True),
        ("server.1.log", True), ("server.log", False), ("server.log.lock", False), ("server2.log", False), ("server.log.swp", False),
        ("other.log.1", False), ("server-b.log", False),
    ],
)  # fmt: skip
def test_rotated_names(name: str, is_one: bool) -> None:
    assert is_rotation_of(name, "server.log") is is_one


def test_the_file_system_of_a_path() -> None:
    assert file_system_of("/proc/self/status") == "proc"
