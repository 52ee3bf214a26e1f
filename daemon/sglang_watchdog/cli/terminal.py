"""What terminals can do: colour, width, a progress bar on standard error."""

import os
import sys
import time
from typing import TextIO


def colour(stream: TextIO) -> bool:
    """Colour on a terminal, unless NO_COLOR (no-color.org) or a dumb terminal says otherwise."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


class ProgressBar:
    """Bytes read of bytes to read, on standard error, only where a person looks and only if it takes a while."""

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._done = 0
        self._shown = False
        self._next_s = time.monotonic() + 0.5
        self._on = sys.stderr.isatty() and bool(total)

    def add(self, count: int) -> None:
        self._done += count
        if not self._on or time.monotonic() < self._next_s or not self._total:
            return
        share = min(1.0, self._done / self._total)
        sys.stderr.write(f"\r{'█' * int(30 * share):<30} {share:4.0%} {self._done / 1e6:,.0f} MB ")
        sys.stderr.flush()
        self._shown, self._next_s = True, time.monotonic() + 0.1

    def close(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
