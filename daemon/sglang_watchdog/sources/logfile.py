"""One file of a log: reads whole lines from a mark on, and notices when the bytes before the mark are no longer ours.

Nothing that was read but not delivered is kept: a half line is read again when it has grown. So the mark is the whole
state, and going on after a kill is the same code as going on after a nap.
"""

import hashlib
from dataclasses import dataclass, replace

from .filebytes import FileBytes, PlainBytes, open_bytes
from .position import FileMark
from .siblings import Candidate

_SKIP_BLOCKS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes in bytes, times in seconds.

    A file is known by its first `head_bytes` and by the `tail_bytes` before the mark.

    `block_bytes`: one read. `line_bytes`: a longer line is cut there. `flush_s`: a half line that stopped growing for
    so long is handed over. `linger_s`: a rotated file that is quiet for so long is let go.
    """

    block_bytes: int = 256 * 1024  # larger blocks hold up the loop: 1 MiB takes 1-11 ms to scan
    line_bytes: int = 1024 * 1024
    head_bytes: int = 1024
    tail_bytes: int = 128
    flush_s: float = 1.0
    linger_s: float = 10.0
    open_files: int = 16
    settle_s: float = 2.0  # SGLang stamps whole seconds: a line of 12:00:05 may be written at 12:00:05.99
    watermark_every_s: float = 0.5


@dataclass(frozen=True, slots=True)
class Lines:
    """Bytes to deliver: what was read, the marks before and behind it."""

    data: bytes
    before: FileMark
    after: FileMark
    was_cut: bool = False


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Bytes that are not delivered, on purpose: the rest of a line beyond the cap, or a hole of zeros."""

    reason: str
    from_offset: int
    to_offset: int


class Changed(Exception):
    """The file was truncated or written anew: its bytes before the mark are not those that were delivered."""


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


