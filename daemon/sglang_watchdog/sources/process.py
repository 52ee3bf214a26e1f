"""Watches the processes of one server: a killed server prints nothing, and a hung one neither.

The core is a synchronous step over /proc; only changes come out of it.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from ..model.observation import COMMAND_LINE, Probe, ProcessSeen, Watermark
from ..parse.redact import redact_words
from . import procfs
from .launch_flags import facts_of_flags
from .procfs import ProcessState
from .server_info import ask_server_info
from .status import NOT_STARTED, SourceStatus
from .titles import Title, launch_arguments, title_of
from .turns import Turns

ProcessEvent: TypeAlias = ProcessSeen | Probe | Watermark

DEFAULT_PORT: Final = 30000  # of SGLang
NO_LAUNCHER: Final = "no launcher of this server is running"
_LOOK_S: Final = 3.0  # for new processes; known ones are read at every step
_DISK_SLEEPS: Final = 3  # waiting for a disk is normal for a moment, not three looks in a row
_CPU_WINDOW_S: Final = 10.0
_CPU_BANDS: Final = (0.05, 0.8)  # idle, at work, a core that never waits


@dataclass(frozen=True, slots=True)
class Launcher:
    """The first process of a server. `port` is where it listens once it is ready."""

    pid: int
    started: int
    flags: tuple[str, ...]
    port: int


@dataclass(slots=True)
class _Member:
    title: Title
    started: int
    said: tuple[str, bool | None, int] | None = None  # state, port, CPU band as last told
    disk_sleeps: int = 0
    exit_code: int | None = None
    cpu_at: tuple[float, float] | None = None  # when, CPU seconds then
    cpu_ratio: float | None = None


@dataclass(slots=True)
class ProcessTable:
    """The processes of one server. `selects` says which launcher is ours when a machine runs several."""

    source: str
    selects: Callable[[Launcher], bool] = lambda _: True
    root: str = "/proc"
    cgroup_root: str = "/sys/fs/cgroup"
    fields: Mapping[str, str] = field(default_factory=dict)  # flag -> argument name
    launcher: Launcher | None = None
    is_port_open: bool = False
    members: dict[int, _Member] = field(default_factory=dict)
    _looked_s: float = float("-inf")
    _is_missing_told: bool = False
    _oom_kills: int | None = None

    def step(self, now_s: float) -> list[ProcessSeen | Probe]:
        """Read the processes and return what changed since the last step; to be called about once a second."""
        states = {pid: procfs.read_state(pid, self.root) for pid in self.members}
        is_incomplete = self.launcher is None or any(state is None for state in states.values())
        events: list[ProcessSeen | Probe] = []
        for pid, member in list(self.members.items()):
            events += self._seen(pid, member, states[pid], now_s)
        if is_incomplete or abs(now_s - self._looked_s) >= _LOOK_S:
            self._looked_s = now_s
            events += self._look(now_s)
        return events + self._oom(now_s)

    def _seen(self, pid: int, member: _Member, state: ProcessState | None, now_s: float) -> list[ProcessSeen | Probe]:
        if state is None or state.started != member.started:
            del self.members[pid]
            if self.launcher is not None and self.launcher.pid == pid:
                self.launcher, self.is_port_open = None, False
            return [self._event(pid, member, "gone", now_s, False if member.title.role == "launcher" else None)]
        member.exit_code = state.exit_code if state.exit_code is not None else member.exit_code
        member.disk_sleeps = member.disk_sleeps + 1 if state.state == "disk-sleep" else 0
        shown = state.state
        if shown == "disk-sleep" and member.disk_sleeps < _DISK_SLEEPS:
            shown = member.said[0] if member.said else "running"
        port = self._port(pid) if self.launcher is not None and pid == self.launcher.pid else None
        # Running and sleeping alternate all the time: one is no news after the other.
        told = (shown if shown != "sleeping" else "running", port, self._cpu_band(member, state, now_s))
        if told == member.said:
            return []
        member.said = told
        return [self._event(pid, member, shown, now_s, port)]

    def _event(self, pid: int, member: _Member, state: str, now_s: float, port: bool | None) -> ProcessSeen:
        return ProcessSeen(
            at_s=now_s, source=self.source, pid=pid, role=member.title.role, rank=member.title.rank, state=state,
            exit_code=member.exit_code, port_open=port, cpu_ratio=member.cpu_ratio,
        )  # fmt: skip

    def _port(self, pid: int) -> bool | None:
        ports = procfs.listening_ports(pid, self.root)
        if ports is None or self.launcher is None:
            return None
        self.is_port_open = self.launcher.port in ports
        return self.is_port_open

    @staticmethod
    def _cpu_band(member: _Member, state: ProcessState, now_s: float) -> int:
        if member.cpu_at is None or now_s < member.cpu_at[0]:
            member.cpu_at = (now_s, state.cpu_s)
        elif now_s - member.cpu_at[0] >= _CPU_WINDOW_S:
            member.cpu_ratio = round((state.cpu_s - member.cpu_at[1]) / (now_s - member.cpu_at[0]), 3)
            member.cpu_at = (now_s, state.cpu_s)
        return sum(member.cpu_ratio >= band for band in _CPU_BANDS) if member.cpu_ratio is not None else -1

    def _look(self, now_s: float) -> list[ProcessSeen | Probe]:
        """Find the launcher if there is none, and all its children that have a title of SGLang's."""
        titled = titled_processes(self.root)
        events: list[ProcessSeen | Probe] = []
        if self.launcher is None:
            self.launcher = self._choose(titled)
            if self.launcher is not None:
                events.append(self._told_by_command_line(self.launcher, now_s))
                self._is_missing_told = False
        if self.launcher is None:
            return events + self.missing(now_s, NO_LAUNCHER)
        for pid, title in titled.items():
            state = procfs.read_state(pid, self.root)
            if state is None or pid in self.members or not self._is_ours(pid, state):
                continue
            if title.role == "scheduler" and titled.get(state.parent) == title:
                continue  # a helper that it forked and that still shows its title: its end is nobody's death
            member = self.members[pid] = _Member(title, state.started)
            events += self._seen(pid, member, state, now_s)
        return events

    def missing(self, now_s: float, why: str) -> list[ProcessSeen | Probe]:
        """Say once that there is no launch command to be known: others wait for it."""
        if self._is_missing_told:
            return []
        self._is_missing_told = True
        return [Probe(at_s=now_s, source=self.source, origin=COMMAND_LINE, facts={}, error=why)]

    def _choose(self, titled: Mapping[int, Title]) -> Launcher | None:
        return next((each for each in launchers(titled, self.root) if self.selects(each)), None)

    def _is_ours(self, pid: int, state: ProcessState) -> bool:
        """Say whether the launcher is among the ancestors; a scheduler may hang under a data-parallel controller."""
        for _ in range(16):
            if self.launcher is None or state.parent <= 1:
                return self.launcher is not None and pid == self.launcher.pid
            if self.launcher.pid in (pid, state.parent):
                return True
            above = procfs.read_state(state.parent, self.root)
            if above is None:
                return False
            pid, state = above.pid, above
        return False

    def _told_by_command_line(self, launcher: Launcher, now_s: float) -> Probe:
        """Only here are the words as they were typed; what goes on has no secrets."""
        facts = facts_of_flags(launcher.flags, self.fields)
        return Probe(
            at_s=now_s, source=self.source, origin=COMMAND_LINE, facts={**facts, "run.launcher_pid": launcher.pid},
            command=redact_words(launcher.flags), started_s=procfs.started_at_s(launcher.started, self.root),
        )  # fmt: skip

    def _oom(self, now_s: float) -> list[ProcessSeen | Probe]:
        counted = procfs.oom_kills(self.launcher.pid, self.root, self.cgroup_root) if self.launcher is not None else None
        if counted is None:
            return []
        before, self._oom_kills = self._oom_kills, counted
        if before is None or counted <= before:
            return []
        return [Probe(at_s=now_s, source=self.source, origin="control group", facts={"run.oom_kills": counted - before})]


