"""One test for each way a log file can change, on real files; time is what the test says it is."""

import gzip
import json
import os
import shutil
from pathlib import Path

import pytest

from sglang_watchdog.model.observation import Gap, Opened, Watermark
from sglang_watchdog.sources.block import Block
from sglang_watchdog.sources.logfile import Limits
from sglang_watchdog.sources.position import TailPosition, UnknownPosition, position_from_json
from sglang_watchdog.sources.tail import Tail, TailEvent

START_S = 1_771_000_000.0


class Reader:
    """A tail with its own clock: reads until there is nothing more, a second at a time."""

    def __init__(
        self,
        path: Path,
        *,
        resume: TailPosition | None = None,
        limits: Limits | None = None,
        history: bool = False,
    ) -> None:
        self.path, self.limits = path, limits or Limits()
        self.tail = Tail("log", str(path), resume=resume, limits=self.limits, with_history=history)
        self.now_s = START_S
        self.events: list[TailEvent] = []

    def read(self, *, seconds: float = 0.0) -> bytes:
        """Read all there is, then let `seconds` pass; return the bytes delivered in this call."""
        fresh: list[TailEvent] = []
        end_s = self.now_s + seconds
        while True:
            got = self.tail.step(self.now_s)
            fresh += got
            if self.tail.idle:
                if self.now_s >= end_s:
                    break
                self.now_s += 0.5
        self.events += fresh
        return b"".join(event.data for event in fresh if isinstance(event, Block))

    def restart(self) -> "Reader":
        """Kill the tail and go on from its position as stored."""
        stored = json.loads(json.dumps(self.tail.position.to_json()))
        self.tail.close()
        position = position_from_json(stored)
        assert isinstance(position, TailPosition)
        again = Reader(self.path, resume=position, limits=self.limits)
        again.now_s = self.now_s + 1
        return again

    def gaps(self) -> list[Gap]:
        return [event for event in self.events if isinstance(event, Gap)]

    def blocks(self) -> list[Block]:
        return [event for event in self.events if isinstance(event, Block)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def append(path: Path, text: bytes) -> None:
    with path.open("ab") as file:
        file.write(text)


def test_a_new_log_is_read_from_its_first_byte(log: Path) -> None:
    append(log, b"one\ntwo\n")
    reader = Reader(log)

    assert reader.read() == b"one\ntwo\n"
    assert reader.events[0] == Opened(at_s=None, source="log", from_start=True, format="plain")
    block = reader.blocks()[0]
    assert (block.offset, block.line, block.generation) == (0, 1, 0)


def test_lines_are_counted_and_placed(log: Path) -> None:
    append(log, b"one\ntwo\n")
    reader = Reader(log)
    reader.read()
    append(log, b"three\n")
    reader.read()

    assert (reader.blocks()[-1].offset, reader.blocks()[-1].line) == (8, 3)


def test_a_half_line_waits_for_its_end(log: Path) -> None:
    append(log, b"one\ntw")
    reader = Reader(log)
    assert reader.read() == b"one\n"
    append(log, b"o\n")

    assert reader.read() == b"two\n"
    assert not any(block.was_cut for block in reader.blocks())


def test_a_half_line_that_stays_is_handed_over_and_its_rest_is_told_apart(log: Path) -> None:
    append(log, b"one\nWaiting for ranks ...")
    reader = Reader(log)
    assert reader.read(seconds=2) == b"one\nWaiting for ranks ..."
    assert reader.blocks()[-1].was_cut
    append(log, b" done\nnext\n")

    assert reader.read() == b" done\nnext\n"
    assert reader.blocks()[-1].continues
    assert (reader.blocks()[-1].line, reader.blocks()[-1].offset) == (2, 25)


def test_a_moving_progress_bar_is_handed_over_drawing_by_drawing(log: Path) -> None:
    reader = Reader(log)
    seen = b""
    for percent in range(0, 50, 10):
        append(log, b"\rCapturing %d%%" % percent)
        seen += reader.read(seconds=0.5)

    assert seen == b"\rCapturing 0%\rCapturing 10%\rCapturing 20%"[: len(seen)]
    assert seen.endswith(b"%")


def test_a_line_beyond_the_cap_is_cut_and_the_rest_is_a_gap(log: Path) -> None:
    limits = Limits(block_bytes=64, line_bytes=256)
    append(log, b"a\n" + b"x" * 1000 + b"\nb\n")
    reader = Reader(log, limits=limits)

    assert reader.read() == b"a\n" + b"x" * 256 + b"b\n"
    assert [(gap.reason, gap.from_offset, gap.to_offset) for gap in reader.gaps()] == [("line-cut", 258, 1003)]
    assert reader.blocks()[-1].line == 3


def test_odd_bytes_pass_untouched(log: Path) -> None:
    odd = b"\x1b[31mred\x1b[0m\r\n\xff\xfe\x00mid\x00\n\n\n"
    append(log, odd)

    assert Reader(log).read() == odd


def test_a_file_that_appears_late_is_read_from_its_start(log: Path) -> None:
    reader = Reader(log)
    assert reader.read(seconds=3) == b""
    assert "No such file" in reader.tail.status().why_not
    assert not [event for event in reader.events if isinstance(event, Watermark)]
    append(log, b"hello\n")

    assert reader.read() == b"hello\n"
    assert reader.tail.status().why_not == ""


def test_a_file_that_becomes_readable_late(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the refusal is the kernel's answer put in by hand."""
    append(log, b"hello\n")
    real = os.open

    def refuse(path: str, *rest: int) -> int:
        if path == str(log):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *rest)

    monkeypatch.setattr(os, "open", refuse)
    reader = Reader(log)
    assert reader.read(seconds=1) == b""
    assert reader.tail.status().why_not == f"{log}: Permission denied"
    monkeypatch.setattr(os, "open", real)

    assert reader.read() == b"hello\n"


def test_rotation_by_rename_reads_the_old_to_its_end_then_the_new(log: Path) -> None:
    append(log, b"one\n")
    reader = Reader(log)
    reader.read()
    append(log, b"two\n")
    log.rename(log.with_suffix(".log.1"))
    append(log, b"three\n")

    assert reader.read() == b"two\nthree\n"
    assert reader.gaps() == []
    assert reader.tail.status().rotations == 1
    assert reader.blocks()[-1].generation == 1


def test_late_lines_of_a_rotated_file_are_read(log: Path) -> None:
    append(log, b"one\n")
    writer = log.open("ab")
    reader = Reader(log)
    reader.read()
    log.rename(log.with_suffix(".log.1"))
    append(log, b"new\n")
    assert reader.read(seconds=2) == b"new\n"
    writer.write(b"late\n")
    writer.close()

    assert reader.read() == b"late\n"


def test_a_writer_that_never_heard_of_the_rotation_is_followed_for_ever(log: Path) -> None:
    """A server under a `>` redirect cannot reopen its log; logrotate's `create` leaves an empty file beside it."""
    append(log, b"one\n")
    with log.open("ab", buffering=0) as writer:
        reader = Reader(log)
        reader.read()
        log.rename(log.with_suffix(".log.1"))
        log.touch()
        reader.read(seconds=120)
        writer.write(b"still here\n")

        assert reader.read() == b"still here\n"


def test_several_rotations_between_two_looks_are_read_in_order(log: Path) -> None:
    append(log, b"a\n")
    reader = Reader(log)
    reader.read()
    for text in (b"b\n", b"c\n", b"d\n"):
        shift(log)
        append(log, text)

    assert reader.read() == b"b\nc\nd\n"
    assert reader.gaps() == []


def shift(log: Path) -> None:
    """Rotate as logrotate does: .1 to .2, the log to .1."""
    for number in range(8, 0, -1):
        older = log.with_name(f"{log.name}.{number}")
        if older.exists():
            older.rename(log.with_name(f"{log.name}.{number + 1}"))
    log.rename(log.with_name(f"{log.name}.1"))


def pack(path: Path) -> None:
    times = path.stat()
    with path.open("rb") as plain, gzip.open(f"{path}.gz", "wb") as packed:
        shutil.copyfileobj(plain, packed)
    os.utime(f"{path}.gz", ns=(times.st_atime_ns, times.st_mtime_ns))
    path.unlink()


def test_rotations_and_packing_while_stopped_are_read_in_order(log: Path) -> None:
    append(log, b"a\nb\n")
    reader = Reader(log)
    reader.read()
    append(log, b"c\n")
    shift(log)
    append(log, b"d\n")
    shift(log)
    append(log, b"e\n")
    pack(log.with_name("server.log.2"))
    again = reader.restart()

    assert again.read() == b"c\nd\ne\n"
    assert again.gaps() == []


def test_dated_rotations_while_stopped_are_read_in_order(log: Path) -> None:
    append(log, b"a\n")
    reader = Reader(log)
    reader.read()
    append(log, b"b\n")
    log.rename(log.with_name("server.log-20260219"))
    append(log, b"c\n")
    log.rename(log.with_name("server.log-20260220"))
    append(log, b"d\n")

    assert reader.restart().read() == b"b\nc\nd\n"


def test_copytruncate_goes_on_in_the_copy_and_says_what_may_be_lost(log: Path) -> None:
    append(log, b"one\n")
    reader = Reader(log)
    reader.read()
    append(log, b"two\n")
    shutil.copy(log, log.with_name("server.log.1"))
    os.truncate(log, 0)
    append(log, b"three\n")

    assert reader.read() == b"two\nthree\n"
    assert [(gap.reason, gap.from_offset, gap.to_offset) for gap in reader.gaps()] == [("truncated", 8, None)]


def test_truncation_without_a_copy_is_a_gap(log: Path) -> None:
    """`> server.log` at every start of the server is the most common rotation of all."""
    append(log, b"one\n")
    reader = Reader(log)
    reader.read()
    os.truncate(log, 0)
    append(log, b"2\n")

    assert reader.read() == b"2\n"
    assert [(gap.reason, gap.from_offset) for gap in reader.gaps()] == [("truncated", 4)]
    assert [event for event in reader.events if isinstance(event, Opened)][-1].from_start


def test_truncation_and_a_longer_rewrite_is_seen(log: Path) -> None:
    append(log, b"one\n")
    reader = Reader(log)
    reader.read()
    log.write_bytes(b"two\nthree\n")

    assert reader.read() == b"two\nthree\n"


def test_a_rewrite_with_the_same_first_bytes_is_seen(log: Path) -> None:
    banner = b"=" * 2000 + b"\n"
    append(log, banner + b"run 1\n")
    reader = Reader(log)
    reader.read()
    log.write_bytes(banner + b"run 2\nmore\n")

    assert reader.read() == banner + b"run 2\nmore\n"


def test_copytruncates_while_stopped_are_read_in_order(log: Path) -> None:
    append(log, b"a\n")
    reader = Reader(log)
    reader.read()
    for text in (b"b\n", b"c\n"):
        append(log, text)
        if log.with_name("server.log.1").exists():
            log.with_name("server.log.1").rename(log.with_name("server.log.2"))
        shutil.copy(log, log.with_name("server.log.1"))
        os.truncate(log, 0)
    append(log, b"d\n")
    again = reader.restart()

    assert again.read() == b"b\nc\nd\n"
    assert [gap.reason for gap in again.gaps()] == ["truncated", "truncated"]


def test_the_zeros_of_a_writer_at_its_old_offset_are_a_gap(log: Path) -> None:
    """A `>` redirect has no O_APPEND: after a truncation the writer goes on where it was."""
    with log.open("wb", buffering=0) as writer:
        writer.write(b"x" * 9999 + b"\n")
        reader = Reader(log)
        reader.read()
        os.truncate(log, 0)
        writer.write(b"next\n")

        assert reader.read() == b"next\n"
        assert [(gap.reason, gap.from_offset, gap.to_offset) for gap in reader.gaps()] == [
            ("truncated", 10000, None),
            ("hole", 0, 10000),
        ]


def test_delete_and_recreate(log: Path) -> None:
    append(log, b"one\n")
    reader = Reader(log)
    reader.read()
    append(log, b"two\n")
    log.unlink()
    append(log, b"three\n")

    assert reader.read() == b"two\nthree\n"


def test_a_file_deleted_unread_while_stopped_is_a_gap(log: Path) -> None:
    append(log, b"one\n")
    reader = Reader(log)
    reader.read()
    append(log, b"two\n")
    log.unlink()
    append(log, b"three\n")
    again = reader.restart()

    assert again.read() == b"three\n"
    assert [(gap.reason, gap.from_offset) for gap in again.gaps()] in (
        [("rotated-away", 4)],
        [("truncated", 4)],  # the second when the file system used the inode again
    )


def test_a_symlink_turned_to_another_file(log: Path, tmp_path: Path) -> None:
    append(tmp_path / "server-19.log", b"one\n")
    log.symlink_to("server-19.log")
    reader = Reader(log)
    reader.read()
    append(tmp_path / "server-19.log", b"two\n")
    append(tmp_path / "server-20.log", b"three\n")
    append(tmp_path / "server-21.log", b"four\n")
    (tmp_path / "new").symlink_to("server-21.log")
    (tmp_path / "new").rename(log)

    assert reader.read() == b"two\nthree\nfour\n"
    assert reader.gaps() == []


def test_a_directory_at_the_path_is_not_followed(log: Path) -> None:
    log.mkdir()
    reader = Reader(log)
    reader.read()

    assert "not a regular file" in reader.tail.status().why_not


def test_a_folder_in_the_logs_place_is_said_and_the_next_log_is_read(log: Path) -> None:
    append(log, b"one\n")
    reader = Reader(log)
    reader.read()
    log.rename(log.with_name("elsewhere"))
    log.mkdir()
    reader.read(seconds=2)
    status = reader.tail.status()

    assert not status.readable
    assert "a folder stands where the log was" in status.why_not
    assert status.do == "name a regular file, or a pattern for several"

    log.rmdir()
    append(log, b"two\n")
    assert reader.read(seconds=2) == b"two\n"
    assert reader.tail.status().readable


def test_a_stop_at_any_byte_neither_loses_nor_repeats(log: Path) -> None:
    append(log, b"".join(b"line %d\n" % number for number in range(200)))
    limits = Limits(block_bytes=64, line_bytes=256)
    reader, seen = Reader(log, limits=limits), b""
    for _ in range(300):
        events = reader.tail.step(reader.now_s) + reader.tail.step(reader.now_s)
        seen += b"".join(event.data for event in events if isinstance(event, Block))
        reader = reader.restart()

    assert seen == log.read_bytes()


def test_a_block_can_be_asked_for_again(log: Path) -> None:
    """The engine re-reads the current run from its first block after a restart; its file may be packed by then."""
    append(log, b"one\n")
    reader = Reader(log)
    reader.read()
    append(log, b"two\n")
    reader.read()
    before = reader.blocks()[0].before
    shift(log)
    pack(log.with_name("server.log.1"))
    append(log, b"three\n")
    assert isinstance(before, TailPosition)

    assert Reader(log, resume=before).read() == b"one\ntwo\nthree\n"


def test_the_watermark_follows_the_clock_only_while_all_is_read(log: Path) -> None:
    append(log, b"one\n")
    reader = Reader(log)
    reader.read(seconds=2)
    marks = [event.at_s for event in reader.events if isinstance(event, Watermark)]
    assert marks[-1] == START_S + 2 - Limits().settle_s
    log.unlink()
    reader.events.clear()
    reader.read(seconds=5)

    assert reader.events == []


def test_a_damaged_packed_file_gives_what_it_holds_and_a_gap(log: Path) -> None:
    append(log, b"a\n")
    reader = Reader(log)
    reader.read()
    append(log, b"".join(b"%06d\n" % (number * 7919 % 999983) for number in range(20000)))
    whole = log.read_bytes()
    shift(log)
    pack(log.with_name("server.log.1"))
    packed = log.with_name("server.log.1.gz")
    times = packed.stat()
    packed.write_bytes(packed.read_bytes()[:-5000])
    os.utime(packed, ns=(times.st_atime_ns, times.st_mtime_ns))
    append(log, b"after\n")
    again = reader.restart()
    got = again.read()

    assert got.endswith(b"after\n")
    assert whole[2:].startswith(got.removesuffix(b"after\n"))
    assert len(got) > 1000
    assert [gap.reason.split(":")[0] for gap in again.gaps()] == ["rotated-away"]


@pytest.mark.parametrize(
    "stored",
    [{}, {"kind": "tail", "version": 9}, {"kind": "tail", "version": 1, "files": [{"x": 1}]}],
)
def test_a_foreign_position_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(UnknownPosition):
        position_from_json(stored)