class LogFile:
    """An opened file with its mark."""

    def __init__(self, bytes_: FileBytes, mark: FileMark, limits: Limits) -> None:
        """Read `bytes_` from `mark` on."""
        self._bytes = bytes_
        self._limits = limits
        self.mark = mark
        self._head = b""
        self._tail = b""
        self.quiet_since_s: float | None = None
        self._held_bytes = 0
        self._held_since_s: float | None = None
        self._held_grown_s = 0.0

    @classmethod
    def open(cls, candidate: Candidate, limits: Limits, *, mark: FileMark) -> "LogFile":
        """Open a file from `mark` on, after a look whether it is the one that was marked.

        Raises:
            OSError: it is gone, not ours to read, or no longer the listed one.
            Changed: its bytes are not those before the mark.
        """
        opened = open_bytes(candidate.path)
        try:
            found = opened.stat()
            if (found.st_dev, found.st_ino) != candidate.identity:
                raise FileNotFoundError(2, "another file took its place", candidate.path)
            placed = replace(
                mark,
                path=candidate.path,
                device=found.st_dev,
                inode=found.st_ino,
                modified_ns=max(found.st_mtime_ns, mark.modified_ns),
            )
            log = cls(opened, placed, limits)
            log._verify_all()
            log._learn_head()
        except BaseException:
            opened.close()
            raise
        return log

    @property
    def is_finite(self) -> bool:
        """Nothing can be added to it: packed, or the copy of a copytruncate."""
        return self.mark.is_copy or not isinstance(self._bytes, PlainBytes)

    @property
    def is_packed(self) -> bool:
        """Compressed."""
        return not isinstance(self._bytes, PlainBytes)

    @property
    def holds_half_line(self) -> bool:
        """The last bytes of the file have no newline yet and were not delivered."""
        return self._held_since_s is not None

    @property
    def held_since_s(self) -> float | None:
        """When the half line at the end was first seen."""
        return self._held_since_s

    @property
    def damaged(self) -> str:
        """Why a packed file ends early, or ""."""
        return self._bytes.damaged

    @property
    def size(self) -> int | None:
        """Bytes in the file now; None for packed files."""
        return self._bytes.stat().st_size if isinstance(self._bytes, PlainBytes) else None

    def mark_anew(self, generation: int) -> FileMark:
        """Return the mark of the opened file as if nothing of it had been read."""
        head = self._bytes.read(self._limits.head_bytes, 0)
        return FileMark(
            path=self.mark.path,
            device=self.mark.device,
            inode=self.mark.inode,
            generation=generation,
            head=_digest(head),
            head_length=len(head),
            modified_ns=self._bytes.stat().st_mtime_ns,
        )

    def begin_anew(self, generation: int) -> None:
        """Read the opened file again from its first byte, as another one."""
        self.mark = self.mark_anew(generation)
        self._head, self._tail = b"", b""
        self._held_since_s = None
        self._learn_head()

    def close(self) -> None:
        """Let go of the file."""
        self._bytes.close()

    def _verify_all(self) -> None:
        mark = self.mark
        self._head = self._bytes.read(mark.head_length, 0)
        if mark.head_length and _digest(self._head) != mark.head:
            raise Changed("the first bytes differ")
        self._tail = self._bytes.read(mark.tail_length, mark.offset - mark.tail_length)
        if mark.tail_length and _digest(self._tail) != mark.tail:
            raise Changed("the bytes before the mark differ")
        if mark.offset and not self._bytes.read(1, mark.offset - 1):
            raise Changed("the file is shorter than the mark")

    def _learn_head(self) -> None:
        """Know the file by its first bytes from the moment it is opened, also before they are delivered."""
        if len(self._head) < self._limits.head_bytes:
            self._head = self._bytes.read(self._limits.head_bytes, 0)
            self.mark = replace(self.mark, head=_digest(self._head), head_length=len(self._head))

    def read(self, now_s: float, *, to_the_end: bool = False) -> Lines | LeftOut | None:
        """Return the next lines, or None when nothing is ready; `to_the_end` hands over a half line at once.

        Raises:
            Changed: truncated or rewritten.
            OSError: the file cannot be read.
        """
        data = self._next_bytes(self._limits.block_bytes)
        if not data:
            self._held_since_s = None
            return None
        if self.mark.inside == "skip":
            return self._skip_line(data)
        if data[0] == 0 and self._is_at_beginning():
            return self._skip_hole(data)
        self.quiet_since_s = None
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) == self._limits.block_bytes:
            data = self._next_bytes(self._limits.line_bytes)
            end = data.find(b"\n") + 1
        if end == 0 and len(data) >= self._limits.line_bytes:
            return self._deliver(data[: self._limits.line_bytes], inside="skip")
        if end == 0:
            return self._hold(data, now_s, to_the_end=to_the_end)
        self._held_since_s = None
        return self._deliver(data[:end], inside="")

    def _is_at_beginning(self) -> bool:
        return self.mark.line == 1 and not self.mark.inside

    def _next_bytes(self, length: int) -> bytes:
        """Return what stands behind the mark, after a look at what stands before it, in one read."""
        kept = len(self._tail)
        found = self._bytes.read(kept + length, self.mark.offset - kept)
        if found[:kept] != self._tail:
            raise Changed("the bytes before the mark differ")
        if isinstance(self._bytes, PlainBytes) and self._bytes.read(len(self._head), 0) != self._head:
            raise Changed("the first bytes differ")
        return found[kept:]

    def _hold(self, data: bytes, now_s: float, *, to_the_end: bool) -> Lines | None:
        if self._held_since_s is None or now_s < self._held_since_s:
            self._held_since_s, self._held_grown_s = now_s, now_s
        if len(data) != self._held_bytes:
            self._held_bytes, self._held_grown_s = len(data), now_s
        drawing = data.rfind(b"\r")
        if to_the_end or now_s - self._held_grown_s >= self._limits.flush_s:
            end = len(data)
        elif drawing > 0 and now_s - self._held_since_s >= self._limits.flush_s:
            end = drawing  # a moving progress bar: all drawings but the newest, which may be half drawn
        else:
            return None
        self._held_since_s, self._held_bytes = None, 0
        return self._deliver(data[:end], inside="piece")

    def _deliver(self, data: bytes, *, inside: str) -> Lines:
        before = self.mark
        self._move(data, inside)
        before = replace(before, head=self.mark.head, head_length=self.mark.head_length)
        return Lines(data, before, self.mark, was_cut=bool(inside))

    def _move(self, data: bytes, inside: str) -> None:
        """Put the mark behind `data`."""
        known = min(self._limits.head_bytes, self.mark.offset + len(data))
        if known > len(self._head):
            self._head = (self._head[: self.mark.offset] + data)[:known]
            self.mark = replace(self.mark, head=_digest(self._head), head_length=len(self._head))
        self._tail = (self._tail + data)[-self._limits.tail_bytes :] if len(data) < self._limits.tail_bytes else data[-self._limits.tail_bytes :]
        self.mark = replace(
            self.mark,
            offset=self.mark.offset + len(data),
            line=self.mark.line + data.count(b"\n"),
            inside=inside,
            tail=_digest(self._tail),
            tail_length=len(self._tail),
            modified_ns=self._bytes.stat().st_mtime_ns,
        )

    def _skip_line(self, data: bytes) -> LeftOut:
        started = self.mark.offset
        for _ in range(_SKIP_BLOCKS):
            end = data.find(b"\n") + 1
            self._move(data[:end] if end else data, "" if end else "skip")
            if end:
                break
            data = self._next_bytes(self._limits.block_bytes)
            if not data:
                break
        return LeftOut("line-cut", started, self.mark.offset)

    def _skip_hole(self, data: bytes) -> LeftOut:
        """A writer without O_APPEND goes on at its old offset after a copytruncate; the file system fills in zeros."""
        started = self.mark.offset
        data_at = self._bytes.data_from(started)
        if data_at > started:
            self.mark = replace(self.mark, offset=data_at)
            self._tail = bytes(min(self._limits.tail_bytes, data_at))
            data = self._bytes.read(self._limits.block_bytes, data_at)
        self._move(data[: len(data) - len(data.lstrip(b"\0"))], "")
        self._head = bytes(min(self._limits.head_bytes, self.mark.offset))
        self.mark = replace(self.mark, head=_digest(self._head), head_length=len(self._head))
        return LeftOut("hole", started, self.mark.offset)


def matches(candidate: Candidate, mark: FileMark, limits: Limits) -> bool:
    """Say whether the candidate begins with the bytes delivered up to `mark`; False when it cannot be read."""
    if not mark.head_length or (not candidate.is_packed and candidate.size < mark.offset):
        return False
    try:
        LogFile.open(candidate, limits, mark=mark).close()
    except (OSError, Changed):
        return False
    return True
