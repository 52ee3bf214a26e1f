"""Which rank is on which GPU, and how we know. Pure and incremental: samples and facts in, a Placement out.

One tracker per server; every tracker sees the samples of all GPUs of its node. In falling order of trust:
configuration; NVML processes whose parent (or own) pid the log names; the launcher's CUDA_VISIBLE_DEVICES with SGLang's
formula; processes whose birth and whose GPU's memory agree with the log's start-up lines; the only server of the node;
and, where the telemetry lists no processes at all, the GPUs that the arguments or their number point to (marked as
assumed).

SGLang's facts used here (0.4.6 to 0.5.23): titles are `sglang::scheduler` + `_DP0_PP0_TP0_EP0`, each part only where
that size is above 1; uvicorn prints `Started server process [pid]` with the launcher's pid; `avail mem=` is the free
memory of the rank's GPU in GiB; gpu = base_gpu_id + (pp_rank % pp_per_node) * tp_per_node
+ (tp_rank % tp_per_node) * gpu_id_step.
"""

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from ..model.observation import GpuProcess, Json, Sample

_TITLE: Final = re.compile(r"^sglang::scheduler((?:_[A-Z_]+?\d+)*)")
_TITLE_RANK: Final = re.compile(r"(?:ATTN_CP|MOE_DP|[A-Z]+)\d+")
_STAMP_S: Final = 1.0  # SGLang's stamps are cut to whole seconds
_BIRTH_BEFORE_S: Final = 1.0  # seen on H200: the context appears 0.2 to 0.9 s after "Init torch distributed begin" was stamped
_LONGEST_TICK_S: Final = 3.0  # samples further apart than this do not show what was between them
_MEMORY_SLACK_GIB: Final = 0.25  # NVML's used and CUDA's free differ by what the driver reserves
_TELLING_GIB: Final = 2.0  # memory that moved more than this around a stamp proves little
_FORGET_S: Final = 900.0  # processes gone for longer are dropped, unless they are the server's own
_FACTS_KEPT: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """GPU index to rank as the log prints it ("TP1", "DP0 TP3"; "" where the rank is not known or the log prints none).

    Empty `gpus` means unknown, and `how` says why. `is_assumed`: nothing contradicts it, nothing proves it.
    """

    gpus: Mapping[int, str] = field(default_factory=dict)
    how: str
    pids: frozenset[int] = frozenset()  # processes known to be this server's, gone ones included
    is_assumed: bool = False


@dataclass(slots=True)
class _Seen:
    """A process on one GPU, from its first to its last sighting."""

    process: GpuProcess
    gpu: int
    first_s: float
    last_s: float
    was_there_before_us: bool


@dataclass(slots=True)
class _Memory:
    """Free memory of one GPU over the last seconds."""

    free: deque[tuple[float, float]]  # (at_s, GiB), the last ten seconds
    spacing_s: float = _LONGEST_TICK_S  # widest distance of two samples among them
    judged: int = 0  # how many of the run's `avail mem=` were compared with it


@dataclass(frozen=True, slots=True)
class _FreeSaid:
    """`avail mem=` of one log line."""

    at_s: float
    gib: float


def rank_of_title(title: str | None) -> str | None:
    """Return the rank in a scheduler's process title as the log prints it: "" without one, None for other titles."""
    match = _TITLE.match(title or "")
    return None if match is None else " ".join(_TITLE_RANK.findall(match.group(1)))


