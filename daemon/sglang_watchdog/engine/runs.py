"""One life of a server: its phases as a table, its facts, and what of its log was seen.

A log is a witness, not a protocol peer: an unexpected milestone raises nothing, the phase goes where the evidence points.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ..model.finding import AbsenceEvidence, FactEvidence, LineEvidence, Release, Run
from ..model.flags import FlagQuestion, FlagTable, Launch
from ..model.observation import Dump, Gap, Hit, Json, Position
from ..model.signature import Signature
from ..model.words import Phase
from .load import Load
from .yardstick import Yardstick

# During the start the run is where its least advanced rank is, so that a straggler shows.
START_ORDER: Final = (Phase.UNKNOWN, Phase.STARTING, Phase.LOADING, Phase.CAPTURING, Phase.READY)
ENDED: Final = frozenset({Phase.STOPPED, Phase.CRASHED})
SERVING: Final = frozenset({Phase.READY, Phase.SERVING, Phase.IDLE})

RANK_PHASE: Final[Mapping[str, Phase]] = {
    "dist-begin": Phase.STARTING,
    "dist-end": Phase.STARTING,
    "load-begin": Phase.LOADING,
    "load-end": Phase.LOADING,
    "pool-end": Phase.LOADING,
    "capture-begin": Phase.CAPTURING,
    "capture-end": Phase.CAPTURING,
    "scheduler-ready": Phase.CAPTURING,
}
# Lines after which the server is busy with itself: READY waits until they are 10 s old.
BUSY: Final = frozenset(RANK_PHASE) | {"jit", "autotune-begin", "autotune-end"}

_WORST_FIRST: Final = ("gone", "zombie", "stopped", "disk-sleep")

_CRASH: Final = ("exception", "sigquit", "child-died")
NEXT_PHASE: Final[Mapping[tuple[Phase, str], Phase]] = {
    **{(phase, "ready"): Phase.READY for phase in START_ORDER},
    **{(phase, "sigterm"): Phase.STOPPING for phase in (*START_ORDER, Phase.SERVING, Phase.IDLE)},
    **{(phase, "graceful-exit"): Phase.STOPPING for phase in (*START_ORDER, Phase.SERVING, Phase.IDLE)},
    **{(phase, "shutdown-complete"): Phase.STOPPED for phase in (*START_ORDER, Phase.SERVING, Phase.IDLE, Phase.STOPPING)},
    # An ordinary stop kills its children and prints the same "crashed" lines: stopping stays stopping.
    **{(phase, crash): Phase.CRASHED for phase in (*START_ORDER, Phase.SERVING, Phase.IDLE) for crash in _CRASH},
}


@dataclass(slots=True)
class RunState:
    """All that is held true of one run. Mutable; only the engine writes to it."""

    id: str
    server: str
    started_at_s: float | None
    load: Load
    phase: Phase = Phase.UNKNOWN
    crashed_in: Phase = Phase.UNKNOWN  # the phase that a crash ended
    ended_at_s: float | None = None
    closed: bool = False  # orderly stopped, or another run began
    release: Release = field(default_factory=Release)
    args: dict[str, Json] = field(default_factory=dict)
    args_from: str = ""  # the dump's source, or another stated origin
    dump: LineEvidence | None = None
    dump_complete: bool = True
    facts: dict[str, FactEvidence] = field(default_factory=dict)
    ranks: dict[str, Phase] = field(default_factory=dict)
    milestones: dict[tuple[str, str], LineEvidence] = field(default_factory=dict)  # first of (name, rank)
    last_milestones: dict[str, LineEvidence] = field(default_factory=dict)
    milestone_counts: dict[str, int] = field(default_factory=dict)
    first_hits: dict[tuple[str, str], LineEvidence] = field(default_factory=dict)  # first of (pattern, rank)
    gaps: list[Gap] = field(default_factory=list)
    unsearched: set[str] = field(default_factory=set)  # patterns that came by a reload: earlier lines were not searched for them
    sources: list[str] = field(default_factory=list)
    custom_logging: bool = False
    launch: Launch | None = None
    launch_because: str = ""  # why the command that was found is not this run's
    is_launch_told: bool = False  # the launch command is known, or known not to be there
    flag_question: FlagQuestion | None = None  # once they are due
    flag_table: FlagTable | None = None  # once they are judged
    timings_s: dict[str, float] = field(default_factory=dict)
    first_line: LineEvidence | None = None
    last_line_s: float | None = None
    nodes: set[str] = field(default_factory=set)
    processes: dict[tuple[str, int], str] = field(default_factory=dict)  # (role, pid): state as last seen
    yardstick: Yardstick = field(default_factory=Yardstick)
    version: int = 0  # rises with every fact, so that contexts are rebuilt only then

    def was_searched_for(self, signature: Signature) -> bool:
        """Whether every line since the run's start was searched for what the signature looks for."""
        absence = signature.absence
        witnesses = (*absence.opportunity, *absence.witness) if absence is not None else ()
        return self.unsearched.isdisjoint((*signature.match, *signature.await_, *witnesses))

    # --- what is known --------------------------------------------------------------------------------------------

    def learn(self, fact: FactEvidence) -> bool:
        """Hold a fact; the first value of a fact about the start stays, later ones replace it. True if it is news."""
        known = self.facts.get(fact.name)
        if known is not None and known.value == fact.value:
            return False
        self.facts[fact.name] = fact
        self.version += 1
        return True

    def fact_evidence(self, path: str) -> FactEvidence | None:
        """Evidence for a dotted path: an argument cites the dump's line."""
        if path.startswith("args."):
            name = path[5:].split(".", 1)[0]
            if name not in self.args:
                return None
            if path in self.facts:
                return self.facts[path]
            return FactEvidence(name=f"args.{name}", value=self.args[name], source=self.args_from, line=self.dump.line if self.dump else None)
        return self.facts.get(path)

    def root(self, root: str) -> dict[str, Json]:
        """Facts under a root as a mapping for conditions."""
        if root == "args":
            return dict(self.args)
        prefix = root + "."
        return {name[len(prefix) :]: fact.value for name, fact in self.facts.items() if name.startswith(prefix)}

    def run_root(self, now_s: float) -> dict[str, Json]:
        """The `run` root: facts, and what the state machine itself knows."""
        out = self.root("run")
        out |= {"phase": self.phase.value, "has_dump": self.dump is not None, "custom_logging": self.custom_logging}
        level = self.args.get("log_level")
        if isinstance(level, str):
            out["log_level"] = level.lower()
        if self.started_at_s is not None:
            out["age_s"] = float(now_s - self.started_at_s)
        if self.load.ready_s is not None and self.started_at_s is not None:
            out["ready_s"] = float(self.load.ready_s - self.started_at_s)
        if self.closed or self.ended_at_s is not None:
            out["end"] = self.end_kind()
        for name, line in self.last_milestones.items():
            if line.at_s is not None:
                out[f"since_{name.replace('-', '_')}_s"] = float(now_s - line.at_s)
        return out

    def end_kind(self) -> str:
        """clean, crash or unclean (ended or restarted with no line that says so)."""
        if self.phase is Phase.CRASHED:
            return "crash"
        return "clean" if self.phase in (Phase.STOPPED, Phase.STOPPING) else "unclean"

    def on_process(self, role: str, pid: int, state: str) -> str:
        """Note the state of one process; returns the worst of its role: one scheduler that runs does not excuse one that is dead."""
        if role == "launcher" and (role, pid) not in self.processes:
            self.processes.clear()  # another launcher: the children of the one before are its own end's business
        self.processes[role, pid] = state
        states = {each for (other, _), each in self.processes.items() if other == role}
        return next((each for each in _WORST_FIRST if each in states), state)

    # --- milestones ------------------------------------------------------------------------------------------------

    def on_milestone(self, name: str, rank: str, line: LineEvidence) -> Phase | None:
        """Move on; returns the phase before if it changed."""
        before = self.phase
        self.milestones.setdefault((name, rank), line)
        self.last_milestones[name] = line
        self.milestone_counts[name] = self.milestone_counts.get(name, 0) + 1
        if name in RANK_PHASE:
            self._advance_rank(rank, RANK_PHASE[name])
        elif (self.phase, name) in NEXT_PHASE:
            self.phase = NEXT_PHASE[self.phase, name]
        if name in BUSY and line.at_s is not None:
            self.load.last_busy_line_s = line.at_s
        if name == "ready" and self.load.ready_s is None:
            self.load.ready_s = line.at_s
        if self.phase is Phase.CRASHED and before is not Phase.CRASHED:
            self.crashed_in = before
        if self.phase in ENDED and before not in ENDED:
            self.ended_at_s = line.at_s
            self.closed = self.phase is Phase.STOPPED
        self._time_phases(name, rank, line)
        return before if self.phase is not before else None

    def on_batch(self) -> Phase | None:
        """A batch line: after readiness, or in a run joined late, the server is serving."""
        before = self.phase
        if self.phase in (Phase.READY, Phase.IDLE) or (self.phase is Phase.UNKNOWN and not self.milestones):
            self.phase = Phase.SERVING
        return before if self.phase is not before else None

    def reached(self, name: str, *, by_all_ranks: bool = False) -> LineEvidence | None:
        """The line that shows a milestone reached (the latest of the ranks that must reach it), or None."""
        lines = {rank: line for (milestone, rank), line in self.milestones.items() if milestone == name}
        if not lines or (by_all_ranks and set(self.ranks) - set(lines)):
            return None
        return max(lines.values(), key=lambda line: (line.at_s is not None, line.at_s or 0.0))

    def _advance_rank(self, rank: str, phase: Phase) -> None:
        known = self.ranks.get(rank, Phase.UNKNOWN)
        if START_ORDER.index(phase) >= START_ORDER.index(known) if known in START_ORDER else False:
            self.ranks[rank] = phase
        if self.phase in (Phase.UNKNOWN, Phase.STARTING, Phase.LOADING, Phase.CAPTURING):
            self.phase = min(self.ranks.values(), key=START_ORDER.index)

    def _time_phases(self, name: str, rank: str, line: LineEvidence) -> None:
        pairs = {
            "load-end": ("load-begin", "loading"),
            "capture-end": ("capture-begin", "capturing"),
            "dist-end": ("dist-begin", "distributed"),
        }
        if name in pairs:
            begin = self.milestones.get((pairs[name][0], rank))
            if begin is not None and begin.at_s is not None and line.at_s is not None:
                key = pairs[name][1]
                self.timings_s[key] = max(self.timings_s.get(key, 0.0), line.at_s - begin.at_s)
        if name == "ready" and line.at_s is not None and self.started_at_s is not None:
            self.timings_s["ready"] = line.at_s - self.started_at_s

    # --- seen from outside -----------------------------------------------------------------------------------------

    def view(self, gpus: Mapping[int, str], placement: str) -> Run:
        load = {"running_requests_max": float(self.load.max_running)}
        speed = self.load.full_speed()
        if speed is not None:
            load["decode_tokens_per_s"] = round(speed, 2)
        return Run(
            id=self.id,
            server=self.server,
            started_at_s=self.started_at_s,
            ended_at_s=self.ended_at_s,
            phase=self.phase,
            release=self.release,
            args=dict(self.args),
            facts=dict(self.facts),
            timings_s={key: round(value, 3) for key, value in sorted(self.timings_s.items())},
            load=load,
            ranks=dict(self.ranks),
            gpus=dict(gpus),
            placement_source=placement,
            model=self.model_name(),
            sources=tuple(self.sources),
            flags=self.flag_table,
            roofline=self.yardstick.view(),
        )

    def model_name(self) -> str:
        for key in ("served_model_name", "model_path"):
            value = self.args.get(key)
            if isinstance(value, str) and value:
                return value.rstrip("/").rsplit("/", 1)[-1]
        fact = self.facts.get("model.architecture")
        return str(fact.value) if fact else ""


