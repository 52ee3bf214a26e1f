"""One daemon for one state folder: two would write one ledger and take up each other's positions."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

log = structlog.get_logger()


class AlreadyWatched(Exception):
    """Another daemon keeps its state here; the text names it."""


@contextmanager
def state_lock(folder: Path | None) -> Iterator[None]:
    """Hold the folder's lock file. The kernel lets go of it when the process ends in whatever way, so that a file left behind is no lock.

    A folder that cannot be written is no reason to refuse: then the ledger is in memory, and says so.

    Raises:
        AlreadyWatched
    """
    descriptor = _open(folder / "lock") if folder is not None else None
    if folder is None or descriptor is None:
        yield
        return
    try:
        _take(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _open(path: Path) -> int | None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        log.warning("state folder cannot be locked", part="lock", path=str(path), why=str(error), do="make it writable, or name another: --state-dir")
        return None


def _take(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        who = f"the daemon with pid {holder}" if holder.isdigit() else "another daemon"
        raise AlreadyWatched(f"{folder} is in use by {who}; stop that one, or give this one its own folder: --state-dir DIR") from None
    except OSError as error:  # a file system without locks
        log.warning("state folder cannot be locked", part="lock", path=str(folder), why=str(error), do="keep it on a local disk")
        return
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
