"""Boots a real systemd beside the one (or none) of this machine, in namespaces of its own; see boot.sh."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .tools import ROOT

BOOT = Path(__file__).with_name("boot.sh")
_CGROUPS = Path("/sys/fs/cgroup")
_CAP_SYS_ADMIN = 21


class CannotBoot(Exception):
    """Why no systemd can be booted here."""


@dataclass(frozen=True, slots=True)
class Booted:
    """A running system; `pid` is its PID 1 as this machine sees it."""

    pid: int

    def run(self, *command: str, timeout_s: float = 60.0) -> "subprocess.CompletedProcess[str]":
        """A command inside, in all its namespaces."""
        return self._enter(["-a"], command, timeout_s)

    def shell(self, script: str, timeout_s: float = 60.0) -> str:
        """A bash script inside; raises AssertionError with all it said if it fails."""
        done = self.run("/bin/bash", "-euc", script, timeout_s=timeout_s)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def install(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """deploy/systemd/install.sh on its files, with this machine's network, for pip."""
        return self._enter(["-m"], ["/bin/bash", "/src/deploy/systemd/install.sh", *arguments], 300.0)

    def shown(self, unit: str, *names: str) -> dict[str, str]:
        """Properties of a unit as `systemctl show` prints them."""
        out = self.run("systemctl", "show", unit, *(f"-p{name}" for name in names)).stdout
        return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)

    def _enter(self, spaces: list[str], command: "list[str] | tuple[str, ...]", timeout_s: float) -> "subprocess.CompletedProcess[str]":
        enter = ["nsenter", "-t", str(self.pid), *spaces, "-r", "-w", *command]
        return subprocess.run(enter, capture_output=True, text=True, timeout=timeout_s, check=False)


def until(done: Callable[[], bool], within_s: float, what: Callable[[], str]) -> float:
    """Wait for a fact of another process; return the seconds. Raises AssertionError with `what`."""
    began = time.monotonic()
    while not done():
        assert time.monotonic() - began < within_s, what()
        time.sleep(0.2)
    return time.monotonic() - began


@contextlib.contextmanager
def booted(folder: Path) -> Iterator[Booted]:
    """A system for the time of a block. Raises CannotBoot."""
    _demand()
    groups = _own_cgroups(f"sglang-watchdog-test-{os.getpid()}")
    console = folder / "console.log"
    (folder / "system").mkdir()
    spaces = ["--pid", "--mount", "--uts", "--ipc", "--net", "--cgroup", "--fork"]
    join = "; ".join(f"echo $$ > {group}/cgroup.procs" for group in groups)
    command = ["/bin/bash", "-c", f'{join}; exec unshare {" ".join(spaces)} "$@"', "boot", str(BOOT), str(folder / "system"), str(ROOT)]
    with console.open("wb") as out:
        outer = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True)
    system = None
    try:
        system = _came_up(outer, console)
        yield system
    finally:
        if system is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(system.pid, signal.SIGKILL)  # PID 1 of a namespace takes all that runs in it along
        else:
            outer.kill()
        outer.wait(30)
        _remove(groups)


def _demand() -> None:
    if os.geteuid() != 0:
        raise CannotBoot("needs root")
    effective = int(next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff:")).split()[1], 16)
    if not effective >> _CAP_SYS_ADMIN & 1:
        raise CannotBoot("needs CAP_SYS_ADMIN")
    for name in ("unshare", "nsenter", "ip"):
        if shutil.which(name) is None:
            raise CannotBoot(f"{name} is missing")
    if not Path("/lib/systemd/systemd").exists():
        raise CannotBoot("systemd is not installed")


def _own_cgroups(name: str) -> list[Path]:
    """A group for it in every hierarchy that it mounts, so that its units don't lie in the machine's own tree."""
    unified = (_CGROUPS / "cgroup.controllers").exists()
    above = [_CGROUPS] if unified else [_CGROUPS / each for each in ("systemd", "unified", "memory", "pids", "devices", "cpu")]
    if not unified and not (_CGROUPS / "systemd").is_dir():
        raise CannotBoot("no cgroup hierarchy for systemd is mounted")
    groups = [each / name for each in above if each.is_dir()]
    try:
        for group in groups:
            group.mkdir()
    except OSError as error:
        raise CannotBoot(f"cgroups are not writable: {error}") from error
    return groups


def _came_up(outer: "subprocess.Popen[bytes]", console: Path) -> Booted:
    def children() -> list[int]:
        return [int(pid) for pid in Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()]

    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline and outer.poll() is None:
        for pid in children():
            if Path(f"/proc/{pid}/comm").read_text().strip() == "systemd":
                system = Booted(pid)
                if system.run("systemctl", "is-system-running").stdout.strip() in ("running", "degraded"):
                    return system
        time.sleep(0.2)
    raise CannotBoot(f"systemd did not come up: {console.read_text(errors='replace')[-2000:] or 'it said nothing'}")


def _remove(groups: list[Path]) -> None:
    for group in groups:
        for folder in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
            with contextlib.suppress(OSError):
                folder.rmdir()
        with contextlib.suppress(OSError):
            group.rmdir()