class PlacementTracker:
    """Follows one server's processes over the GPUs of its node.

    Feed it every sample and, as the log tells them, these facts (`on_fact`):

    | name | value | from |
    |---|---|---|
    | gpus | list of indices | configuration `servers[].gpus` |
    | launcher_pid | int | `Started server process [pid]` |
    | scheduler_pid | int, rank if known | any line that names a scheduler's pid |
    | own_pids | list of ints | the process tree below the launcher, where it can be read |
    | visible_devices | text | CUDA_VISIBLE_DEVICES of the launcher |
    | args | mapping | the dump |
    | dist_begin, dist_end | None | `Init torch distributed begin` / `ends` |
    | avail_gib | float | `avail mem=` of any start-up line |
    | rank | text | a rank seen in the log's prefix |
    | ready | None | the ready line, or any batch line |
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], _Seen] = {}
        self._memory: dict[int, _Memory] = {}
        self._uuids: dict[int, str] = {}
        self._present: dict[int, frozenset[int]] = {}
        self._lists_processes = False
        self._now_s = float("-inf")
        self._configured: tuple[int, ...] = ()
        self._visible: str | None = None
        self._placed: Placement | None = None
        self.new_run(None)

    def new_run(self, at_s: float | None) -> None:
        """Forget what the last run said, keep what the GPUs showed. Call it before the facts of a new run."""
        self._started_s = at_s
        self._launchers: set[int] = set()
        self._schedulers: dict[int, str] = {}
        self._own: set[int] = set()
        self._args: Mapping[str, Json] = {}
        self._ranks: set[str] = set()
        self._births: list[tuple[float, float | None]] = []
        self._free_said: list[_FreeSaid] = []
        for memory in self._memory.values():
            memory.judged = 0
        self._told: dict[int, int] = {}  # GPU: avail_gib lines that its memory bore out while it told something
        self._refuted: dict[int, int] = {}  # GPU: avail_gib lines that its memory contradicts
        self._ready_s: float | None = None
        self._last: Placement | None = None
        self._placed = None

    # ---- facts ----------------------------------------------------------------------------------------------------

    def on_fact(self, name: str, value: Json, *, at_s: float | None = None, rank: str = "") -> None:
        """Take one fact of the table above. An unknown name is an error of the caller: ValueError."""
        if (name == "ready" and self._ready_s is not None) or (name == "rank" and value in self._ranks):
            return  # said with every batch line; only the first one is news
        if rank:
            self._ranks.add(rank)
        match name, value:
            case "gpus", list():
                self._configured = tuple(int(each) for each in value if isinstance(each, (int, float)))
            case "launcher_pid", int():
                self._launchers.add(value)
            case "scheduler_pid", int():
                self._schedulers[value] = rank
            case "own_pids", list():
                self._own.update(each for each in value if isinstance(each, int))
            case "visible_devices", str():
                self._visible = value
            case "args", dict():
                self._args = value
            case "dist_begin", _ if at_s is not None:
                self._births.append((at_s, None))
            case "dist_end", _ if at_s is not None:
                self._births.append((self._births[-1][0] if self._births else at_s, at_s))
            case "avail_gib", int() | float() if at_s is not None:
                if len(self._free_said) < _FACTS_KEPT:
                    self._free_said.append(_FreeSaid(at_s, float(value)))
            case "rank", str():
                self._ranks.add(value)
            case "ready", _:
                self._ready_s = at_s if self._ready_s is None else self._ready_s
            case (("dist_begin" | "dist_end" | "avail_gib"), _):
                return  # undated: tells nothing here
            case _:
                raise ValueError(f"placement knows no fact {name!r} with a value like {value!r}")
        del self._births[:-_FACTS_KEPT]
        self._last = None

    # ---- samples --------------------------------------------------------------------------------------------------

    def on_sample(self, sample: Sample) -> None:
        """Take one reading. `processes` None means not read: the last known list stays."""
        was_waiting = any(self._now_s <= self._last_birth_s(birth) < sample.at_s for birth in self._births)
        self._now_s = max(self._now_s, sample.at_s)
        if was_waiting:
            self._last = None
        if sample.uuid is not None:
            self._uuids[sample.gpu] = sample.uuid
        self._note_memory(sample)
        if sample.processes is not None:
            self._note_processes(sample, sample.processes)

    def _note_memory(self, sample: Sample) -> None:
        memory = self._memory.get(sample.gpu)
        if memory is None:
            memory = self._memory[sample.gpu] = _Memory(deque())
            memory.judged = len(self._free_said)  # said before this GPU was ever seen
            self._last = None
        if sample.mem_total_mib is None or sample.mem_used_mib is None:
            return
        # NVML's first memory struct counts what the driver reserves as used, the second tells it apart
        reserved_mib = sample.extra.get("mem_reserved_mib", 0.0)
        memory.free.append((sample.at_s, (sample.mem_total_mib - sample.mem_used_mib - reserved_mib) / 1024))
        while memory.free[0][0] < sample.at_s - 10.0:
            memory.free.popleft()
        if len(memory.free) > 1:
            times = [at_s for at_s, _ in memory.free]
            widest_s = max(later - earlier for earlier, later in pairwise(times))
            memory.spacing_s = min(widest_s, _LONGEST_TICK_S)
        self._judge_memory(sample.gpu, memory, sample.at_s)

    def _judge_memory(self, gpu: int, memory: _Memory, now_s: float) -> None:
        """Compare this GPU's memory with each `avail mem=` whose surroundings have become complete."""
        while memory.judged < len(self._free_said):
            said = self._free_said[memory.judged]
            until_s = said.at_s + _STAMP_S + memory.spacing_s
            if now_s < until_s:
                return
            memory.judged += 1
            near = [gib for at_s, gib in memory.free if said.at_s - memory.spacing_s <= at_s <= until_s]
            if not near:
                continue
            low, high = min(near), max(near)
            if not low - _MEMORY_SLACK_GIB <= said.gib <= high + _MEMORY_SLACK_GIB:
                self._refuted[gpu] = self._refuted.get(gpu, 0) + 1
            elif high - low < _TELLING_GIB:
                self._told[gpu] = self._told.get(gpu, 0) + 1
            self._last = None

    def _note_processes(self, sample: Sample, processes: tuple[GpuProcess, ...]) -> None:
        is_first = sample.gpu not in self._present
        pids = frozenset(each.pid for each in processes)
        self._lists_processes = True
        for each in processes:
            seen = self._seen.get((sample.gpu, each.pid))
            if seen is None or (each.pid not in self._present.get(sample.gpu, frozenset()) and sample.at_s - seen.last_s > 60):
                self._seen[sample.gpu, each.pid] = _Seen(each, sample.gpu, sample.at_s, sample.at_s, is_first)
                self._last = None
                continue
            seen.last_s = sample.at_s
            if seen.process != each:
                if (seen.process.ppid, seen.process.name) != (each.ppid, each.name):
                    self._last = None
                seen.process = GpuProcess(  # a parent that has gone must not make us forget who it was
                    pid=each.pid,
                    ppid=seen.process.ppid if seen.process.ppid is not None else each.ppid,
                    mem_mib=each.mem_mib,
                    name=each.name or seen.process.name,
                )
        if pids != self._present.get(sample.gpu):
            self._present[sample.gpu] = pids
            self._forget(sample.at_s)
            self._last = None

    def _forget(self, now_s: float) -> None:
        keep = self._placed.pids if self._placed is not None else frozenset()
        gone = [key for key, seen in self._seen.items() if now_s - seen.last_s > _FORGET_S and key[1] not in keep]
        for key in gone:
            del self._seen[key]

    # ---- answers --------------------------------------------------------------------------------------------------

    def current(self) -> Placement:
        """Return where the server is, or why that is not known. Cheap when nothing changed."""
        if self._last is None:
            answer = self._place()
            if not answer.gpus and self._placed is not None and self._placed.gpus and not self._placed.is_assumed:
                answer = self._placed  # the processes are gone; the run was on these GPUs
            self._last = self._placed = answer
        return self._last

    def owns(self, process: GpuProcess) -> bool:
        """Whether this process on a GPU is known to belong to the server."""
        pids = self.current().pids
        return (
            process.pid in pids
            or process.pid in self._launchers
            or (process.ppid is not None and (process.ppid in pids or self._is_launcher_of(process)))
        )

    def is_named(self, process: GpuProcess) -> bool:
        """Whether the log or a process list named it as one of this server's."""
        return process.pid in self._pids_named()

    def is_foreign(self, process: GpuProcess) -> bool | None:
        """Whether a process belongs to no part of this server; None while the server's own are not known."""
        return None if not self.current().pids else not self.owns(process)

    def _place(self) -> Placement:
        if self._configured:
            return Placement(gpus=self._ranked(self._configured), how="configuration names the GPUs", pids=self._pids_named())
        for attempt in (self._by_pid, self._by_visible_devices, self._by_birth, self._by_being_alone, self._by_count):
            placement = attempt()
            if placement is not None:
                return placement
        return Placement(how=self._why_unknown())

    def _why_unknown(self) -> str:
        if not self._memory:
            return "no telemetry of any GPU"
        if not self._seen:
            if self._lists_processes:
                return "no process is on any GPU, as far as the driver shows them to us"
            return "the telemetry lists no processes, and it holds another number of GPUs than the server uses"
        if not self._births and self._ready_s is None and not self._launchers:
            return "no process on a GPU can be this server's: its log never came as far as opening one"
        return (
            "several processes on the GPUs may be this server's; its log names no pid among them "
            "(a line `Started server process [pid]` would), and neither times nor memory tell them apart"
        )

    # pids that the log or the process tree names

    def _is_launcher_of(self, process: GpuProcess) -> bool:
        if process.ppid not in self._launchers:
            return False
        # pid 1 of a container adopts orphans, and on the host it is init: there only SGLang's own title convinces
        return process.ppid != 1 or rank_of_title(process.name) is not None

    def _named(self) -> list[_Seen]:
        return [
            seen
            for seen in self._candidates()
            if self._is_launcher_of(seen.process)
            or seen.process.pid in self._schedulers
            or seen.process.pid in self._own
            or (seen.process.pid in self._launchers and seen.process.pid != 1)
        ]

    def _pids_named(self) -> frozenset[int]:
        return frozenset(seen.process.pid for seen in self._named())

    def _candidates(self) -> list[_Seen]:
        """Processes that were there at some time of this run."""
        since_s = float("-inf") if self._started_s is None else self._started_s
        return [seen for seen in self._seen.values() if seen.last_s >= since_s]

    def _by_pid(self) -> Placement | None:
        found = self._named()
        if not found:
            return None
        if any(self._is_launcher_of(seen.process) for seen in found):
            pids = ", ".join(str(each) for each in sorted(self._launchers))
            how = f"parent of the GPU process is the launcher, `Started server process [{pids}]`"
        elif any(seen.process.pid in self._schedulers for seen in found):
            how = "the log names the pid of the GPU process"
        else:
            how = "the GPU process is in the launcher's process tree"
        return self._placement(found, how)

    # arithmetic

    def _by_visible_devices(self) -> Placement | None:
        if self._visible is None or not self._args:
            return None
        devices = self._devices()
        ordinals = self._ordinals()
        if devices is None or not ordinals or max(ordinals) >= len(devices):
            return None
        gpus = {devices[ordinal]: rank for ordinal, rank in ordinals.items()}
        if not set(gpus) <= set(self._memory):
            return None
        found = [seen for seen in self._candidates() if seen.gpu in gpus and rank_of_title(seen.process.name) is not None]
        return Placement(
            gpus=gpus,
            how="CUDA_VISIBLE_DEVICES of the launcher, base_gpu_id and gpu_id_step",
            pids=frozenset(seen.process.pid for seen in found),
        )

    def _devices(self) -> list[int] | None:
        """CUDA's ordinals as NVML indices; the list ends silently at the first entry that names no GPU, as in CUDA."""
        entries = [entry.strip() for entry in (self._visible or "").split(",")]
        devices: list[int] = []
        for entry in entries:
            if entry.isdigit() and int(entry) in self._memory:
                index: int | None = int(entry)
            else:
                fitting = [gpu for gpu, uuid in self._uuids.items() if entry and uuid.startswith(entry)]
                index = fitting[0] if len(fitting) == 1 else None
            if index is None:
                break
            devices.append(index)
        return None if len(set(devices)) != len(devices) else devices

    def _ordinals(self) -> dict[int, str]:
        """CUDA ordinal to rank by SGLang's formula, for the ranks of this node."""
        tp, pp, dp, nodes, node = (
            self._whole("tp_size"),
            self._whole("pp_size"),
            self._whole("dp_size"),
            self._whole("nnodes"),
            self._whole("node_rank", 0),
        )
        base, step = self._whole("base_gpu_id", 0), self._whole("gpu_id_step")
        replicas = 1 if self._args.get("enable_dp_attention") else dp
        pp_per_node = max(pp // nodes, 1)
        nodes_per_stage = max(nodes // pp, 1)
        tp_per_node = max(tp // nodes_per_stage, 1)
        first_tp = tp_per_node * (node % nodes_per_stage)
        first_pp = pp_per_node * (node // nodes_per_stage)
        found: dict[int, str] = {}
        for replica in range(replicas):
            for pp_rank in range(first_pp, first_pp + pp_per_node):
                for tp_rank in range(first_tp, first_tp + tp_per_node):
                    ordinal = base + replica * tp * pp * step + (pp_rank % pp_per_node) * tp_per_node + (tp_rank % tp_per_node) * step
                    parts = [f"DP{replica}"] * (replicas > 1) + [f"PP{pp_rank}"] * (pp > 1) + [f"TP{tp_rank}"] * (tp > 1)
                    found[ordinal] = " ".join(parts)
        return found

    def _whole(self, name: str, default: int = 1) -> int:
        value = self._args.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default

    # births and memory

    def _groups(self) -> list[list[_Seen]]:
        """Processes of one parent; a process whose parent nobody knows is a group of its own."""
        groups: dict[tuple[str, int], list[_Seen]] = {}
        for seen in self._candidates():
            if seen.process.name is not None and rank_of_title(seen.process.name) is None and "python" not in seen.process.name:
                continue
            ppid = seen.process.ppid
            groups.setdefault(("parent", ppid) if ppid is not None else ("pid", seen.process.pid), []).append(seen)
        return list(groups.values())

    def _by_birth(self) -> Placement | None:
        """Processes born when the log opened its GPUs; of several families the one whose memory agrees best."""
        born = [group for group in self._groups() if any(self._was_born_in_time(seen) for seen in group)]
        is_over = any(self._now_s > self._last_birth_s(birth) for birth in self._births)
        if not is_over and not any(seen.last_s < self._now_s - _LONGEST_TICK_S for group in born for seen in group):
            return None  # a twin may still be born; a process that has gone again waits for none
        fewest = min((self._refutations(group) for group in born), default=0)
        fitting = [group for group in born if self._refutations(group) == fewest]
        if len(fitting) != 1:
            return None
        how = "the process appeared on the GPU while the log says `Init torch distributed begin`"
        if fewest == 0 and all(self._told.get(seen.gpu, 0) for seen in fitting[0]):
            how += ", and the GPU's memory follows the log's `avail mem=`"
        return self._placement(fitting[0], how)

    def _refutations(self, group: list[_Seen]) -> int:
        return sum(self._refuted.get(seen.gpu, 0) for seen in group)

    def _was_born_in_time(self, seen: _Seen) -> bool:
        if seen.was_there_before_us:
            return False
        return any(birth[0] - _BIRTH_BEFORE_S <= seen.first_s <= self._last_birth_s(birth) for birth in self._births)

    def _last_birth_s(self, birth: tuple[float, float | None]) -> float:
        begin_s, end_s = birth
        spacing_s = max((memory.spacing_s for memory in self._memory.values()), default=_LONGEST_TICK_S)
        return (begin_s if end_s is None else end_s) + _STAMP_S + spacing_s

    def _by_being_alone(self) -> Placement | None:
        """The only scheduler processes of the node while the log says that its server is up."""
        if self._ready_s is None:
            return None
        ready_s = self._ready_s
        groups = [
            group
            for group in self._groups()
            if all(rank_of_title(seen.process.name) is not None and not self._refuted.get(seen.gpu) for seen in group)
            and any(seen.last_s >= ready_s - 1 for seen in group)
        ]
        if len(groups) != 1 or not any(seen.was_there_before_us or seen.first_s <= ready_s + 1 for seen in groups[0]):
            return None
        if self._args and len({seen.gpu for seen in groups[0]}) != len(self._ordinals()):
            return None
        return self._placement(groups[0], "the only SGLang server whose processes are on a GPU")

    # telemetry without processes

    def _by_count(self) -> Placement | None:
        if self._seen or not self._memory or self._lists_processes:
            return None
        present = sorted(self._memory)
        if not self._args:
            spoken = {rank for rank in self._ranks if rank}
            how = f"assumed: the telemetry lists no processes; all its {len(present)} GPUs are taken for this server's"
            if len(spoken) <= len(present):
                return Placement(gpus=self._ranked(tuple(present)), how=how, is_assumed=True)
            return None
        ordinals = self._ordinals()
        if len(ordinals) == len(present):
            return Placement(
                gpus=dict(zip(present, (rank for _, rank in sorted(ordinals.items())), strict=True)),
                is_assumed=True,
                how=f"assumed: the telemetry lists no processes, but as many GPUs as this server uses ({len(present)})",
            )
        if set(ordinals) <= set(present):
            return Placement(gpus=ordinals, is_assumed=True, how="assumed: base_gpu_id and gpu_id_step, if all GPUs are visible")
        return None

    # ranks

    def _placement(self, found: Iterable[_Seen], how: str) -> Placement:
        gpus: dict[int, str] = {}
        for seen in sorted(found, key=lambda each: (each.gpu, each.first_s, each.process.pid)):
            rank = self._schedulers.get(seen.process.pid) or rank_of_title(seen.process.name) or ""
            gpus[seen.gpu] = rank or gpus.get(seen.gpu, "")
        if not any(gpus.values()):
            gpus = self._ranked(tuple(gpus))
        return Placement(gpus=gpus, how=how, pids=frozenset(seen.process.pid for seen in found))

    def _ranked(self, gpus: tuple[int, ...]) -> dict[int, str]:
        """Ranks in the order of the GPUs, where the arguments give as many ranks as there are GPUs."""
        ranks = [rank for _, rank in sorted(self._ordinals().items())] if self._args else []
        return dict(zip(gpus, ranks, strict=True)) if len(ranks) == len(gpus) else dict.fromkeys(gpus, "")
