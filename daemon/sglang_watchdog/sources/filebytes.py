"""Bytes of a log file by offset, whether it is plain or packed.

Both readers answer `read(length, at)` with what stands at `at`: shorter at the end, empty behind it.
"""

import bz2
import gzip
import lzma
import os
import zlib
from typing import IO, Protocol

_SKIP_BYTES = 1 << 20
_KEPT_HEAD_BYTES = 4096


class FileBytes(Protocol):
    """An opened file."""

    damaged: str  # why the file ends early, "" if it does not

    def read(self, length: int, at: int) -> bytes:
        """Return up to `length` unpacked bytes from offset `at`. Raises OSError when the file cannot be read."""
        ...

    def stat(self) -> os.stat_result:
        """Return the state of the opened file itself, wherever it was moved."""
        ...

    def data_from(self, at: int) -> int:
        """Return the first offset at or behind `at` that may hold data; what lies before is a hole."""
        ...

    def close(self) -> None:
        """Let go of the file."""
        ...


class PlainBytes:
    """A plain file: every read asks the kernel, so a changed file is seen at once."""

    def __init__(self, path: str) -> None:
        """Open `path`. Raises OSError."""
        # O_NONBLOCK: a FIFO put at the path must not stop us in open().
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        self.damaged = ""

    def read(self, length: int, at: int) -> bytes:
        """See FileBytes."""
        return os.pread(self._fd, length, at)

    def stat(self) -> os.stat_result:
        """See FileBytes."""
        return os.fstat(self._fd)

    def data_from(self, at: int) -> int:
        """See FileBytes."""
        try:
            return os.lseek(self._fd, at, os.SEEK_DATA)
        except OSError:
            return at  # ENXIO: no data behind `at`; EINVAL: the file system knows no holes

    def close(self) -> None:
        """See FileBytes."""
        os.close(self._fd)


class PackedBytes:
    """A gzip, bzip2 or xz file, unpacked forwards; going back starts over. A damaged end is an end, and said in
    `damaged`.
    """

    def __init__(self, path: str) -> None:
        """Open `path`. Raises OSError."""
        self._path = path
        self._raw = open(path, "rb")  # noqa: SIM115 - lives as long as this object
        self.damaged = ""
        self._begin()

    def _begin(self) -> None:
        self._raw.seek(0)
        self._stream = _unpacker(self._path, self._raw)
        self._window = b""
        self._window_at = 0
        self._ended = False

    def read(self, length: int, at: int) -> bytes:
        """See FileBytes."""
        if at < self._window_at:
            self._begin()
        while not self._ended and self._window_at + len(self._window) < at + length:
            more = self._unpack(max(_SKIP_BYTES, length))
            keep_from = min(at, self._window_at + len(self._window))
            if keep_from - self._window_at > _KEPT_HEAD_BYTES:
                self._window = self._window[keep_from - self._window_at :]
                self._window_at = keep_from
            self._window += more
        start = at - self._window_at
        return self._window[start : start + length] if start >= 0 else b""

    def _unpack(self, length: int) -> bytes:
        try:
            more = self._stream.read1(length)  # read() would drop what it unpacked before a damaged spot
        except (EOFError, OSError, zlib.error, lzma.LZMAError, ValueError) as error:
            self.damaged = f"packed file is damaged or incomplete: {error}"
            more = b""
        self._ended = not more
        return more

    def stat(self) -> os.stat_result:
        """See FileBytes."""
        return os.fstat(self._raw.fileno())

    def data_from(self, at: int) -> int:
        """See FileBytes."""
        return at

    def close(self) -> None:
        """See FileBytes."""
        self._raw.close()


def open_bytes(path: str) -> FileBytes:
    """Open a plain or packed file by the end of its name. Raises OSError, also for packings Python cannot read."""
    if path.endswith((".gz", ".bz2", ".xz")):
        return PackedBytes(path)
    if path.endswith(".zst"):
        raise OSError(f"{path}: zstd is not supported; unpack it to read it")
    return PlainBytes(path)


def _unpacker(path: str, raw: IO[bytes]) -> bz2.BZ2File | lzma.LZMAFile | gzip.GzipFile:
    if path.endswith(".bz2"):
        return bz2.BZ2File(raw)
    if path.endswith(".xz"):
        return lzma.LZMAFile(raw)
    return gzip.GzipFile(fileobj=raw)
