"""In which zone a log's stamps are, told by when its file was written; watched for as long as it is read.

A line is in its file moments after its stamp was made, so the file's time shows the zone: at the start (a container that writes
UTC on a machine that does not), and later when the server's clock is put forward or back for the summer.
"""

import os
import re
import stat
from datetime import UTC, datetime
from typing import Final

from ..parse.stamp import StampReader
from ..parse.zone import Zone, measured
from ..sources.block import Block
from ..sources.hints import REMOTE_FILE_SYSTEMS, file_system_of
from ..sources.position import TailPosition

_STAMP: Final = re.compile(rb"^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[^\]]{0,40}\]", re.MULTILINE)
_LAG_S: Final = 5.0  # from a stamp to the file's time; more tells of buffering or of a copied file, and of no zone
_TAIL_BYTES: Final = 64 << 10
_AGREE: Final = 3  # writings in a row: one in ninety of a copied or late file falls on a quarter of an hour by chance
_WHOLE: Final = 128 << 10  # a shorter block ended where the file did


class ZoneWatch:
    """The zone of one log's stamps. One that was given stays; a difference is only shown."""

    def __init__(self, zone: Zone, *, how: str) -> None:
        """`how` the zone is known: "configured", or "machine" for a guess."""
        self.zone = zone
        self._how = how
        self._told = ""
        self._arrived: list[str] = []  # the zones that the last writings speak for, while the zone that was given stays

    @property
    def arrival(self) -> str | None:
        """The zone in which new lines arrive, once several in a row agree on it; None before."""
        return self._arrived[0] if len(self._arrived) == _AGREE and len(set(self._arrived)) == 1 else None

    @property
    def text(self) -> str:
        """The zone and how it is known, and what speaks against it."""
        return f"{self.zone.name} ({self._how}{self._told})"

    def look(self, path: str) -> None:
        """Before a file is read: what its newest stamp and its time say. Network file systems and pipes are not waited for."""
        if file_system_of(path) in REMOTE_FILE_SYSTEMS:
            return
        try:
            with open(path, "rb", opener=_at_once) as file:
                about = os.fstat(file.fileno())
                if not stat.S_ISREG(about.st_mode):
                    return
                file.seek(max(0, about.st_size - _TAIL_BYTES))
                self._compare(file.read(_TAIL_BYTES), about.st_mtime)
        except OSError:
            return  # its source says what is wrong with it

    def see(self, block: Block, *, is_new: bool = False) -> bool:
        """Before a block is scanned: True if its stamps are in another zone than those before. `is_new`: it was written just now."""
        after = block.after
        if not isinstance(after, TailPosition) or not after.files or len(block.data) >= _WHOLE:
            return False
        return self._compare(block.data, after.files[-1].modified_ns / 1e9, is_new=is_new)

    def measured_by(self, zone: Zone) -> None:
        """A container's or the journal's own times told it."""
        self.zone, self._how, self._told = zone, "framing", ""

    def _compare(self, data: bytes, written_s: float, *, is_new: bool = False) -> bool:
        newest = None
        for newest in _STAMP.finditer(data[-_TAIL_BYTES:]):  # noqa: B007 - the last one
            pass
        stamp_s = StampReader(Zone.utc()).read(newest[1]) if newest else None
        found = measured(stamp_s, written_s, within_s=_LAG_S) if stamp_s is not None else None
        if is_new and stamp_s is not None:
            self._arrived = [*self._arrived, found.name][-_AGREE:] if found is not None else []
        if stamp_s is None or found is None:
            return False
        local = datetime.fromtimestamp(stamp_s, UTC).replace(tzinfo=None)
        if found.info.utcoffset(None) == self.zone.info.utcoffset(local):
            self._told = ""
            self._arrived = [self.zone.name] * len(self._arrived)
            self._how = "file time" if self._how == "machine" else self._how
            return False
        if self.zone.certain:
            self._told = f"; the file's time says {found.name}"
            return False
        since = "" if self._how == "machine" else f" since {datetime.fromtimestamp(written_s, UTC):%Y-%m-%dT%H:%M:%SZ}, {self.zone.name} before"
        self.zone, self._how = found, f"file time{since}"
        return True


def _at_once(path: str, flags: int) -> int:
    """Open without waiting for whoever writes: a named pipe would hold the whole daemon."""
    return os.open(path, flags | os.O_NONBLOCK)