def titled_processes(root: str = "/proc") -> dict[int, Title]:
    """Return every process with a title or command line of SGLang's."""
    return {pid: title for pid in procfs.pids(root) if (title := title_of(procfs.read_arguments(pid, root))) is not None}


def launchers(titled: Mapping[int, Title], root: str = "/proc") -> list[Launcher]:
    """Return the launchers among `titled`, without those that another one forked and that still show its command line."""
    found: list[Launcher] = []
    for pid in (pid for pid, title in titled.items() if title.role == "launcher"):
        state, launcher = procfs.read_state(pid, root), launcher_of(pid, root)
        parent = titled.get(state.parent) if state is not None else None
        if launcher is not None and (parent is None or parent.role != "launcher"):
            found.append(launcher)
    return found


def launcher_of(pid: int, root: str = "/proc") -> Launcher | None:
    """Return the launcher that runs as `pid`, None if it is none or gone."""
    arguments, state = procfs.read_arguments(pid, root), procfs.read_state(pid, root)
    flags = launch_arguments(arguments) if arguments else None
    if state is None or flags is None:
        return None
    port = facts_of_flags(flags).get("args.port", DEFAULT_PORT)
    return Launcher(pid, state.started, flags, port if isinstance(port, int) and not isinstance(port, bool) else DEFAULT_PORT)


