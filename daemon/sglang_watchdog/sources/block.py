"""What a byte source hands over: a block of whole lines, and where in the source it stands."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Whole lines, each ended by a newline (the last line of a finished file may lack it).

    `offset` and `line` (counted from 1) tell where the block begins in its file, unpacked. `arrived_s` is the wall clock at
    the time of reading, for zone inference; `generation` rises when the source goes on in another file.
    """

    source: str
    data: bytes
    offset: int
    line: int
    arrived_s: float
    generation: int = 0