def run_id(server: str, first_s: float | None, digest: str, first_line: str = "") -> str:
    """Identity that survives rotation, restart and replay: the first stamp and the dump's digest, else what there is."""
    what = f"{digest}|{first_s:.3f}" if first_s is not None else f"{digest}|{first_line}"
    return hashlib.sha256(f"{server}|{what}".encode()).hexdigest()[:16]


def line_of(hit: Hit) -> LineEvidence:
    return LineEvidence(source=hit.position.source, line=hit.position.line, offset=hit.position.offset, text=hit.text, at_s=hit.at_s)


def line_at(position: Position, text: str, at_s: float | None) -> LineEvidence:
    return LineEvidence(source=position.source, line=position.line, offset=position.offset, text=text, at_s=at_s)


def joins(run: RunState, dump: Dump) -> bool:
    """Whether a second dump is another node of the same server rather than its next life."""
    nodes, rank = dump.args.get("nnodes"), dump.args.get("node_rank")
    if not isinstance(nodes, int) or nodes < 2 or str(rank) in run.nodes:
        return False
    same = all(run.args.get(key) == dump.args.get(key) for key in ("model_path", "dist_init_addr", "nnodes", "tp_size"))
    young = run.started_at_s is None or dump.at_s is None or dump.at_s - run.started_at_s <= 600.0
    return same and young and run.phase in START_ORDER


__all__ = [
    "BUSY",
    "ENDED",
    "NEXT_PHASE",
    "RANK_PHASE",
    "SERVING",
    "START_ORDER",
    "AbsenceEvidence",
    "RunState",
    "joins",
    "line_at",
    "line_of",
    "run_id",
]
