"""Cuts a stream that can be read only once (a pipe, a child's output) into whole lines."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes to deliver; `continues` and `was_cut` as in Block."""

    data: bytes
    offset: int
    line: int
    continues: bool = False
    was_cut: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """The rest of a line beyond the cap, not delivered."""

    from_offset: int
    to_offset: int


class LineCutter:
    """Holds the half line at the end of what it was fed; never more than `line_bytes`."""

    def __init__(self, *, line_bytes: int = 1024 * 1024, offset: int = 0, line: int = 1) -> None:
        """Begin at `offset` and `line` of the stream."""
        self._line_bytes = line_bytes
        self._held = bytearray()
        self.offset = offset  # of the first byte not delivered
        self.line = line
        self._inside = ""

    @property
    def holds_half_line(self) -> bool:
        """Something was fed that is not delivered yet."""
        return bool(self._held)

    def feed(self, data: bytes) -> list[Piece | Skipped]:
        """Take what was read, return what is complete."""
        out: list[Piece | Skipped] = []
        if self._inside == "skip":
            data = self._skip(data, out)
        self._held += data
        end = self._held.rfind(b"\n") + 1
        if end:
            out.append(self._take(end, ""))
        if len(self._held) >= self._line_bytes:
            out.append(self._take(self._line_bytes, "skip"))
            rest = bytes(self._held)
            self._held.clear()
            self._skip(rest, out)  # no newline in it: it was looked for above
        return out

    def flush(self) -> list[Piece | Skipped]:
        """Return the half line, because it has waited long enough or the stream ended."""
        return [self._take(len(self._held), "piece")] if self._held else []

    def forget_half_line(self) -> None:
        """Drop the half line: its writer died, and it comes again whole."""
        self._held.clear()

    def _take(self, end: int, inside: str) -> Piece:
        data = bytes(self._held[:end])
        del self._held[:end]
        piece = Piece(data, self.offset, self.line, continues=self._inside == "piece", was_cut=bool(inside))
        self.offset += end
        self.line += data.count(b"\n")
        self._inside = inside
        return piece

    def _skip(self, data: bytes, out: list[Piece | Skipped]) -> bytes:
        end = data.find(b"\n") + 1
        length = end or len(data)
        if length:
            out.append(Skipped(self.offset, self.offset + length))
        self.offset += length
        self.line += bool(end)
        self._inside = "" if end else "skip"
        return data[length:]
