"""`run --record FILE`: what the telemetry source delivers, in the same schema that `check --telemetry` reads.

Bounded: at most `keep` older files of about `max_bytes` each beside the current one (FILE.1 is the newest of them).
Only readings and process titles are written; the sampler never puts command lines into an observation.
"""

import gzip
from pathlib import Path
from typing import IO, Final, cast

from .telemetry_recording import TelemetryObservation, encode

_FLUSH_S: Final = 5.0


class RecordingWriter:
    """Appends observations to a recording and rotates it; compressed if its name ends in .gz (each start adds a member)."""

    def __init__(self, path: Path, *, max_bytes: int = 64 << 20, keep: int = 3) -> None:
        """Open `path` for appending.

        Raises:
            OSError: the file or its folder cannot be written.
        """
        self._path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._flushed_s = 0.0
        self._stream = self._open()

    def write(self, observation: TelemetryObservation) -> None:
        """Append one observation; flushed about every five seconds of event time.

        Raises:
            OSError: disk full or file gone; the caller reports it and stops recording.
        """
        if self._size() >= self._max_bytes:
            self._rotate()
        self._stream.write(encode(observation))
        at_s = getattr(observation, "at_s", None) or self._flushed_s
        if abs(at_s - self._flushed_s) >= _FLUSH_S:
            self._stream.flush()
            self._flushed_s = at_s

    def close(self) -> None:
        """Flush and close."""
        self._stream.close()

    def _open(self) -> IO[bytes]:
        if self._path.name.endswith(".gz"):
            return cast("IO[bytes]", gzip.open(self._path, "ab", compresslevel=6))
        return self._path.open("ab")

    def _size(self) -> int:
        # of a gzip file the bytes on disk count; what its buffer holds (some tens of KiB) does not matter
        return self._path.stat().st_size if self._path.name.endswith(".gz") else self._stream.tell()

    def _rotate(self) -> None:
        self._stream.close()
        for number in range(self._keep, 0, -1):
            older = self._numbered(number)
            if number == self._keep:
                older.unlink(missing_ok=True)
            elif older.exists():
                older.rename(self._numbered(number + 1))
        if self._keep:
            self._path.rename(self._numbered(1))
        else:
            self._path.unlink()
        self._stream = self._open()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
