"""Decides which lines of a text are worth a closer look, and why. Nothing here splits a line that says nothing."""

import re
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final

from ..parse.access import Answer, kind_of_path
from ..parse.record import RANKS, STAMP
from .patterns import BAR_FAST, BAR_SLOW, DUMP, DUMP_UPDATE, TRACEBACK, PatternSet

# The two lines that a busy server prints all day, in their plain form; every other form goes through split_record.
COMMON: Final = re.compile(
    rb"^(?:\[(" + STAMP + rb")(" + RANKS + rb")\] )?(?:(?<=\] )(Prefill|Decode) batch[.,] ([^\r\n]*)|"
    rb'INFO:     \S+ - "[A-Z]+ ([^\s"]+) HTTP/[\d.]+" (\d{3})(?: [^"\r\n]*)?\r?$)',
    re.MULTILINE,
)
_BATCH: Final = re.compile(rb"(?:Prefill|Decode) batch[.,( ]")
_ACCESS: Final = re.compile(rb' HTTP/[\d.]+" \d{3}')


class Why(IntEnum):
    """Why a line is looked at, in the order in which one line's observations come."""

    DUMP = 0
    TRACEBACK = 1
    BAR = 2
    BATCH = 3
    ACCESS = 4
    PATTERNS = 5


# Where a line begins, why it is looked at, and what is known of it already:
#   BATCH     the match of COMMON, None for an unusual form
#   ACCESS    [raw stamp, Answer, count] of all lines of that stamp and answer, None for an unusual form
#   PATTERNS  the indices of the patterns whose literals it holds
# A line has one mark of each kind, so sorting never compares the third item.
Mark = tuple[int, int, Any]


class Marker:
    """Finds the marks of a text."""

    def __init__(self, patterns: PatternSet) -> None:
        self._patterns = patterns
        own = patterns.own
        self._own = {
            own[DUMP]: Why.DUMP,
            own[DUMP_UPDATE]: Why.DUMP,
            own[TRACEBACK]: Why.TRACEBACK,
            own[BAR_SLOW]: Why.BAR,
            own[BAR_FAST]: Why.BAR,
        }

    def marks(self, text: bytes, *, has_times: bool) -> tuple[list[Mark], int]:
        """Return the marks of a text in the order of its lines, and how many of its access lines have no stamp.

        `has_times`: the framing dates each line.
        """
        marks: list[Mark] = []
        bare = _mark_common(text, marks, has_times=has_times)
        self._mark_found(text, marks)
        marks.sort()
        return marks, bare

    def _mark_found(self, text: bytes, marks: list[Mark]) -> None:
        marked: set[tuple[int, int]] = set()
        indices: dict[int, list[int]] = {}
        for start, literal in self._patterns.search.find(text):
            why = self._own.get(literal)
            if why is not None and (start, why) not in marked:
                marked.add((start, why))
                marks.append((start, why, None))
            if found := self._patterns.patterns_of[literal]:
                indices.setdefault(start, []).extend(found)
        if self._patterns.always:
            for start in _line_starts(text):
                indices.setdefault(start, []).extend(self._patterns.always)
        marks.extend((start, Why.PATTERNS, found) for start, found in indices.items())


def _mark_common(text: bytes, marks: list[Mark], *, has_times: bool) -> int:
    """Mark batch and access lines, answers of the same time, kind and status at the first of them; return the bare ones.

    An access line without a stamp (up to 0.3.6) has its framing's time, or that of the line before; where that one is
    not of the common forms it is looked up later, once for each run of such lines.
    """
    counted: dict[tuple[bytes | int, str, bytes], list[Any]] = {}
    batches = accesses = bare = 0
    time_of: bytes | int = b""  # of the common line before: its stamp, or where a run without stamps begins
    end = -2
    for found in COMMON.finditer(text):
        stamp, _, batch, _, path, status = found.groups()
        start = found.start()
        if stamp is not None:
            time_of = stamp
        else:
            bare += 1
            if has_times or start > end + 1:
                time_of = start
        end = found.end()
        if batch is not None:
            batches += 1
            marks.append((start, Why.BATCH, found))
            continue
        accesses += 1
        key = (time_of, kind_of_path(path), status)
        seen = counted.get(key)
        if seen is None:
            counted[key] = seen = [b"" if isinstance(time_of, int) else time_of, Answer(key[1], int(status)), 0]
            marks.append((start, Why.ACCESS, seen))
        seen[2] += 1
    if text.count(b"Prefill batch") + text.count(b"Decode batch") != batches:
        marks.extend((start, Why.BATCH, None) for start in _unusual(text, _BATCH))
    if text.count(b" HTTP/") != accesses:
        marks.extend((start, Why.ACCESS, None) for start in _unusual(text, _ACCESS))
    return bare


def _unusual(text: bytes, needle: re.Pattern[bytes]) -> Iterator[int]:
    """Yield the lines that hold a needle and are not of the common form."""
    at = 0
    while found := needle.search(text, at):
        start = text.rfind(b"\n", 0, found.start()) + 1
        end = text.find(b"\n", found.end())
        if not COMMON.match(text, start):
            yield start
        if end < 0:
            return
        at = end + 1


def _line_starts(text: bytes) -> Iterator[int]:
    at = 0
    while at < len(text):
        yield at
        at = text.find(b"\n", at) + 1 or len(text)
