"""The promise of the tail, against every order of events: each byte is delivered exactly once, or lies in a gap that was said.

The model keeps the truth: a *life* is what was written between the creation or truncation of a file and its end. It knows which
bytes are gone for good (truncated without a copy, deleted unread). Only those may be missing, and only with a gap.
"""

import gzip
import json
import os
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sglang_watchdog.model.observation import Gap, Opened
from sglang_watchdog.sources.block import Block
from sglang_watchdog.sources.logfile import Limits
from sglang_watchdog.sources.position import TailPosition, position_from_json
from sglang_watchdog.sources.tail import Tail, TailEvent

# `make soak` sets a number: then every run is new. The suite's own runs are the same each time.
RUNS = int(os.environ.get("TAIL_MODEL_RUNS", "0"))
LIMITS = Limits(block_bytes=64, line_bytes=200, open_files=6)


@dataclass(eq=False)
class Life:
    """One stretch of writing. `gone_from`: bytes from there on exist in no file any more."""

    number: int
    content: bytearray = field(default_factory=bytearray)
    covered: int = 0  # every byte before is delivered or in a gap
    gone_from: int | None = None
    generation: int | None = None
    may_vanish_unsaid: bool = False  # was empty when it was last seen, so nothing of it can be known again


@dataclass(eq=False)
class Rotated:
    path: Path
    life: Life
    holds: int  # bytes of the life in this file


@dataclass
class Committed:
    position: dict[str, object] | None
    covered: dict[Life, tuple[int, int | None]]
    gaps: int


class TailMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="tail-model-"))
        self.log = self.directory / "server.log"
        self.now_s = 1_771_000_000
        self.sequence = 0
        self.lives: list[Life] = []
        self.rotated: list[Rotated] = []  # oldest first
        self.writer = -1
        self.life: Life | None = None  # what the writer writes to
        self.late: list[tuple[int, Life, tuple[int, int]]] = []
        self.tail: Tail | None = None
        self.gaps: list[Gap] = []
        self.committed = Committed(None, {}, 0)
        self.operations = 0
        self.is_attached = False
        self.has_late_lines = False
        self.at_kill: list[Life] = []  # deleted, but the tail has them open

    # --- the world --------------------------------------------------------------------------------------------------

    @initialize(scheme=st.sampled_from(["counter", "dated", "link"]), starts=st.booleans(), are_heads_alike=st.booleans())
    def begin(self, scheme: str, starts: bool, are_heads_alike: bool) -> None:
        self.scheme = scheme
        # With the first bytes alike in all files only what stands before the mark tells them apart.
        self.limits = replace(LIMITS, head_bytes=24) if are_heads_alike else LIMITS
        if starts:
            self.start_writer()
        self.tail = Tail("log", str(self.log), limits=self.limits)

    def tick(self) -> None:
        self.now_s += 1
        self.operations += 1

    def start_writer(self) -> None:
        """Create the file at the path and write its first lines in one go."""
        self.tick()
        if self.scheme == "link":
            target = self.directory / f"server-{len(self.lives):06d}.log"
            self.writer = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        else:
            self.writer = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.life = self.new_life()
        self.append(self.writer, self.life, b"same first line in every file\n" + self.line())
        if self.scheme == "link":
            fresh = self.directory / "fresh"
            fresh.symlink_to(target.name)
            fresh.rename(self.log)

    def new_life(self) -> Life:
        life = Life(len(self.lives))
        self.lives.append(life)
        return life

    def line(self) -> bytes:
        self.sequence += 1
        return b"%08d\n" % self.sequence

    def append(self, writer: int, life: Life, data: bytes) -> None:
        os.write(writer, data)
        life.content += data
        os.utime(writer, ns=(self.now_s * 10**9, self.now_s * 10**9))

    @property
    def is_written(self) -> bool:
        return self.life is not None

    # --- writing ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.is_written)
    @rule()
    def writer_starts(self) -> None:
        self.start_writer()

    @precondition(lambda self: self.is_written)
    @rule(kind=st.sampled_from(["line", "lines", "part", "end", "carriage", "zeros", "windows", "long", "empty"]))
    def writes(self, kind: str) -> None:
        self.tick()
        self.sequence += 1
        number = b"%08d" % self.sequence
        text = {
            "line": number + b"\n",
            "part": number,
            "end": number + b"\n",
            "carriage": b"\r" + number,
            "windows": number + b"\r\n",
            "zeros": number + b"\0\0\n",
            "long": number * 60 + b"\n",
            "empty": b"\n",
            "lines": b"".join(self.line() for _ in range(30)),
        }[kind]
        assert self.life is not None
        self.append(self.writer, self.life, text)

    @precondition(lambda self: self.late and self.is_attached)
    @rule()
    def late_line(self) -> None:
        """A writer that has not reopened yet, into a file that the tail has open or has not come to yet."""
        writer, life, identity = self.late[-1]
        assert self.tail is not None
        is_open = identity in {mark.identity for mark in self.tail.position.files}
        if is_open or life.generation is None:
            self.tick()
            self.has_late_lines = True
            self.append(writer, life, self.line())
            for each in self.rotated:
                each.holds = len(life.content) if each.life is life else each.holds

    # --- rotating ---------------------------------------------------------------------------------------------------

    def rotated_name(self) -> Path:
        if self.scheme == "dated":
            return self.directory / f"server.log-{self.now_s:012d}"
        for each in reversed(range(len(self.rotated))):
            number = len(self.rotated) - each
            older = self.rotated[each]
            packed = ".gz" if older.path.name.endswith(".gz") else ""
            moved = self.directory / f"server.log.{number + 1}{packed}"
            # From the oldest on, so that no name is taken twice.
            self.rotated[each] = Rotated(moved, older.life, older.holds)
        for each, old in zip(self.rotated, self.before_shift, strict=True):
            old.rename(each.path)
        return self.directory / "server.log.1"

    def shift(self) -> Path:
        self.before_shift = [each.path for each in self.rotated]
        return self.rotated_name()

    @precondition(lambda self: self.is_written and self.scheme != "link")
    @rule(reopens=st.booleans(), leaves_empty=st.booleans())
    def rotate_by_rename(self, reopens: bool, leaves_empty: bool) -> None:
        self.tick()
        assert self.life is not None
        name = self.shift()
        self.log.rename(name)
        self.rotated.append(Rotated(name, self.life, len(self.life.content)))
        self.retire_writer(keep=not reopens)
        if reopens:
            self.start_writer()

    @precondition(lambda self: self.is_written and self.scheme == "link")
    @rule()
    def turn_link(self) -> None:
        assert self.life is not None
        name = Path(os.path.realpath(self.log))
        self.rotated.append(Rotated(name, self.life, len(self.life.content)))
        self.retire_writer(keep=False)
        self.start_writer()

    def retire_writer(self, *, keep: bool) -> None:
        assert self.life is not None
        if keep:
            found = os.fstat(self.writer)
            self.late.append((self.writer, self.life, (found.st_dev, found.st_ino)))
        else:
            os.close(self.writer)
        self.writer, self.life = -1, None

    @precondition(lambda self: self.is_written and self.scheme != "link")
    @rule(between=st.booleans())
    def rotate_by_copytruncate(self, between: bool) -> None:
        self.tick()
        assert self.life is not None
        name = self.shift()
        shutil.copyfile(self.log, name)
        os.utime(name, ns=(self.now_s * 10**9, self.now_s * 10**9))
        self.rotated.append(Rotated(name, self.life, len(self.life.content)))
        self.life.gone_from = len(self.life.content)
        # Met for the first time in the copy, it looks like a renamed file.
        self.life.may_vanish_unsaid |= not self.is_open(os.fstat(self.writer))
        if between:
            self.tick()
            self.append(self.writer, self.life, self.line())
        self.truncate()

    @precondition(lambda self: self.is_written)
    @rule()
    def truncated_without_a_copy(self) -> None:
        self.tick()
        assert self.life is not None
        self.life.gone_from = 0
        self.life.may_vanish_unsaid |= not self.is_open(os.fstat(self.writer))
        self.truncate()

    def truncate(self) -> None:
        self.tick()
        os.ftruncate(self.writer, 0)
        os.utime(self.writer, ns=(self.now_s * 10**9, self.now_s * 10**9))
        self.life = self.new_life()
        self.life.may_vanish_unsaid = True
        self.append(self.writer, self.life, b"same first line in every file\n" + self.line())

    @precondition(lambda self: self.is_written and self.scheme != "link")
    @rule()
    def delete_and_recreate(self) -> None:
        self.now_s += 6  # two of these within 5 s leave no trace at all
        assert self.life is not None
        # Made and deleted between two looks, by hand and not by a rotation, while the file before it is still there.
        self.life.may_vanish_unsaid |= not self.is_open(os.fstat(self.writer))
        self.deleted(self.life, os.fstat(self.writer))
        self.log.unlink()
        self.retire_writer(keep=False)
        self.start_writer()

    def deleted(self, life: Life, found: os.stat_result) -> None:
        """Gone, unless the tail has the file open; then it is gone at the next kill."""
        if self.is_open(found):
            self.at_kill.append(life)
        else:
            life.gone_from = 0

    def is_open(self, found: os.stat_result) -> bool:
        assert self.tail is not None
        known = {mark.identity for mark in self.tail.position.files}
        return (found.st_dev, found.st_ino) in known and self.tail.status().inode is not None

    @precondition(lambda self: len(self.rotated) > 1)
    @rule()
    def retention_deletes_the_oldest(self) -> None:
        self.now_s += 6
        oldest = self.rotated.pop(0)
        self.deleted(oldest.life, oldest.path.stat())
        self.drop_late(oldest.life)
        oldest.path.unlink()

    @precondition(lambda self: any(not each.path.name.endswith(".gz") for each in self.rotated))
    @rule()
    def pack_the_oldest(self) -> None:
        self.tick()
        plain = next(each for each in self.rotated if not each.path.name.endswith(".gz"))
        self.drop_late(plain.life)
        # The packed copy of a copytruncate whose file is deleted later looks like a packed rename.
        plain.life.may_vanish_unsaid |= plain.life.gone_from is not None
        times = plain.path.stat()
        packed = plain.path.with_name(plain.path.name + ".gz")
        packed.write_bytes(gzip.compress(plain.path.read_bytes(), mtime=0))
        os.utime(packed, ns=(times.st_mtime_ns, times.st_mtime_ns))
        plain.path.unlink()
        plain.path = packed

    def drop_late(self, life: Life) -> None:
        for late in [each for each in self.late if each[1] is life]:
            os.close(late[0])
            self.late.remove(late)

    # --- reading ----------------------------------------------------------------------------------------------------

    @rule(steps=st.integers(1, 6), commits=st.booleans())
    def reads(self, steps: int, commits: bool) -> None:
        assert self.tail is not None
        for _ in range(steps):
            self.take(self.tail.step(self.now_s))
        if commits:
            self.commit()

    @rule(seconds=st.integers(1, 15))
    def time_passes(self, seconds: int) -> None:
        """Half lines are flushed, quiet files let go."""
        assert self.tail is not None
        for _ in range(seconds):
            self.now_s += 1
            self.take(self.tail.step(self.now_s))

    @rule()
    def commit(self) -> None:
        assert self.tail is not None
        if self.limits.head_bytes == 24 and any(mark.offset == 0 for mark in self.tail.position.files):
            return  # a file that nothing was read of has no trace but its first bytes
        self.committed = Committed(
            json.loads(json.dumps(self.tail.position.to_json())),
            {life: (life.covered, life.generation) for life in self.lives},
            len(self.gaps),
        )

    @rule()
    def killed_and_resumed(self) -> None:
        """Whatever was not committed is forgotten and comes again."""
        assert self.tail is not None
        self.tail.close()
        for life in self.at_kill:
            life.gone_from = 0
        self.at_kill.clear()
        for life in self.lives:
            life.covered, life.generation = self.committed.covered.get(life, (0, None))
            life.may_vanish_unsaid |= life.generation is None and life.gone_from is not None
        del self.gaps[self.committed.gaps :]
        stored = self.committed.position
        resume = position_from_json(stored) if stored is not None else None
        assert resume is None or isinstance(resume, TailPosition)
        if resume is None or not resume.files:
            self.is_attached = False
            resume = None
        self.tail = Tail("log", str(self.log), resume=resume, limits=self.limits)

    def forget_what_came_before(self) -> None:
        """Without a position the tail begins with the file at the path; what was rotated before is not its business."""
        self.is_attached = True
        for life in self.lives:
            if life is not self.life:
                life.covered = len(life.content)
                self.drop_late(life)

    def take(self, events: list[TailEvent]) -> None:
        for event in events:
            if isinstance(event, Block):
                self.take_block(event)
            elif isinstance(event, Gap):
                self.take_gap(event)
            elif isinstance(event, Opened) and not self.is_attached:
                self.forget_what_came_before()

    def take_block(self, block: Block) -> None:
        end = block.offset + len(block.data)
        fitting = [life for life in self.lives if life.generation in (None, block.generation) and life.content[block.offset : end] == block.data]
        exact = [life for life in fitting if life.generation == block.generation] or fitting
        first = next((life for life in exact if life.covered == block.offset), None)
        assert first is not None, f"repeated or never written: {block}"
        assert block.line == first.content[: block.offset].count(b"\n") + 1
        first.generation, first.covered = block.generation, end

    def take_gap(self, gap: Gap) -> None:
        self.gaps.append(gap)
        if gap.reason == "line-cut":
            assert gap.from_offset is not None
            assert gap.to_offset is not None
            fitting = [
                each
                for each in self.lives
                if each.covered == gap.from_offset
                and each.content[gap.from_offset - 200 : gap.from_offset].count(b"\n") == 0
                and len(each.content) >= gap.to_offset
            ]
            max(fitting, key=lambda life: life.generation or 0).covered = gap.to_offset

    @invariant()
    def nothing_is_invented(self) -> None:
        assert all(life.covered <= len(life.content) for life in self.lives)

    def teardown(self) -> None:
        try:
            if self.tail is not None and self.lives:
                self.read_to_the_end()
                for life in self.lives:
                    self.check(life)
        finally:
            if self.tail is not None:
                self.tail.close()
            for writer in [self.writer, *(each[0] for each in self.late)]:
                if writer >= 0:
                    os.close(writer)
            shutil.rmtree(self.directory)

    def read_to_the_end(self) -> None:
        assert self.tail is not None
        if self.life is None:
            self.start_writer()  # a rotated log without a successor is waited for
        for _ in range(30):
            for _ in range(10_000):
                self.take(self.tail.step(self.now_s))
                if self.tail.idle:
                    break
            self.now_s += 1

    def check(self, life: Life) -> None:
        if life.covered == len(life.content):
            return
        story = f"life {life.number}: {life.covered} of {len(life.content)} bytes covered, gone from {life.gone_from}, {self.gaps}"
        # Late lines into a file that was deleted then make it look younger than its followers; the gap says so.
        is_out_of_order = self.has_late_lines and life.generation is None and None in [gap.from_offset for gap in self.gaps]
        # Nothing was delivered of it, and its first bytes are those of its follower: no trace tells the two apart.
        is_out_of_order |= self.limits.head_bytes == 24 and life.covered == 0
        is_gone = life.gone_from is not None and life.covered >= life.gone_from
        assert is_gone or is_out_of_order, f"lost although it is there: {story}"
        # A life that was never opened has no offsets of its own: the open end of a gap stands for it.
        starts = [gap.from_offset or 0 for gap in self.gaps if gap.to_offset is None]
        said = [start for start in starts if start <= life.covered or life.generation is None]
        assert said or life.may_vanish_unsaid or is_out_of_order, f"lost without a word: {story}"


TestTail = pytest.mark.slow(TailMachine.TestCase)
TestTail.settings = settings(
    max_examples=RUNS or 2000,
    derandomize=not RUNS,
    database=None,
    stateful_step_count=30,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
