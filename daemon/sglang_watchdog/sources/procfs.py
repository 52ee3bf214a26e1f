"""Reads what /proc tells of a process. Another user's process shows its state to all, its files and environment only to root."""

import os
from dataclasses import dataclass
from typing import Final

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_STATES: Final = {
    "R": "running", "S": "sleeping", "I": "sleeping", "D": "disk-sleep", "T": "stopped", "t": "stopped", "Z": "zombie",
    "X": "gone", "x": "gone",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProcessState:
    """One reading of /proc/PID/stat. `started` (clock ticks after boot) tells a process from a later one with its number."""

    pid: int
    parent: int
    state: str  # as ProcessSeen.state
    started: int
    cpu_s: float  # user and system time, all threads
    exit_code: int | None  # of a zombie, negative for a signal; None while it lives and where the kernel hides it


def pids(root: str = "/proc") -> list[int]:
    """Return the numbers of all processes. Raises OSError without /proc."""
    return sorted(int(name) for name in os.listdir(root) if name.isdigit())


def read_state(pid: int, root: str = "/proc") -> ProcessState | None:
    """Return the state of a process, or None if it is gone."""
    text = _read(f"{root}/{pid}/stat").decode("utf-8", "replace")
    _, _, rest = text.rpartition(")")  # the command in front may hold spaces and parentheses
    fields = rest.split()
    if len(fields) < 20:
        return None
    state = _STATES.get(fields[0], "running")
    status = int(fields[49]) if len(fields) > 49 else 0
    return ProcessState(
        pid=pid,
        parent=int(fields[1]),
        state=state,
        started=int(fields[19]),
        cpu_s=(int(fields[11]) + int(fields[12])) / TICKS_PER_S,
        exit_code=_exit_code(status) if state == "zombie" else None,
    )


def started_at_s(started: int, root: str = "/proc") -> float | None:
    """Turn clock ticks after boot into Unix seconds; None where the kernel does not tell when it booted."""
    for line in _read(f"{root}/stat").decode("ascii", "replace").splitlines():
        if line.startswith("btime "):
            return int(line.split()[1]) + started / TICKS_PER_S
    return None


def _exit_code(status: int) -> int:
    """Turn a wait status into the code that SGLang's launcher prints: negative for a signal."""
    return -(status & 0x7F) if status & 0x7F else status >> 8


def read_arguments(pid: int, root: str = "/proc") -> tuple[str, ...]:
    """Return the command line, empty for kernel threads, zombies and processes that are gone.

    A process that set its title (setproctitle) has the title as its first argument, padded with zeros.
    """
    raw = _read(f"{root}/{pid}/cmdline").rstrip(b"\0")
    return tuple(part.decode("utf-8", "replace") for part in raw.split(b"\0")) if raw else ()


def read_environment(pid: int, name: str, root: str = "/proc") -> str | None:
    """Return one environment variable as the process was started with, None if absent or not ours to read."""
    for entry in _read(f"{root}/{pid}/environ").split(b"\0"):
        key, separator, value = entry.partition(b"=")
        if separator and key.decode("utf-8", "replace") == name:
            return value.decode("utf-8", "replace")
    return None


def read_link(pid: int, name: str, root: str = "/proc") -> str | None:
    """Return what /proc/PID/`name` points to ("fd/1", "cwd"), None if gone or not ours to read."""
    try:
        return os.readlink(f"{root}/{pid}/{name}")
    except OSError:
        return None


def listening_ports(pid: int, root: str = "/proc") -> frozenset[int] | None:
    """Return the TCP ports listened on in the network name space of a process; None if that cannot be read."""
    found: set[int] = set()
    was_read = False
    for table in ("tcp", "tcp6"):
        lines = _read(f"{root}/{pid}/net/{table}").decode("ascii", "replace").splitlines()
        was_read |= bool(lines)
        for line in lines[1:]:
            fields = line.split()
            if len(fields) > 3 and fields[3] == "0A":  # TCP_LISTEN
                found.add(int(fields[1].rpartition(":")[2], 16))
    return frozenset(found) if was_read else None


def cgroups(pid: int, root: str = "/proc") -> tuple[str, ...]:
    """Return the control group paths of a process, "" and "0::" prefixes left out."""
    lines = _read(f"{root}/{pid}/cgroup").decode("utf-8", "replace").splitlines()
    return tuple(dict.fromkeys(line.split(":", 2)[2] for line in lines if line.count(":") >= 2))


def oom_kills(pid: int, root: str = "/proc", cgroup_root: str = "/sys/fs/cgroup") -> int | None:
    """Return how often the kernel killed in the memory control group of a process; None where that is not told."""
    for line in _read(f"{root}/{pid}/cgroup").decode("utf-8", "replace").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0":
            counted = _counter(f"{cgroup_root}{path}/memory.events")
        elif "memory" in controllers.split(","):
            counted = _counter(f"{cgroup_root}/memory{path}/memory.oom_control")
        else:
            counted = None
        if counted is not None:
            return counted
    return None


def _counter(path: str) -> int | None:
    for line in _read(path).decode("ascii", "replace").splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.isdigit():
            return int(value)
    return None


def _read(path: str) -> bytes:
    """Return a file of /proc whole, b"" if the process is gone or hides it: both are ordinary, and callers say None."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
