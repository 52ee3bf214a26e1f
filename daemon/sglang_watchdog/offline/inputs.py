"""Opens what `check` is given: plain and gzip files and standard input, as blocks of whole lines in bounded memory."""

import gzip
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from ..sources.block import Block

BLOCK_BYTES: Final = 256 << 10
# A longer line is handed on in pieces without a newline; the scanner cuts it with a mark and forgets the rest.
LINE_BYTES: Final = 4 << 20
_GZIP: Final = b"\x1f\x8b"


class Unreadable(Exception):
    """A log cannot be read; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Input:
    """One log of the command line."""

    name: str
    path: Path | None  # None: standard input
    size: int | None  # bytes on disk, for the progress bar
    mtime_s: float | None
    is_gzip: bool


def open_inputs(arguments: list[str]) -> tuple[list[Input], list[str]]:
    """The logs that can be read, and a message for each that cannot. Names are made unique by their folder."""
    inputs: list[Input] = []
    faults: list[str] = []
    for argument in arguments:
        try:
            inputs.append(_input(argument))
        except Unreadable as fault:
            faults.append(str(fault))
    names = [one.name for one in inputs]
    if len(set(names)) < len(names):
        inputs = [one if one.path is None else _renamed(one) for one in inputs]
    return inputs, faults


def _renamed(one: Input) -> Input:
    assert one.path is not None
    return Input(f"{one.path.parent.name}/{one.path.name}", one.path, one.size, one.mtime_s, one.is_gzip)


def _input(argument: str) -> Input:
    if argument == "-":
        return Input("stdin", None, None, None, False)
    path = Path(argument)
    try:
        about = path.stat()
        if stat.S_ISDIR(about.st_mode):
            raise Unreadable(f"{argument}: is a folder; name the log files in it, for example {argument.rstrip('/')}/*.log")
        with path.open("rb") as file:
            head = file.read(2)
    except FileNotFoundError:
        raise Unreadable(f"{argument}: no such file; `sglang-watchdog doctor` lists the logs of running servers") from None
    except PermissionError:
        raise Unreadable(f"{argument}: no permission to read it; run as its owner or in its group") from None
    except OSError as error:
        raise Unreadable(f"{argument}: cannot be read ({error.strerror or error})") from None
    return Input(path.name, path, about.st_size, about.st_mtime, head == _GZIP)


def blocks(one: Input) -> Iterator[Block]:
    """Whole lines in blocks. Raises Unreadable if reading fails in the middle (a damaged gzip file, a lost disk)."""
    try:
        with _opened(one) as file:
            yield from _blocks(one.name, file)
    except (OSError, EOFError, gzip.BadGzipFile) as error:
        raise Unreadable(f"{one.name}: reading stopped ({error}); what stood before it was judged") from None


def _opened(one: Input) -> IO[bytes]:
    if one.path is None:
        return sys.stdin.buffer
    if one.is_gzip:
        return gzip.open(one.path, "rb")  # type: ignore[return-value]  # GzipFile reads like any file
    return one.path.open("rb")


def _blocks(name: str, file: IO[bytes]) -> Iterator[Block]:
    held = b""
    offset, line = 0, 1
    while True:
        read = file.read(BLOCK_BYTES)
        data = held + read if held else read
        if not read:
            if data:
                yield Block(source=name, data=data, offset=offset, line=line, arrived_s=0.0)
            return
        cut = data.rfind(b"\n") + 1
        if cut == 0 and len(data) < LINE_BYTES:
            held = data
            continue
        if cut == 0:
            cut = len(data)
        yield Block(source=name, data=data[:cut], offset=offset, line=line, arrived_s=0.0)
        offset += cut
        line += data.count(b"\n", 0, cut)
        held = data[cut:]
