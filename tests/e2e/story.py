"""One short real story for tests of the daemon around it: a server that is healthy for 24 lines, then says that its logits are NaN."""

from pathlib import Path
from typing import Final

from labels import all_cases

from .daemon import RunningDaemon

TOPIC: Final = "quality.nan"
_HEALTHY: Final = 24


def lines() -> tuple[bytes, bytes]:
    """The healthy beginning, and what comes then."""
    case = next(case for case in all_cases() if case.folder.name == "quality-nan-in-logits")
    every = case.logs[0].read_bytes().splitlines(keepends=True)
    return b"".join(every[:_HEALTHY]), b"".join(every[_HEALTHY:])


def append(log: Path, data: bytes) -> None:
    with log.open("ab") as file:
        file.write(data)


def fires(daemon: RunningDaemon) -> bool:
    return bool(daemon.all("findings", f"&topic={TOPIC}&state=firing"))
