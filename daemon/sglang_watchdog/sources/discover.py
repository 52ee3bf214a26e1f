"""Finds the SGLang servers of this machine and where their output goes, when nobody named a log."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..model.observation import Json
from . import procfs
from .launch_flags import facts_of_flags
from .process import Launcher, launchers, titled_processes

_CONTAINER: Final = re.compile(r"(?:docker[-/]|cri-containerd-|crio-|libpod-)?([0-9a-f]{64})(?:\.scope)?$")
_POD: Final = re.compile(r"kubepods.*pod([0-9a-f]{8}[-_][0-9a-f_-]{27})")
_UNIT: Final = re.compile(r"/([^/]+\.service)(?:/|$)")
_JOURNAL_SOCKET: Final = "/run/systemd/journal/stdout"


@dataclass(frozen=True, slots=True)
class Output:
    """Where a process writes. `where` is what `logs:` of the configuration takes, None if it cannot be read; `reason` says how it is known
    or what to do.
    """

    kind: str  # file, journal, docker, cri, pipe, terminal, nowhere, hidden
    where: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class FoundServer:
    """One server. `outputs` are the places of its standard output and error, without doubles; `facts` those of its command line."""

    launcher: Launcher
    name: str
    outputs: tuple[Output, ...]
    facts: Mapping[str, Json]

    @property
    def logs(self) -> tuple[str, ...]:
        """What can be watched."""
        return tuple(dict.fromkeys(output.where for output in self.outputs if output.where is not None))


def find_servers(root: str = "/proc", fields: Mapping[str, str] | None = None) -> list[FoundServer]:
    """Return the servers that run now, oldest process first. Raises OSError without /proc."""
    found: list[FoundServer] = []
    for launcher in launchers(titled_processes(root), root):
        facts = facts_of_flags(launcher.flags, fields)
        outputs = dict.fromkeys(output_of(launcher.pid, descriptor, root) for descriptor in (1, 2))
        found.append(FoundServer(launcher, _name(launcher, facts), tuple(outputs), facts))
    return found


def _name(launcher: Launcher, facts: Mapping[str, Json]) -> str:
    model = facts.get("args.served_model_name") or facts.get("args.model_path") or facts.get("args.model")
    short = os.path.basename(str(model).rstrip("/")) if model else "sglang"
    return f"{short}:{launcher.port}"


def output_of(pid: int, descriptor: int, root: str = "/proc") -> Output:
    """Say where a descriptor of a process leads."""
    target = procfs.read_link(pid, f"fd/{descriptor}", root)
    if target is None:
        return Output("hidden", None, f"/proc/{pid}/fd is not ours to read; run as the server's user or as root")
    if target.startswith("pipe:"):
        return _pipe(pid, target, root)
    if target.startswith("socket:"):
        return _socket(pid, target, root)
    if target.startswith(("/dev/pts/", "/dev/tty", "/dev/console")):
        return Output("terminal", None, f"it writes to the terminal {target}; start it with > server.log 2>&1")
    if target.startswith("/dev/null"):
        return Output("nowhere", None, "it writes to /dev/null; start it with > server.log 2>&1")
    return _file(pid, descriptor, target, root)


def _file(pid: int, descriptor: int, target: str, root: str) -> Output:
    if target.endswith(" (deleted)"):
        return Output("nowhere", None, f"its log {target.removesuffix(' (deleted)')} was deleted; restart it, or copy /proc/{pid}/fd/{descriptor}")
    opened = _identity(f"{root}/{pid}/fd/{descriptor}")
    if opened is not None and _identity(target) == opened:
        return Output("file", target, f"descriptor {descriptor} of process {pid}")
    inside = f"{root}/{pid}/root{target}"
    if opened is not None and _identity(inside) == opened:
        return Output("file", inside, f"descriptor {descriptor} of process {pid}, seen through its container's root")
    return Output("hidden", None, f"it writes to {target}, which is in another mount name space; name the path as it is here")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino)


def _socket(pid: int, target: str, root: str) -> Output:
    unit = _unit(pid, root)
    number = target.removeprefix("socket:[").removesuffix("]")
    stream = procfs.read_environment(pid, "JOURNAL_STREAM", root)
    is_journal = stream is not None and stream.endswith(f":{number}")
    if unit is not None and (is_journal or os.path.exists(_JOURNAL_SOCKET)):
        return Output("journal", f"journal:{unit}", f"process {pid} runs in {unit} and writes to a socket of the journal")
    return Output("hidden", None, f"process {pid} writes to a socket whose other end is not known; name its log")


def _unit(pid: int, root: str) -> str | None:
    names = [found[1] for path in procfs.cgroups(pid, root) for found in _UNIT.finditer(path)]
    return next((name for name in reversed(names) if not name.startswith("user@")), None)


def _pipe(pid: int, target: str, root: str) -> Output:
    paths = procfs.cgroups(pid, root)
    container = next((found[1] for path in paths if (found := _CONTAINER.search(path))), None)
    pod = next((found[1].replace("_", "-") for path in paths if (found := _POD.search(path))), None)
    if pod is not None:
        pattern = f"/var/log/pods/*_{pod}/*/*.log"
        return Output("cri", pattern, f"process {pid} runs in pod {pod}; the kubelet keeps its output there")
    if container is not None:
        return Output("docker", f"docker:{container[:12]}", f"process {pid} runs in container {container[:12]}")
    return _read_by(pid, target, root)


def _read_by(pid: int, target: str, root: str) -> Output:
    """Find who reads the pipe, and the file that it writes: tee, rotatelogs, svlogd, ts."""
    for reader in procfs.pids(root):
        if reader == pid or procfs.read_link(reader, "fd/0", root) != target:
            continue
        name = os.path.basename((procfs.read_arguments(reader, root) or ("?",))[0])
        for path in _written_by(reader, root):
            return Output("file", path, f"process {pid} writes to a pipe that {name} ({reader}) reads and writes there")
        return Output("pipe", None, f"its output goes through a pipe to {name} ({reader}); add `| tee server.log`")
    return Output("pipe", None, "its output goes into a pipe whose reader is not known; add `| tee server.log`, or name its log")


def _written_by(pid: int, root: str) -> list[str]:
    try:
        descriptors = sorted(os.listdir(f"{root}/{pid}/fd"), key=int)
    except OSError:
        return []
    found: list[str] = []
    for descriptor in descriptors:
        target = procfs.read_link(pid, f"fd/{descriptor}", root)
        if target is None or not target.startswith("/") or target.startswith("/dev/"):
            continue
        if _identity(target) is not None and _is_open_for_writing(pid, descriptor, root):
            found.append(target)
    return found


def _is_open_for_writing(pid: int, descriptor: str, root: str) -> bool:
    try:
        with open(f"{root}/{pid}/fdinfo/{descriptor}", encoding="ascii") as file:
            flags = next((line.split()[1] for line in file if line.startswith("flags:")), "0")
    except OSError:
        return False
    return bool(int(flags, 8) & (os.O_WRONLY | os.O_RDWR))
