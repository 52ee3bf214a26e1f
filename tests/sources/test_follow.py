"""The tail in the event loop, on the real clock: hints wake it, polls find the rest, the consumer sets the pace."""

import asyncio
import gzip
import itertools
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from sglang_watchdog.model.observation import Watermark
from sglang_watchdog.sources.block import Block
from sglang_watchdog.sources.follow import TailSource
from sglang_watchdog.sources.hints import Hints
from sglang_watchdog.sources.logfile import Limits


@pytest.fixture
async def hints() -> AsyncIterator[Hints]:
    made = Hints()
    yield made
    made.close()


def _append(path: Path, text: bytes) -> None:
    with path.open("ab") as file:
        file.write(text)


async def read_until(source: TailSource, ending: bytes, within_s: float = 10.0) -> bytes:
    seen = b""
    async with asyncio.timeout(within_s), aclosing(source.events()) as events:
        async for event in events:
            if isinstance(event, Block):
                seen += event.data
            if seen.endswith(ending):
                return seen
    raise AssertionError("the source ended")


async def test_growth_is_delivered_by_hint_well_before_the_poll(tmp_path: Path, hints: Hints) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"first\n")
    source = TailSource("log", str(log), hints=hints)
    delays: list[float] = []
    async with asyncio.timeout(20), aclosing(source.events()) as events:
        written_s = 0.0
        async for event in events:
            if isinstance(event, Block) and written_s:
                delays.append(time.monotonic() - written_s)
                written_s = 0.0
            if isinstance(event, Watermark) and not written_s and source.status().wake == "inotify":
                loop = asyncio.get_running_loop()
                written_s = time.monotonic() + 0.02
                loop.call_later(0.02, _append, log, b"more\n")
            if len(delays) == 3:
                break
    assert min(delays) < 0.2  # the trusting poll looks once a second


async def test_rotation_and_late_appearance_live(tmp_path: Path, hints: Hints) -> None:
    log = tmp_path / "logs" / "server.log"
    seen = b""
    asyncio.get_running_loop().call_later(0.05, _write_first, log)
    async with asyncio.timeout(10), aclosing(TailSource("log", str(log), hints=hints).events()) as events:
        async for event in events:
            if isinstance(event, Block):
                seen += event.data
                if seen == b"one\n":
                    log.rename(log.with_name("server.log.1"))
                    log.write_bytes(b"two\n")
                if seen.endswith(b"two\n"):
                    break

    assert seen == b"one\ntwo\n"


def _write_first(log: Path) -> None:
    log.parent.mkdir()
    log.write_bytes(b"one\n")


async def test_polling_alone_is_enough(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    source = TailSource("log", str(log))
    reading = asyncio.create_task(read_until(source, b"end\n"))
    await asyncio.sleep(0)
    log.write_bytes(b"one\nend\n")

    assert await reading == b"one\nend\n"
    assert source.status().wake == "poll"


async def test_the_log_is_the_buffer(tmp_path: Path, hints: Hints) -> None:
    """A consumer that does not come back holds one block in memory, not the log."""
    log = tmp_path / "server.log"
    log.write_bytes(b"x" * 99 + b"\n")
    with log.open("ab") as file:
        for _ in range(100):
            file.write((b"x" * 99 + b"\n") * 1000)
    source = TailSource("log", str(log), hints=hints, limits=Limits(block_bytes=65536))
    async with aclosing(source.events()) as events:
        async for event in events:
            if isinstance(event, Block):
                break
        assert source.status().bytes_read <= 65536
        assert (source.status().lag_bytes or 0) > 9_000_000


async def test_unpacking_up_to_the_position_holds_up_nothing_else(tmp_path: Path) -> None:
    """While we were away the log was packed: to read on in it, all before the position is unpacked, which may be gigabytes."""
    log = tmp_path / "server.log"
    log.write_bytes(b"".join(b"line %08d %064d\n" % (number, number * 7) for number in range(700_000)))
    before = TailSource("log", str(log), limits=Limits(block_bytes=1 << 24))
    await read_until(before, b"line 00699999 %064d\n" % (699_999 * 7))
    position = before.tail.position
    _append(log, b"written while away\n")
    with log.open("rb") as plain, gzip.open(tmp_path / "server.log.1.gz", "wb", compresslevel=1) as packed:
        shutil.copyfileobj(plain, packed)
    began_s = time.monotonic()
    with gzip.open(tmp_path / "server.log.1.gz") as packed:
        assert packed.read().endswith(b"away\n")
    unpacking_s = time.monotonic() - began_s
    log.unlink()
    log.write_bytes(b"in the new file\n")
    turns: list[float] = []

    async def tick() -> None:
        while True:
            turns.append(time.monotonic())
            await asyncio.sleep(0.002)

    ticking = asyncio.create_task(tick())
    seen = await read_until(TailSource("log", str(log), resume=position), b"in the new file\n")
    ticking.cancel()

    assert seen == b"written while away\nin the new file\n"
    longest_s = max(after - before for before, after in itertools.pairwise(turns))
    assert longest_s < unpacking_s / 2, "the loop went on turning meanwhile"
