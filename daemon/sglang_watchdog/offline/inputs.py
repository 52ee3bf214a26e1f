"""Opens what `check` is given: plain and packed files and standard input, as blocks of whole lines in bounded memory."""

import bz2
import gzip
import io
import lzma
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

from ..sources.block import Block

BLOCK_BYTES: Final = 256 << 10
# A longer line is handed on in pieces without a newline; the scanner cuts it with a mark and forgets the rest.
LINE_BYTES: Final = 4 << 20
# By the first bytes, not by the name: copies lose their endings.
_PACKINGS: Final = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


class Unreadable(Exception):
    """A log cannot be read; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Input:
    """One log of the command line."""

    name: str
    path: Path | None  # None: standard input
    size: int | None  # bytes on disk, for the progress bar
    mtime_s: float | None
    packing: str = ""  # gzip, bzip2, xz


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
    return replace(one, name=f"{one.path.parent.name}/{one.path.name}")


def _input(argument: str) -> Input:
    if argument == "-":
        head = sys.stdin.buffer.peek(6) if isinstance(sys.stdin.buffer, io.BufferedReader) else b""
        return Input("stdin", None, None, None, _packing("standard input", head))
    path = Path(argument)
    try:
        about = path.stat()
        if stat.S_ISDIR(about.st_mode):
            raise Unreadable(f"{argument}: is a folder; name the log files in it, for example {argument.rstrip('/')}/*.log")
        with path.open("rb") as file:
            head = file.read(6)
    except FileNotFoundError:
        raise Unreadable(f"{argument}: no such file; `sglang-watchdog doctor` lists the logs of running servers") from None
    except PermissionError:
        raise Unreadable(f"{argument}: no permission to read it; run as its owner or in its group") from None
    except OSError as error:
        raise Unreadable(f"{argument}: cannot be read ({error.strerror or error})") from None
    return Input(path.name, path, about.st_size, about.st_mtime, _packing(argument, head))


def _packing(name: str, head: bytes) -> str:
    packing = next((packing for mark, packing in _PACKINGS.items() if head.startswith(mark)), "")
    if packing == "zstd":
        raise Unreadable(f"{name}: packed with zstd, which Python cannot unpack; give it unpacked: zstd -dc {name} | sglang-watchdog check -")
    return packing


def blocks(one: Input) -> Iterator[Block]:
    """Whole lines in blocks. Raises Unreadable if reading fails in the middle (a damaged packed file, a lost disk)."""
    try:
        with ExitStack() as open_files:
            yield from _blocks(one.name, _opened(one, open_files))
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise Unreadable(f"{one.name}: reading stopped ({error}); what stood before it was judged") from None


def _opened(one: Input, open_files: ExitStack) -> io.BufferedIOBase:
    """The unpacked content; what was opened is closed with `open_files`, standard input never."""
    file: IO[bytes] = sys.stdin.buffer if one.path is None else open_files.enter_context(one.path.open("rb"))
    match one.packing:
        case "gzip":
            return gzip.GzipFile(fileobj=file)
        case "bzip2":
            return bz2.BZ2File(file)
        case "xz":
            return lzma.LZMAFile(file)
    assert isinstance(file, io.BufferedIOBase)
    return file


def _reads(file: io.BufferedIOBase) -> Iterator[bytes]:
    """Full blocks to the end; what was unpacked before a damaged spot still comes, which `read` would drop."""
    parts: list[bytes] = []
    try:
        while part := file.read1(BLOCK_BYTES):
            parts.append(part)
            if sum(map(len, parts)) >= BLOCK_BYTES:
                yield b"".join(parts)
                parts = []
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        yield b"".join(parts)
        raise
    yield b"".join(parts)


def _blocks(name: str, file: io.BufferedIOBase) -> Iterator[Block]:
    held = b""
    offset, line = 0, 1
    for read in _reads(file):
        data = held + read if held else read
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
    if held:
        yield Block(source=name, data=held, offset=offset, line=line, arrived_s=0.0)
