"""The rotated files beside a log, in the order in which they were written.

Names tell the order where all of them follow one scheme (`.1` is newer than `.2`, `-20260219` older than `-20260220`),
since a stepped clock or a late writer spoils times; else the time of the last write does.
"""

import os
import re
import stat
from dataclasses import dataclass

PACKED_SUFFIXES = (".gz", ".bz2", ".xz")
# logrotate (.1, -20260219, .1.gz, `extension`), Python's handlers (.1, .2026-02-19), docker (.1, .1.gz), kubelet
# (.20260219-101500, .20260219-101500.gz), savelog (.0), and hands (.old, .bak).
_MIDDLE = r"(?:[._-](?:\d[\d._:T@+-]*|old|bak|prev))"
_PACKED = r"\.(?:gz|bz2|xz|zst)"
_SUFFIX = re.compile(rf"{_MIDDLE}+(?:{_PACKED})?|{_PACKED}")
_DIGITS = re.compile(r"\d+")
_COUNTER = re.compile(r"[._-](\d{1,4})")
_LISTING_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Candidate:
    """A regular file that belongs to a log. `is_current`: it stands at the log's own path."""

    path: str
    device: int
    inode: int
    size: int
    modified_ns: int
    is_current: bool = False

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode."""
        return (self.device, self.inode)

    @property
    def is_packed(self) -> bool:
        """Compressed: its bytes and its size are not those of the log."""
        return self.path.endswith((*PACKED_SUFFIXES, ".zst"))


def is_rotation_of(name: str, base: str) -> bool:
    """Say whether the file name `name` is what a rotation makes of `base` (both without directory)."""
    if name.startswith(base) and _SUFFIX.fullmatch(name, len(base)):
        return True
    stem, dot, extension = base.rpartition(".")
    if not dot or not name.startswith(stem):
        return False
    return re.fullmatch(rf"{_MIDDLE}+\.{re.escape(extension)}(?:{_PACKED})?", name[len(stem) :]) is not None


def rotated_and_current(log_path: str, also: str = "") -> list[Candidate] | None:
    """Return the rotated files of `log_path`, oldest first, and behind them the file at the path itself if there is
    one.

    `also` is the resolved path of the file read so far: after a symlink was turned to another directory, rotated files
    of both count. Returns None while the directory changes under our eyes; ask again.
    """
    before = _list(log_path, also)
    for _ in range(_LISTING_ATTEMPTS):
        after = _list(log_path, also)
        if [(each.path, each.identity) for each in before] == [(each.path, each.identity) for each in after]:
            return after
        before = after
    return None


def _list(log_path: str, also: str) -> list[Candidate]:
    real = os.path.realpath(log_path)
    is_link = os.path.islink(log_path)
    rotated: dict[str, Candidate] = {}
    current: Candidate | None = None
    for place in dict.fromkeys(each for each in (also, real) if each):
        directory, base = os.path.split(place)
        for name in _names(directory):
            path = os.path.join(directory, name)
            # A link that is turned from server-19.log to server-20.log: names of one shape are its rotations.
            same_shape = is_link and _DIGITS.sub("#", _plain_name(name)) == _DIGITS.sub("#", base)
            if path == real:
                current = _candidate(path, is_current=True)
            elif is_rotation_of(name, base) or same_shape or path == also:
                found = _candidate(path)
                if found is not None:
                    rotated[path] = found
    ordered = _in_order([each for each in rotated.values() if not _is_being_packed(each, rotated)], real)
    return [*ordered, current] if current is not None else ordered


def _is_being_packed(candidate: Candidate, among: dict[str, Candidate]) -> bool:
    """The packed file is still being written while the plain one stands beside it."""
    return candidate.is_packed and candidate.path.rpartition(".")[0] in among


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory or "."))
    except OSError:
        return []  # the directory itself is late or unreadable: the caller's stat says why


def _candidate(path: str, *, is_current: bool = False) -> Candidate | None:
    try:
        found = os.stat(path)
    except OSError:
        return None  # moved on between listing and stat: the second listing shows it
    if not stat.S_ISREG(found.st_mode):
        return None
    return Candidate(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, is_current)


def _in_order(candidates: list[Candidate], real: str) -> list[Candidate]:
    names = {each: _plain_name(each.path) for each in candidates}
    base = os.path.basename(real)
    counters = {each: _counter(name, base) for each, name in names.items()}
    one_directory = len({os.path.dirname(each.path) for each in candidates}) <= 1
    if one_directory and all(counter is not None for counter in counters.values()):
        return sorted(candidates, key=lambda each: -(counters[each] or 0))
    if one_directory and len({_DIGITS.sub(lambda run: "#" * len(run[0]), name) for name in names.values()}) == 1:
        return sorted(candidates, key=lambda each: names[each])
    return sorted(candidates, key=lambda each: (each.modified_ns, names[each]))


def _plain_name(path: str) -> str:
    name = os.path.basename(path)
    return name.rpartition(".")[0] if name.endswith((*PACKED_SUFFIXES, ".zst")) else name


def _counter(name: str, base: str) -> int | None:
    found = _COUNTER.fullmatch(name[len(base) :]) if name.startswith(base) else None
    return int(found[1]) if found else None
