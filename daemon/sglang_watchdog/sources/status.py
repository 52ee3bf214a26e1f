"""What a source tells about itself: for /api/v1/sources, `sources` and `doctor`."""

from dataclasses import dataclass, field
from typing import Final

NOT_STARTED: Final = "not started"  # the `why_not` of a source that was not looked at yet


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """Where one source stands. `why_not` says why nothing can be read, `do` what helps; "" when all is well. `is_late`: what is to be
    read is not there yet and may come by itself; `has_ended`: its writer is done.

    Bytes and lines are those delivered since the start of this process; `offset`, `line` and `size_bytes` belong to the
    newest file. `lag_bytes` is what is written and not yet delivered, None when that cannot be known.
    """

    name: str
    kind: str  # file, journal, kmsg, stdin, process
    path: str = ""
    readable: bool = False
    why_not: str = ""
    do: str = ""
    is_late: bool = False
    has_ended: bool = False
    device: int | None = None
    inode: int | None = None
    offset: int | None = None
    line: int | None = None
    size_bytes: int | None = None
    lag_bytes: int | None = None
    generation: int = 0
    bytes_read: int = 0
    lines_read: int = 0
    cut_lines: int = 0
    rotations: int = 0
    truncations: int = 0
    gaps: int = 0
    restarts: int = 0  # of a child process or after a failure
    last_read_s: float | None = None
    wake: str = ""  # inotify, poll, stream
    notes: tuple[str, ...] = field(default_factory=tuple)
