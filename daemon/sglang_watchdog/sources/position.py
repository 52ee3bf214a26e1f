"""Places to resume from: what a source needs to go on exactly behind the last byte that was dealt with.

A position is plain JSON, small, and complete: stored in the same transaction as what came of the bytes before it, it
makes delivery exactly-once over a kill at any moment.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from ..model.observation import Json


class UnknownPosition(ValueError):
    """A stored position is of another kind or version than this source can read; start as if there were none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMark:
    """How far one file was read, and how to know the file again when it was renamed, copied or packed.

    `offset` (unpacked bytes) and `line` (from 1) stand behind the last byte delivered. `head` is the digest of the
    first `head_length` bytes, `tail` that of the `tail_length` bytes before `offset`. `inside` is "" between lines,
    "piece" when the beginning of the line at `offset` was delivered, "skip" when the rest of that line is being left
    out. `modified_ns` is the file's mtime when last read; `read_until_ns` the newest such time of older files that
    were read to their end and let go; `is_copy` marks the copy that a copytruncate left behind.
    """

    path: str
    device: int
    inode: int
    offset: int = 0
    line: int = 1
    generation: int = 0
    head: str = ""
    head_length: int = 0
    tail: str = ""
    tail_length: int = 0
    inside: str = ""
    modified_ns: int = 0
    is_copy: bool = False
    read_until_ns: int = 0

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode: unique among the files that exist, reused after a file is gone."""
        return (self.device, self.inode)


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPosition:
    """The files being read, oldest first: the newest, and before it rotated ones that may still get late lines."""

    files: tuple[FileMark, ...]

    def to_json(self) -> dict[str, Json]:
        """Return a JSON object for `position_from_json`."""
        return {"kind": "tail", "version": 1, "files": [asdict(mark) for mark in self.files]}


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalPosition:
    """Behind the entry with this cursor. `line` and `offset` count the entries and bytes handed over so far."""

    cursor: str
    line: int = 1
    offset: int = 0
    generation: int = 0

    def to_json(self) -> dict[str, Json]:
        """Return a JSON object for `position_from_json`."""
        return {"kind": "journal", "version": 1, **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPosition:
    """Behind the kernel record `sequence` of the boot `boot`; the sequence begins anew at each boot."""

    boot: str
    sequence: int
    line: int = 1
    offset: int = 0

    def to_json(self) -> dict[str, Json]:
        """Return a JSON object for `position_from_json`."""
        return {"kind": "kernel", "version": 1, **asdict(self)}


SourcePosition: TypeAlias = TailPosition | JournalPosition | KernelPosition


def position_from_json(stored: Mapping[str, Any]) -> SourcePosition:
    """Return the position that `to_json` wrote.

    Raises:
        UnknownPosition: another kind or version, or fields are missing.
    """
    fields = {key: value for key, value in stored.items() if key not in ("kind", "version")}
    kind = (stored.get("kind"), stored.get("version"))
    try:
        if kind == ("tail", 1):
            return TailPosition(files=tuple(FileMark(**mark) for mark in fields["files"]))
        if kind == ("journal", 1):
            return JournalPosition(**fields)
        if kind == ("kernel", 1):
            return KernelPosition(**fields)
    except (KeyError, TypeError) as error:
        raise UnknownPosition(f"stored position cannot be read ({error}); start from the beginning") from error
    raise UnknownPosition(f"stored position is of kind {kind[0]!r}, version {kind[1]!r}; start from the beginning")
