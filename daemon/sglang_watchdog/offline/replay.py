"""Plays captures into files as if they happened now: log and samples together, in the order of event time.

Everything stamped before a moment is on disk before anything stamped after it, so that a reader who sees a stamp in one file finds
all that came before it in the other.
"""

import gzip
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import merge
from pathlib import Path
from typing import IO, Final

from ..parse.zone import Zone

_STAMP: Final = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?=[\].,: ])")
_FORMAT: Final = "%Y-%m-%d %H:%M:%S"


class NotACapture(Exception):
    """The folder holds no log to play."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One physical line, or one sample, and when it happened (Unix seconds)."""

    at_s: float
    data: bytes
    is_sample: bool


@dataclass(frozen=True, slots=True)
class Capture:
    """A recorded run: a log and, where there is one, its telemetry."""

    log: Path
    samples: Path | None

    @classmethod
    def at(cls, path: Path) -> "Capture":
        """A capture folder (server.log and nvml.jsonl, either may be .gz) or a log file alone.

        Raises:
            NotACapture: with what was looked for.
        """
        if path.is_file():
            return cls(path, None)
        log = _either(path, "server.log")
        if log is None:
            raise NotACapture(f"{path}: holds no server.log (or server.log.gz); a capture is a folder with one, or a log file")
        return cls(log, _either(path, "nvml.jsonl"))

    def pieces(self, zone: Zone) -> Iterator[Piece]:
        """All lines and samples in time order; undated lines go with the line before them."""
        samples = self._samples() if self.samples is not None else iter(())
        yield from merge(self._lines(zone), samples, key=lambda piece: (piece.at_s, piece.is_sample))

    def _lines(self, zone: Zone) -> Iterator[Piece]:
        first = self._first_stamp(zone)
        at_s = first if first is not None else time.time()
        with _open(self.log) as file:
            for line in file:
                stamps = _STAMP.findall(line)
                if stamps:
                    at_s = max(at_s, _unix(stamps[0], zone) or at_s)
                yield Piece(at_s, line, False)

    def _first_stamp(self, zone: Zone) -> float | None:
        with _open(self.log) as file:
            for line in file:
                if stamps := _STAMP.findall(line):
                    return _unix(stamps[0], zone)
        return None

    def _samples(self) -> Iterator[Piece]:
        assert self.samples is not None
        with _open(self.samples) as file:
            for line in file:
                if line.strip():
                    yield Piece(float(json.loads(line)["ts"]), line, True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast: `speed` event seconds in one second; waits longer than `longest_wait_s` (of real time) are cut."""

    speed: float = 1.0
    longest_wait_s: float = 2.0


def play(
    captures: list[Capture],
    into: Path,
    samples_into: Path | None,
    *,
    zone: Zone,
    pace: Pace,
    shift_to_now: bool = False,
    gap_s: float = 5.0,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[int, int]:
    """Play captures one after another into growing files; returns the numbers of lines and samples written.

    Each capture after the first is moved in time so that it begins `gap_s` after the end of the one before it. Times are moved by
    whole seconds, in the stamps of log lines and in the samples alike; nothing else of a line changes.
    """
    lines = samples = 0
    end_s = float(int(time.time())) - gap_s if shift_to_now else None
    with into.open("ab", buffering=0) as log, _maybe(samples_into) as telemetry:
        for capture in captures:
            shift_s, began, begun_s = None, time.monotonic(), 0.0
            say(f"playing {capture.log.parent.name}")
            newest = 0.0
            for piece in capture.pieces(zone):
                if shift_s is None:
                    shift_s = 0.0 if end_s is None else float(round(end_s + gap_s - piece.at_s))
                    begun_s = piece.at_s
                began = _wait(piece.at_s - begun_s, began, pace)
                newest = max(newest, piece.at_s)
                if piece.is_sample:
                    if telemetry is not None:
                        telemetry.write(_shift_sample(piece.data, shift_s))
                        samples += 1
                else:
                    log.write(_shift_line(piece.data, shift_s))
                    lines += 1
            end_s = newest + (shift_s or 0.0)
    return lines, samples


def _wait(event_s: float, began: float, pace: Pace) -> float:
    """Sleep until an event is due; a long wait is cut, and the clock moved so that what follows keeps its distance."""
    due = began + event_s / pace.speed
    wait = due - time.monotonic()
    if wait > pace.longest_wait_s:
        began -= wait - pace.longest_wait_s
        wait = pace.longest_wait_s
    if wait > 0:
        time.sleep(wait)
    return began


def _shift_line(line: bytes, shift_s: float) -> bytes:
    if not shift_s:
        return line

    def moved(match: re.Match[bytes]) -> bytes:
        try:
            stamp = datetime.strptime(match[1].decode(), _FORMAT) + timedelta(seconds=shift_s)
        except (ValueError, OverflowError):
            return match[0]
        return b"[" + stamp.strftime(_FORMAT).encode()

    return _STAMP.sub(moved, line)


def _shift_sample(line: bytes, shift_s: float) -> bytes:
    if not shift_s:
        return line
    sample = json.loads(line)
    sample["ts"] = round(sample["ts"] + shift_s, 3)
    return json.dumps(sample, separators=(",", ":")).encode() + b"\n"


def _unix(stamp: bytes, zone: Zone) -> float | None:
    try:
        return zone.unix(datetime.strptime(stamp.decode(), _FORMAT))
    except (ValueError, OverflowError):
        return None


def _either(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


class _maybe:
    """A file opened for appending, or nothing."""

    def __init__(self, path: Path | None) -> None:
        self._file = path.open("ab", buffering=0) if path is not None else None

    def __enter__(self) -> "IO[bytes] | None":
        return self._file

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
