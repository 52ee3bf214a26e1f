"""What a source tells about itself: for /api/v1/sources, `sources` and `doctor`."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """Where one source stands. `why_not` says why nothing can be read and what to do, "" when all is well.

    Bytes and lines are those delivered since the start of this process; `offset`, `line` and `size_bytes` belong to the
    newest file. `lag_bytes` is what is written and not yet delivered, None when that cannot be known.
    """

    name: str
    kind: str  # file, journal, kmsg, stdin, process
    path: str = ""
    readable: bool = False
    why_not: str = ""
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