class ProcessSource:
    """The processes of one server as observations, every second, only on change; asks /server_info once for each launcher."""

    def __init__(
        self,
        name: str,
        table: ProcessTable,
        *,
        every_s: float = 1.0,
        asks: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Watch `table`. `asks` says, when a server's port is first seen open, whether /server_info is wanted."""
        self.name = name
        self._table = table
        self._every_s = every_s
        self._asks = asks
        self._clock = clock
        self._asked: tuple[int, int] | None = None
        self._asking: asyncio.Task[Probe] | None = None
        self._why_not = NOT_STARTED
        self._turns = Turns()

    async def events(self) -> AsyncGenerator[ProcessEvent, None]:
        """Yield observations, and at each look a watermark just before the next: nobody waits for this source."""
        looking: asyncio.Task[list[ProcessSeen | Probe]] | None = None
        try:
            while True:
                # A process whose memory map is locked (D state) makes reading its command line wait: never in the event loop.
                looking = asyncio.create_task(asyncio.to_thread(self._table.step, self._clock()))
                while not (await asyncio.wait({looking}, timeout=self._every_s))[0]:
                    self._turns.turn()
                    self._why_not = "reading /proc takes longer than a second: a process of the server is stuck in the kernel"
                    yield self._watermark(self._clock())
                now_s = self._clock()
                seen = [*self._looked(looking), *self._answered(now_s)]
                for event in seen:
                    yield replace(event, at_s=now_s)
                yield self._watermark(now_s)
                await self._turns.sleep(self._every_s)
        finally:
            for task in (looking, self._asking):
                if task is not None:
                    task.cancel()

    def _looked(self, looking: "asyncio.Task[list[ProcessSeen | Probe]]") -> list[ProcessSeen | Probe]:
        """What was seen; nothing, said in the status, where there is no /proc."""
        try:
            seen = looking.result()
        except OSError as error:
            self._why_not = f"processes cannot be listed: {error}; mount /proc"
            return self._table.missing(self._clock(), self._why_not)
        self._why_not = "" if self._table.launcher is not None else NO_LAUNCHER
        return seen

    @property
    def turned_s(self) -> float:
        """When the loop last turned, monotonic clock."""
        return self._turns.at_s

    def _watermark(self, now_s: float) -> Watermark:
        return Watermark(source=self.name, at_s=now_s + self._every_s - 0.001)

    def _answered(self, now_s: float) -> list[Probe]:
        """Ask /server_info once a launcher, beside everything else; return the answer when it is there."""
        if self._asking is not None and self._asking.done():
            answer, self._asking = self._asking.result(), None
            return [answer]
        launcher = self._table.launcher
        if launcher is None or not self._table.is_port_open or self._asked == (launcher.pid, launcher.started) or not self._asks():
            return []
        self._asked = (launcher.pid, launcher.started)
        self._asking = asyncio.create_task(ask_server_info(self.name, launcher.port, now_s))
        return []

    @property
    def open_port(self) -> int | None:
        """Where the server listens now, None while it does not."""
        return self._table.launcher.port if self._table.launcher is not None and self._table.is_port_open else None

    def status(self) -> SourceStatus:
        """See SourceStatus."""
        launcher = self._table.launcher
        roles = [f"{member.title.role} {pid}" for pid, member in self._table.members.items()]
        return SourceStatus(
            name=self.name,
            kind="process",
            path=f"pid {launcher.pid}" if launcher else "",
            readable=launcher is not None,
            why_not=self._why_not,
            wake="poll",
            notes=tuple(roles),
        )
