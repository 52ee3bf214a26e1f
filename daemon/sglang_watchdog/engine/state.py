"""What the judges of one engine share: its runs, GPUs, sources, findings and the verdicts so far."""

from collections.abc import Collection
from dataclasses import dataclass, field

from ..model.finding import Change, LineEvidence, Run, Verdict
from ..model.observation import Json
from ..model.signature import Library, Signature
from ..model.words import Answer, Phase, State
from .absence import Silence
from .compiled import CompiledLibrary, compile_library, is_hardware, spans_runs
from .gpus import GpuState
from .lifecycle import Findings, Key
from .placement import Placement, PlacementTracker
from .products import Products
from .releases import Releases
from .roofline_inputs import Known
from .runs import RunState
from .series import Series
from .settings import EngineSettings

NEVER = float("-inf")
SILENT_S = 60.0  # as long as a hang is silent before it is called one
LOOP_S = 1800.0  # starts within this long are counted together


@dataclass(slots=True)
class EngineState:
    """One server, as the judges share it. Beside each table stands who writes it."""

    server: str
    settings: EngineSettings
    compiled: CompiledLibrary
    releases: Releases
    products: Products
    findings: Findings
    placing: PlacementTracker = field(default_factory=PlacementTracker)
    runs: list[RunState] = field(default_factory=list)  # run_keeper.py
    gpus: dict[int, GpuState] = field(default_factory=dict)  # intake.py
    sources: dict[str, dict[str, Json]] = field(default_factory=dict)  # intake.py
    faults: dict[str, int] = field(default_factory=dict)  # signature -> conditions that failed
    now_s: float = NEVER  # newest event time acted on
    tick_s: float | None = None  # last second judged
    data_s: float = NEVER  # newest event time of data, for thinning ticks in long silences
    told_s: float = NEVER  # newest stamp of a log that was handed in, acted on or not
    is_seen_alive: bool = False  # a process or an answer of the server was seen; intake.py
    launcher_started_s: float = NEVER  # of the process that was seen; intake.py
    log_s: tuple[float, float] | None = None  # first and newest stamp of logs, of samples
    sample_s: tuple[float, float] | None = None
    verdicts: dict[tuple[str, str], Verdict] = field(default_factory=dict)  # (run, signature); said.py and windowed.py
    silences: dict[tuple[str, str], Silence] = field(default_factory=dict)  # (run, signature); silences.py
    matches: dict[tuple[str, str], dict[str, Series]] = field(default_factory=dict)  # (run, signature) -> when it was said; said.py
    recent: dict[tuple[str, str], list[LineEvidence]] = field(default_factory=dict)  # lines of windowed matches: the first and the newest

    def take_library(self, library: Library) -> None:
        """Judge by `library` from now on."""
        old, self.compiled = self.compiled, compile_library(library)
        unsearched = {name for name, roles in self.compiled.roles.items() if not _was_kept(old, library, name, is_watched=roles.watched)}
        for run in self.runs:
            run.unsearched |= unsearched
        self.releases = Releases(library.releases)
        self.products = Products(library.models, library.gpus, library.shapes, library.parameter_bytes)

    def forget_verdicts(self, signatures: Collection[str]) -> None:
        """Verdicts of signatures that come back after a reload hold only where a finding says so."""
        for run, name in [key for key in self.verdicts if key[1] in signatures]:
            if self.findings.state_of(Key(self.server, run, name)) is not State.FIRING:
                del self.verdicts[run, name]

    @property
    def run(self) -> RunState | None:
        """The newest run."""
        return self.runs[-1] if self.runs else None

    def at(self) -> float | None:
        """The newest event time acted on; None before the first."""
        return self.now_s if self.now_s > NEVER else None

    def source(self, name: str) -> dict[str, Json]:
        """What is known of a source; made on its first mention."""
        return self.sources.setdefault(name, {"lines": 0, "bytes": 0, "sglang_lines": 0, "odd_lines": 0, "gaps": []})

    def view(self, run: RunState) -> Run:
        """The run as it is shown."""
        placed = self.placing.current() if run is self.run else Placement(how="the run is over")
        return run.view(placed.gpus, placed.how)

    def key(self, signature: Signature, run: RunState | None, *, gpu: str | None = None) -> Key:
        """A finding's identity: hardware by its GPU, what concerns the watching itself by server, all else by run."""
        if is_hardware(signature):
            return Key(self.server, None, signature.id, gpu or "unknown")
        if signature.topic.startswith("source.") or spans_runs(signature):
            return Key(self.server, None, signature.id)
        return Key(self.server, run.id if run is not None else None, signature.id)

    def silent_before_watch_s(self, run: RunState | None, at_s: float) -> float | None:
        """How long the log had been silent when it was opened, where only that silence is left to judge; None if the server shows life.

        A log that ended hours ago and one of a server that hangs look the same. Silences between its lines are judged as ever.
        Lines that come show life by their stamps: where those are hours off, the zone is wrong and no silence can be measured."""
        given = run.facts.get("run.silent_before_watch_s") if run is not None else None
        if given is not None and isinstance(given.value, float):
            return given.value
        since_s = self.settings.watched_since_s
        if since_s is None or at_s <= self.told_s or self.told_s == NEVER:
            return None
        if self.is_seen_alive and self.launcher_started_s <= self.told_s:  # else it is another start than the log's
            return None
        return since_s - self.told_s if since_s - self.told_s >= SILENT_S else None

    def fold(self) -> list[Change]:
        """Put symptoms of the newest run under their causes."""
        run = self.run
        return self.findings.fold(self.server, run.id if run is not None else None, frozenset(self.placing.current().gpus))

    def failed_starts(self, run: RunState | None, now_s: float) -> list[RunState]:
        """The runs before `run` that began within half an hour and did not end as somebody wanted, oldest first."""
        return [
            each
            for each in self.runs
            if each is not run and each.end_kind() != "clean" and each.started_at_s is not None and now_s - each.started_at_s <= LOOP_S
        ]

    def server_gpus(self) -> list[GpuState]:
        """The GPUs of the newest run's server."""
        wanted = set(self.placing.current().gpus)
        return [gpu for index, gpu in sorted(self.gpus.items()) if index in wanted]

    def known_of(self, run: RunState) -> Known:
        """What a ceiling's inputs may be taken from; where placement is not known, all GPUs if they are of one product."""
        gpus = self.server_gpus()
        if not gpus and len({gpu.name for gpu in self.gpus.values()}) == 1:
            gpus = list(self.gpus.values())
        return Known(
            facts=run.facts, args=run.args, args_source=run.args_from, model_name=run.model_name(), gpus=gpus, products=self.products
        )  # fmt: skip

    def note_fault(self, signature: Signature, verdict: Verdict) -> None:
        """Count a condition that failed."""
        if verdict.reason == "fault":
            self.faults[signature.id] = self.faults.get(signature.id, 0) + 1

    def remember(self, run: RunState, signature: Signature, verdict: Verdict) -> None:
        """Keep the last definite verdict: an idle end of the log does not unsay what was judged under load."""
        known = self.verdicts.get((run.id, signature.id))
        is_definite = verdict.answer in (Answer.YES, Answer.NO)
        # What was judged while lines came says nothing of a silence that nobody watched begin.
        unsays = verdict.reason == "alive" and known is not None and known.answer is Answer.NO
        if known is None or is_definite or unsays or known.answer not in (Answer.YES, Answer.NO):
            self.verdicts[run.id, signature.id] = verdict

    def gives_way(self, signature: Signature, run: RunState | None, *, own: Key | None = None, counts_pending: bool = False) -> bool:
        """Whether a finding that says more stands already, or, if asked, is about to."""
        return self.findings.stands(run.id if run is not None else None, signature.yields_to, own=own, counts_pending=counts_pending)


def _was_kept(old: CompiledLibrary, new: Library, pattern: str, *, is_watched: bool) -> bool:
    """Whether lines were searched for this pattern before a reload, and its first one kept if it is awaited or a witness."""
    roles = old.roles.get(pattern)
    return roles is not None and roles.watched >= is_watched and old.library.patterns.get(pattern) == new.patterns.get(pattern)


def in_phase(signature: Signature, run: RunState | None) -> bool:
    """A crash belongs to the phase that it ended: its traceback and the lines after it are of the start or of serving."""
    if run is None:
        return not signature.during
    phases = {run.phase, run.crashed_in} if run.phase is Phase.CRASHED else {run.phase}
    if phases & signature.not_during:
        return False
    return not signature.during or bool(phases & signature.during)
