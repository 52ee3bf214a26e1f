"""Parent and title of a process on a GPU, from /proc. Never a command line: those hold keys.

setproctitle of SGLang's schedulers overwrites argv, so `cmdline` begins with `sglang::scheduler_TP0`; `comm` is cut to
15 characters and looks alike for all ranks. Of other programs only `comm` is taken.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_YOUNG: Final = 30  # looked up again at each of this many first sightings: a title is set some time after the start
_AGAIN: Final = 20  # and then at every so many sightings, for a parent that died


@dataclass(slots=True)
class _Known:
    sightings: int
    ppid: int | None
    name: str | None


class ProcessNames:
    """Looks up and remembers processes; `root` is /proc."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = root
        self._known: dict[int, _Known] = {}

    def look_up(self, pid: int) -> tuple[int | None, str | None]:
        """Return (parent's pid, title); (None, None) if the process is not visible, as in another pid namespace."""
        known = self._known.setdefault(pid, _Known(0, None, None))
        known.sightings += 1
        if known.sightings <= _YOUNG or known.sightings % _AGAIN == 0:
            known.ppid, known.name = self._read(pid)
        return known.ppid, known.name

    def forget_all_but(self, pids: set[int]) -> None:
        """Drop processes that have left the GPUs, so that a reused pid is looked up anew."""
        for pid in self._known.keys() - pids:
            del self._known[pid]

    def _read(self, pid: int) -> tuple[int | None, str | None]:
        folder = self._root / str(pid)
        try:
            stat = (folder / "stat").read_bytes()
            title = (folder / "cmdline").read_bytes()[:200]
        except OSError:
            return None, None
        comm, _, rest = stat.partition(b"(")[2].rpartition(b")")
        fields = rest.split()
        first = title.split(b"\0", 1)[0].split(b" ", 1)[0]
        name = first if first.startswith(b"sglang::") else comm
        return (int(fields[1]) if len(fields) > 1 else None), name.decode("utf-8", "replace") or None
