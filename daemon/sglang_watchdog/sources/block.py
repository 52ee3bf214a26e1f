"""What a byte source hands over: a block of whole lines, and where in the source it stands."""

from dataclasses import dataclass

from .position import SourcePosition


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Whole lines, each ended by a newline (the last line of a finished file may lack it).

    `offset` and `line` (counted from 1) tell where the block begins in its file, unpacked. `arrived_s` is the wall
    clock at the time of reading, for zone inference; `generation` rises when the source goes on in another file.

    `continues`: the first line of `data` is the rest of a line whose beginning was delivered before. `was_cut`: the
    last line has no newline because it was handed over early (it stood unfinished for too long) or was longer than the
    cap. `before` and `after` are the places to resume from so that this block is delivered again, or is not.
    """

    source: str
    data: bytes
    offset: int
    line: int
    arrived_s: float
    generation: int = 0
    continues: bool = False
    was_cut: bool = False
    before: SourcePosition | None = None
    after: SourcePosition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Nothing to read, but the place to resume from changed: after a gap, a rotation, or the end of an old file."""

    source: str
    after: SourcePosition
