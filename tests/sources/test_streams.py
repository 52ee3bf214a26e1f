"""Pipes can be read only once: lines are cut from what comes, and nothing is kept beyond the cap."""

import asyncio
import os
from contextlib import aclosing
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sglang_watchdog.model.observation import Gap, Watermark
from sglang_watchdog.sources.block import Block
from sglang_watchdog.sources.logfile import Limits
from sglang_watchdog.sources.stdin import StdinSource, StreamEvent
from sglang_watchdog.sources.stream import LineCutter, Piece, Skipped


@given(pieces=st.lists(st.binary(max_size=40).map(lambda data: data.replace(b"x", b"\n")), max_size=30))
def test_every_byte_is_in_one_piece_or_skipped(pieces: list[bytes]) -> None:
    cutter, whole = LineCutter(line_bytes=32), b"".join(pieces)
    out = [each for data in pieces for each in cutter.feed(data)] + cutter.flush()
    at = 0
    for each in out:
        if isinstance(each, Skipped):
            assert each.from_offset == at
            at = each.to_offset
        else:
            assert (each.offset, whole[at : at + len(each.data)]) == (at, each.data)
            assert each.line == whole[:at].count(b"\n") + 1
            at += len(each.data)

    assert at == len(whole)
    assert cutter.line == whole.count(b"\n") + 1


def test_the_rest_of_a_long_line_is_skipped_over_several_reads() -> None:
    cutter = LineCutter(line_bytes=8)
    assert cutter.feed(b"0123456789") == [Piece(b"01234567", 0, 1, was_cut=True), Skipped(8, 10)]
    assert cutter.feed(b"abc") == [Skipped(10, 13)]
    assert cutter.feed(b"d\nnext\n") == [Skipped(13, 15), Piece(b"next\n", 15, 2)]


async def collect(source: StdinSource) -> list[StreamEvent]:
    async with asyncio.timeout(10), aclosing(source.events()) as events:
        return [event async for event in events]


async def test_a_pipe_is_read_to_its_end() -> None:
    reading, writing = os.pipe()
    source = StdinSource(descriptor=reading, limits=Limits(flush_s=0.05))
    task = asyncio.create_task(collect(source))
    os.write(writing, b"one\ntwo ")
    await asyncio.sleep(0.2)  # the half line waits its time and is handed over
    os.write(writing, b"and the rest\nlast")
    os.close(writing)
    events = await task
    os.close(reading)
    blocks = [event for event in events if isinstance(event, Block)]

    assert [block.data for block in blocks] == [b"one\n", b"two ", b"and the rest\n", b"last"]
    assert [block.was_cut for block in blocks] == [False, True, False, True]
    assert blocks[2].continues
    assert any(isinstance(event, Watermark) for event in events)
    assert source.status().why_not == "the writer closed the pipe"


async def test_a_redirected_file_is_read_to_its_end(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"x" * 500 + b"\nend\n")
    with log.open("rb") as file:
        events = await collect(StdinSource(descriptor=file.fileno(), limits=Limits(block_bytes=64, line_bytes=100)))

    assert b"".join(event.data for event in events if isinstance(event, Block)) == b"x" * 100 + b"end\n"
    assert {event.reason for event in events if isinstance(event, Gap)} == {"line-cut"}
