"""The pure state machine: one observation in, what changed out. No I/O, no clock; same input, same output.

Observations of several sources are put in order of event time first; what depends on windows is judged on a grid of whole seconds
of event time, so that neither block cuts nor the order of arrival show in the results.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ..model.finding import (
    Change,
    Coverage,
    Evidence,
    FactEvidence,
    Finding,
    LineEvidence,
    Release,
    Run,
    RunChanged,
    Verdict,
)
from ..model.observation import (
    Access,
    Batch,
    Command,
    Dump,
    Gap,
    GpuEvent,
    Hit,
    Json,
    Observation,
    Opened,
    Position,
    Probe,
    ProcessSeen,
    Progress,
    Sample,
    Tally,
    Watermark,
)
from ..model.signature import Library, Milestone, Signature
from ..model.words import Answer, Kind, Phase, State
from .absence import Silence, applicability, judge_silence
from .args import flattened
from .compiled import CompiledSignature, Roles, compile_library, is_hardware
from .conditions import Context
from .gpus import GpuState
from .lifecycle import Findings, Key, Statement
from .load import Load, Steady
from .placement import Placement, PlacementTracker
from .products import Products
from .releases import Releases
from .runs import BUSY, ENDED, RANK_PHASE, SERVING, RunState, joins, line_at, line_of, run_id
from .sequencer import Sequencer
from .series import Series
from .settings import EngineSettings, FlagRecord
from .windows import Judged, Scene, judge, samples_evidence
from .words import fill, gpu_list

_NEVER = float("-inf")
_START_PHASES = frozenset({Phase.STARTING, Phase.LOADING, Phase.CAPTURING})
_DEFER_S = 2.0  # a traceback has ended by then
# Milestones and facts that tell where the server is.
_PLACED_BY = {
    "dist-begin": "dist_begin",
    "dist-end": "dist_end",
    "ready": "ready",
    "run.launcher_pid": "launcher_pid",
    "run.scheduler_pid": "scheduler_pid",
    "run.avail_gib": "avail_gib",
}
_FLAGS_AFTER_S = 10.0
_APART_S = 120.0  # a recording may begin before the first line and end after the last
_BLOCKED = ("unreadable", "failed", "permission")  # reasons of gaps that say that nothing could be read, not that bytes were lost
_LOOP_S = 1800.0  # starts within this long are counted together
_SETTLE_S = 120.0  # after readiness, silences are judged at every tick this long, then only on news


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the API and the reports show: immutable."""

    at_s: float | None
    runs: tuple[Run, ...]
    findings: tuple[Finding, ...]
    gpus: tuple[GpuState, ...]
    load: Mapping[str, Json]
    faults: Mapping[str, int]


@dataclass(slots=True)
class _Deferred:
    item: CompiledSignature
    hit: Hit
    run: "RunState | None"
    due_s: float


class Engine:
    """One server's engine."""

    def __init__(self, library: Library, *, server: str = "sglang", settings: EngineSettings | None = None) -> None:
        self.server = server
        self.settings = settings or EngineSettings()
        self.findings = Findings(self.settings.severities)
        self.runs: list[RunState] = []
        self.gpus: dict[int, GpuState] = {}
        self.placing = PlacementTracker()
        if self.settings.gpus:
            self.placing.on_fact("gpus", list(self.settings.gpus))
        self.faults: dict[str, int] = {}
        self.sources: dict[str, dict[str, Json]] = {}
        self._load_library(library)
        self._order = Sequencer()
        self._now_s = _NEVER  # newest event time acted on
        self._tick_s: float | None = None  # last second judged
        self._data_s = _NEVER  # newest event time of data, for thinning ticks in long silences
        self._prelude: list[Hit] = []
        self._prelude_since: float | None = None
        self._deferred: list[_Deferred] = []
        self._unless: dict[tuple[str, int], set[str]] = {}
        self._contexts: dict[str, Context] = {}
        self._context_versions: dict[str, int] = {}
        self._context_of: tuple[str, float | None, int] | None = None  # what the newest context was filled for
        self._matches: dict[tuple[str, str], dict[str, Series]] = {}
        self._silences: dict[tuple[str, str], Silence] = {}
        self._silences_seen: dict[str, tuple[int, int]] = {}
        self._verdicts: dict[tuple[str, str], Verdict] = {}
        self._closed_judged: set[str] = set()
        self._log_s: tuple[float, float] | None = None  # first and newest stamp of logs, of samples
        self._sample_s: tuple[float, float] | None = None
        self._last_counted: dict[tuple[str, str], Position] = {}
        self._recent: dict[tuple[str, str], list[LineEvidence]] = {}  # lines of windowed matches: the first and the newest
        self._steady: Steady | None = None
        self._steady_at: float | None = None
        self._load_root: dict[str, Json] = {}

    def _load_library(self, library: Library) -> None:
        self.compiled = compile_library(library)
        self.releases = Releases(library.releases)
        self.products = Products(library.models, library.gpus)

    def reload(self, library: Library) -> list[Change]:
        """Take a new library; the state of signatures that did not change survives, findings of vanished ones expire."""
        self._load_library(library)
        self._contexts.clear()
        self._context_versions.clear()
        self._silences.clear()
        self._silences_seen.clear()
        gone = [f for f in self.findings.all() if f.signature not in library.signatures and f.state is State.FIRING]
        return [change for f in gone for change in self.findings.expire(f.id, self._at())]

    # --- input -----------------------------------------------------------------------------------------------------

    def announce(self, source: str) -> None:
        """A source that will speak: nothing that it might still precede is acted on before it did."""
        self._order.announce(source)

    def withdraw(self, source: str) -> list[Change]:
        """A source that ended or is stuck no longer holds the others back."""
        return self._act(self._order.withdraw(source))

    def feed(self, observation: Observation) -> list[Change]:
        """Take one observation, return what changed."""
        if isinstance(observation, Command):
            return self._on_command(observation)
        source, at_s = _source_of(observation), _time_of(observation)
        return self._act(self._order.feed(source, at_s, observation))

    def settle(self) -> list[Change]:
        """All sources are quiet and were read to their end: judge the newest second too, and what waited for more lines."""
        changes = self._act(self._order.drain())
        changes += self._flush_prelude()
        if self._now_s > _NEVER:
            changes += self._tick_to(self._now_s, inclusive=True)
        changes += self._flush_deferred(float("inf"))
        return changes + self._fold()

    def finish(self, until_s: float | None = None) -> list[Change]:
        """The end of everything. `until_s` adds silence that the user knows of."""
        changes = self.settle()
        if until_s is not None and until_s > self._now_s:
            changes += self._tick_to(until_s, inclusive=True)
        return changes + self._judge_silences(over=True) + self._fold()

    # --- order and time --------------------------------------------------------------------------------------------

    def _act(self, released: Iterator[Observation]) -> list[Change]:
        changes: list[Change] = []
        for observation in released:
            at_s = _time_of(observation)
            if isinstance(observation, Watermark):
                continue
            if at_s is not None:
                changes += self._tick_to(at_s, inclusive=False)
                self._now_s = max(self._now_s, at_s)
                self._data_s = max(self._data_s, at_s)
                if isinstance(observation, Sample):
                    self._sample_s = _widened(self._sample_s, at_s)
                elif getattr(observation, "position", None) is not None:
                    self._log_s = _widened(self._log_s, at_s)
            changes += self._apply(observation)
        low = self._order.low_s
        if self._now_s > _NEVER and math.isfinite(low):
            changes += self._tick_to(low, inclusive=True)
            self._now_s = max(self._now_s, low)
        return changes

    def _tick_to(self, to_s: float, *, inclusive: bool) -> list[Change]:
        """Judge every whole second that has passed entirely; long silences are judged more and more rarely."""
        last = math.floor(to_s) if inclusive or to_s != math.floor(to_s) else math.floor(to_s) - 1
        if self._tick_s is None:
            self._tick_s = float(last)
            return self._tick(self._tick_s) if inclusive else []
        changes: list[Change] = []
        while self._tick_s < last:
            quiet = self._tick_s - self._data_s
            step = 1.0 if quiet < 150 else 5.0 if quiet < 900 else math.floor(quiet / 60)  # a log of last year is caught up in seconds
            self._tick_s = min(self._tick_s + step, float(last))
            changes += self._tick(self._tick_s)
        return changes

    def _at(self) -> float | None:
        return self._now_s if self._now_s > _NEVER else None

    @property
    def run(self) -> RunState | None:
        """The newest run."""
        return self.runs[-1] if self.runs else None

    # --- one observation -------------------------------------------------------------------------------------------

    def _apply(self, observation: Observation) -> list[Change]:
        self._context_of = None
        match observation:
            case Hit():
                return self._on_hit(observation)
            case Batch():
                return self._on_batch(observation)
            case Access():
                return self._on_access(observation)
            case Dump():
                return self._on_dump(observation)
            case Progress():
                return self._on_progress(observation)
            case Sample():
                return self._on_sample(observation)
            case Tally():
                return self._on_tally(observation)
            case Gap():
                return self._on_gap(observation)
            case Opened():
                self._source(observation.source)["from_start"] = observation.from_start
                return []
            case GpuEvent():
                return self._on_gpu_event(observation)
            case Probe():
                return self._on_probe(observation)
            case ProcessSeen():
                return self._on_process(observation)
        return []

    def _on_hit(self, hit: Hit) -> list[Change]:
        roles = self.compiled.roles.get(hit.pattern)
        if roles is None:
            return []
        names = {milestone.name for milestone in roles.milestones}
        hardware = [item for item in roles.match if is_hardware(item.signature)]
        if hardware and not names and len(hardware) == len(roles.match):
            return self._matches_of(hit, self.run, roles.match)
        run = self.run
        changes: list[Change] = []
        if run is None or self._begins_anew(run, names):
            if not self._opens_run(names, roles.match):
                self._prelude.append(hit)
                self._prelude_since = self._prelude_since if self._prelude_since is not None else hit.at_s
                return []
            changes += self._flush_prelude(force=True, first=hit)
            if self.run is run:
                changes += self._open_run(hit.at_s, "", line_of(hit), hit.position.source)
            run = self.run
        if run is None:
            return changes
        return changes + self._hit_in_run(hit, run, roles)

    def _hit_in_run(self, hit: Hit, run: RunState, roles: Roles) -> list[Change]:
        changes: list[Change] = []
        self._touch(run, hit.position.source, hit.at_s)
        if roles.watched:
            key = (hit.pattern, hit.rank)
            if key not in run.first_hits:
                run.first_hits[key] = line_of(hit)
        changes += self._said_after_all(hit, run)
        if roles.unless:
            self._not_that(hit)
        # Matches are judged in the phase that held before the line: a crash line in STOPPING is an orderly stop's.
        changes += self._matches_of(hit, run, roles.match)
        for milestone in roles.milestones:
            changes += self._on_milestone(milestone, hit, run)
        for item in roles.resolve:
            changes += self.findings.resolve(self._key(item.signature, run), hit.at_s)
        return changes

    def _begins_anew(self, run: RunState, names: set[str]) -> bool:
        """Whether a line belongs to the life after `run`: launcher lines before a dump, once the run has got somewhere."""
        if self._prelude:
            return not (names & set(RANK_PHASE))
        return "prelude" in names and (run.phase in ENDED or run.phase in SERVING or run.phase is Phase.STOPPING or run.closed)

    @staticmethod
    def _opens_run(names: set[str], match: Sequence[CompiledSignature]) -> bool:
        """Without a dump, these show that a run is there: progress of its ranks, or its failure."""
        if names & {*RANK_PHASE, *BUSY, "ready", "sigterm", "exception", "sigquit", "child-died", "shutdown-complete"}:
            return True
        return any(item.signature.severity.rank == 2 and item.signature.kind is Kind.FORBIDDEN for item in match)

    def _flush_prelude(self, *, force: bool = False, first: Hit | None = None) -> list[Change]:
        """Lines held for a dump that did not come belong to the run there is, or to one without a dump."""
        if not self._prelude:
            return []
        held, self._prelude, self._prelude_since = self._prelude, [], None
        changes: list[Change] = []
        if self.run is None or force:
            head = held[0]
            changes += self._open_run(
                head.at_s if head.at_s is not None else (first.at_s if first else None), "", line_of(head), head.position.source
            )
        run = self.run
        assert run is not None
        for hit in held:
            changes += self._hit_in_run(hit, run, self.compiled.roles[hit.pattern])
        return changes

    # --- runs ------------------------------------------------------------------------------------------------------

    def _on_dump(self, dump: Dump) -> list[Change]:
        run = self.run
        line = line_at(dump.position, dump.text, dump.at_s)
        if dump.update:
            return self._on_new_args(dump, run)
        if run is not None and not self._prelude and run.dump is not None and joins(run, dump):
            run.nodes.add(str(dump.args.get("node_rank")))
            self._touch(run, dump.position.source, dump.at_s)
            return []
        held, self._prelude, self._prelude_since = self._prelude, [], None
        if run is not None and not run.closed and run.id == run_id(self.server, dump.at_s, dump.digest, line.text):
            # The same start in another file (a rotated part beside a copy of the whole): one run, not a start that ended at once.
            self._touch(run, dump.position.source, dump.at_s)
            return [change for hit in held for change in self._hit_in_run(hit, run, self.compiled.roles[hit.pattern])]
        changes = self._open_run(dump.at_s, dump.digest, line, dump.position.source)
        run = self.run
        assert run is not None
        run.dump, run.dump_complete, run.phase = line, dump.complete, Phase.STARTING
        if held and held[0].position.source == dump.position.source:
            run.first_line = line_of(held[0])
        run.args, run.args_from = flattened(dump.args), dump.position.source
        run.nodes.add(str(dump.args.get("node_rank")))
        if dump.release_min is not None and dump.release_max is not None:
            run.release = Release(min=dump.release_min, max=dump.release_max, source="inferred")
        self.placing.on_fact("args", run.args)
        chunk = run.args.get("chunked_prefill_size")
        run.load.chunk_size = chunk if isinstance(chunk, int) and chunk > 0 else None
        run.version += 1
        for hit in held:
            changes += self._hit_in_run(hit, run, self.compiled.roles[hit.pattern])
        return [*changes, RunChanged(dump.at_s, self._view(run), Phase.UNKNOWN)]

    @staticmethod
    def _on_new_args(dump: Dump, run: RunState | None) -> list[Change]:
        """`Global server args updated!` of a rank: the run goes on with other arguments."""
        if run is not None and run.dump is not None:
            run.args = run.args | flattened(dump.args)
            run.version += 1
        return []

    def _open_run(self, at_s: float | None, digest: str, line: LineEvidence, source: str) -> list[Change]:
        changes = self._close_run(at_s)
        run = RunState(run_id(self.server, at_s, digest, line.text), self.server, at_s, Load(self.settings.load), first_line=line)
        run.sources.append(source)
        gaps = self._source(source).get("gaps")
        if isinstance(gaps, list):
            gaps.clear()
        self.runs.append(run)
        self.placing.new_run(at_s)
        if len(self.runs) > self.settings.keep_runs:
            self._forget(self.runs.pop(0))
        return [*changes, RunChanged(at_s, self._view(run), None)]

    def _close_run(self, at_s: float | None) -> list[Change]:
        run = self.run
        if run is None:
            return []
        changes = self._flush_deferred(float("inf"))
        if run.ended_at_s is None:
            run.ended_at_s = run.last_line_s
        was, run.closed = run.phase, True
        if run.phase not in ENDED:
            run.facts["run.restarted"] = FactEvidence(name="run.restarted", value=True, source=run.sources[-1])
            run.version += 1
        changes += self._judge_end(run, at_s)
        changes += self.findings.close_run(run.id, at_s)
        self._prune(run)
        return [*changes, RunChanged(at_s, self._view(run), was)]

    def _judge_end(self, run: RunState, at_s: float | None) -> list[Change]:
        """Signatures about how a run ended are judged once, when it has."""
        if run.id in self._closed_judged:
            return []
        self._closed_judged.add(run.id)
        enders = [item for item in self.compiled.windowed if any("run.end" in c.paths for c in item.when)]
        changes: list[Change] = []
        for item in enders:
            changes += self._judge_windowed(item, run, at_s if at_s is not None else 0.0)
        return changes

    def _prune(self, run: RunState) -> None:
        run.load.series.clear()
        self._contexts.pop(run.id, None)
        self._context_versions.pop(run.id, None)
        for key in [key for key in self._matches if key[0] == run.id]:
            del self._matches[key]

    def _forget(self, run: RunState) -> None:
        self.findings.forget(frozenset(kept.id for kept in self.runs))
        for table in (self._silences, self._verdicts):
            for key in [key for key in table if key[0] == run.id]:
                del table[key]
        self._silences_seen.pop(run.id, None)
        self._closed_judged.discard(run.id)

    def _touch(self, run: RunState, source: str, at_s: float | None) -> None:
        if source not in run.sources:
            run.sources.append(source)
        if at_s is not None:
            run.last_line_s = at_s
            if run.started_at_s is None:
                run.started_at_s = at_s

    def _on_milestone(self, milestone: Milestone, hit: Hit, run: RunState) -> list[Change]:
        line = line_of(hit)
        before = run.on_milestone(milestone.name, hit.rank, line)
        if milestone.name in _PLACED_BY:
            self.placing.on_fact(_PLACED_BY[milestone.name], None, at_s=hit.at_s, rank=hit.rank)
        if milestone.name == "retracted":
            run.load.on_retracted(int(hit.captures.get("count", "1") or 1))
        for name, source in milestone.facts.items():
            group, _, kind = source.rpartition(":")
            value = _typed(hit.captures.get(group), kind)
            if value is not None and name in _PLACED_BY:
                self.placing.on_fact(_PLACED_BY[name], value, at_s=hit.at_s, rank=hit.rank)
            if value is not None and run.learn(FactEvidence(name=name, value=value, source=line.source, line=line.line)):
                self._implied(run, name, value, line)
        changes: list[Change] = [] if before is None else [RunChanged(hit.at_s, self._view(run), before)]
        if run.phase in ENDED and before is not None:
            changes += self._flush_deferred(float("inf"), run) if run.phase is Phase.STOPPED else []
            if run.phase is Phase.STOPPED:
                changes += self._judge_end(run, hit.at_s) + self.findings.close_run(run.id, hit.at_s)
        return changes

    def _implied(self, run: RunState, fact: str, value: Json, line: LineEvidence) -> None:
        """What an architecture or a product name implies, and a stated release."""
        if fact == "run.sglang_version" and isinstance(value, str):
            run.release = Release(min=value, max=value, source="stated")
        implied = self.products.facts_of(fact, str(value))
        for name, known in implied.items():
            if name not in run.facts:
                run.learn(FactEvidence(name=name, value=known, source=line.source, line=line.line))

    # --- load ------------------------------------------------------------------------------------------------------

    def _run_for(self, at_s: float | None, line: LineEvidence) -> tuple[RunState | None, list[Change]]:
        changes: list[Change] = []
        if self.run is None:
            changes += self._flush_prelude()
        if self.run is None:
            changes += self._open_run(at_s, "", line, line.source)
        elif self._prelude and not self.run.closed:
            changes += self._flush_prelude()
        return self.run, changes

    def _on_batch(self, batch: Batch) -> list[Change]:
        run, changes = self._run_for(batch.at_s, line_at(batch.position, batch.text, batch.at_s))
        if run is None:
            return changes
        self._touch(run, batch.position.source, batch.at_s)
        if batch.at_s is None:
            return changes
        if run.load.first_batch_s is None:
            self.placing.on_fact("ready", None, at_s=batch.at_s)
        run.load.on_batch(batch, batch.at_s)
        before = run.on_batch()
        return changes if before is None else [*changes, RunChanged(batch.at_s, self._view(run), before)]

    def _on_access(self, access: Access) -> list[Change]:
        run = self.run
        if run is not None and access.at_s is not None:
            self._touch(run, access.position.source, access.at_s)
            run.load.on_access(access, access.at_s)
        return []

    def _on_progress(self, progress: Progress) -> list[Change]:
        run = self.run
        if run is None or progress.total <= 0:
            return []
        prefix = f"run.progress_{progress.what}"
        facts: dict[str, Json] = {f"{prefix}_done": progress.done, f"{prefix}_total": progress.total}
        if progress.elapsed_s is not None:
            facts[f"{prefix}_s"] = float(progress.elapsed_s)
        for name, value in facts.items():
            run.learn(FactEvidence(name=name, value=value, source=progress.position.source, line=progress.position.line))
        at_s = progress.at_s if progress.at_s is not None else self._at()
        if at_s is not None:
            run.load.add("progress", at_s, progress.done / progress.total)
        return []

    # --- GPUs ------------------------------------------------------------------------------------------------------

    def _on_sample(self, sample: Sample) -> list[Change]:
        gpu = self.gpus.setdefault(sample.gpu, GpuState(sample.gpu))
        gpu.on_sample(sample)
        self.placing.on_sample(sample)
        if sample.xid:
            gpu.add(f"extra.xid_{sample.xid}", sample.at_s, 1.0)
        self._count_processes(gpu, sample)
        return []

    def _count_processes(self, gpu: GpuState, sample: Sample) -> None:
        """How many processes on the GPU are the server's and how many are nobody's that we know."""
        if sample.processes is None:
            return
        foreign = [self.placing.is_foreign(process) for process in sample.processes]
        if None not in foreign:
            gpu.add("foreign_processes", sample.at_s, float(sum(bool(each) for each in foreign)))
            gpu.add("server_processes", sample.at_s, float(sum(not each for each in foreign)))

    def _on_gpu_event(self, event: GpuEvent) -> list[Change]:
        gpu = self.gpus.setdefault(event.gpu, GpuState(event.gpu))
        name = f"extra.event_{event.event}" if event.xid is None else f"extra.xid_{event.xid}"
        for series_name in dict.fromkeys((name, f"extra.event_{event.event}")):
            gpu.add(series_name, event.at_s, 1.0)
        if event.event == "lost":
            gpu.lost_s = event.at_s
        return []

    def server_gpus(self) -> list[GpuState]:
        """The GPUs of the newest run's server."""
        wanted = set(self.placing.current().gpus)
        return [gpu for index, gpu in sorted(self.gpus.items()) if index in wanted]

    # --- other sources ---------------------------------------------------------------------------------------------

    def _source(self, name: str) -> dict[str, Json]:
        return self.sources.setdefault(name, {"lines": 0, "bytes": 0, "sglang_lines": 0, "odd_lines": 0, "gaps": []})

    def _on_tally(self, tally: Tally) -> list[Change]:
        source = self._source(tally.source)
        for name in ("lines", "bytes", "sglang_lines", "odd_lines"):
            source[name] = _count(source, name) + getattr(tally, name)
        if self.run is not None and tally.odd_lines:
            self.run.custom_logging = True
            self.run.version += 1
        return []

    def _on_gap(self, gap: Gap) -> list[Change]:
        source = self._source(gap.source)
        gaps = source["gaps"]
        if isinstance(gaps, list):
            gaps.append(
                {
                    "from_s": gap.from_s,
                    "to_s": gap.to_s,
                    "reason": gap.reason,
                    "from_offset": gap.from_offset,
                    "to_offset": gap.to_offset,
                }
            )
        if self.run is not None and gap.source in self.run.sources and not gap.reason.startswith(_BLOCKED):
            self.run.gaps.append(gap)
            self.run.version += 1
        return []

    def _on_probe(self, probe: Probe) -> list[Change]:
        run = self.run
        if run is None:
            return []
        for name, value in probe.facts.items():
            if name.startswith("args."):
                if run.dump is None:
                    run.args.setdefault(name[5:], value)
                    run.args_from = run.args_from or probe.origin
                    run.facts.setdefault(name, FactEvidence(name=name, value=value, source=probe.origin))
            else:
                run.learn(FactEvidence(name=name, value=value, source=probe.origin))
            if name == "run.sglang_version" and isinstance(value, str):
                run.release = Release(min=value, max=value, source="probed")
        run.version += 1
        return [RunChanged(probe.at_s, self._view(run), run.phase)] if probe.facts else []

    def _on_process(self, seen: ProcessSeen) -> list[Change]:
        run = self.run
        if run is None:
            return []
        facts: dict[str, Json] = {f"run.{seen.role}_state": seen.state, f"run.{seen.role}_state_since_s": seen.at_s}
        if seen.port_open is not None:
            facts["run.port_open"] = seen.port_open
        news = [run.learn(FactEvidence(name=name, value=value, source=seen.source)) for name, value in facts.items()]
        return [RunChanged(seen.at_s, self._view(run), run.phase)] if any(news) else []

    def _on_command(self, command: Command) -> list[Change]:
        match command.action:
            case "acknowledge":
                return self.findings.overlay(command.target, acknowledged_by=command.by, acknowledged_note=command.note)
            case "unacknowledge":
                return self.findings.overlay(command.target, acknowledged_by=None, acknowledged_note="")
            case "silence" | "unsilence":
                until = command.until_s if command.action == "silence" else None
                hit = [f.id for f in self.findings.all() if _matches_silence(f, command.matchers)]
                return [change for one in hit for change in self.findings.overlay(one, silenced_until_s=until)]
        return []

    # --- said: forbidden -------------------------------------------------------------------------------------------

    def _matches_of(self, hit: Hit, run: RunState | None, items: Sequence[CompiledSignature]) -> list[Change]:
        changes: list[Change] = []
        for item in items:
            if run is None and not is_hardware(item.signature):
                continue
            if not self._in_phase(item.signature, run):
                continue
            one = (run.id if run is not None else "", item.signature.id)
            if self._last_counted.get(one) == hit.position:
                continue  # another pattern of the same signature matched the same line: said once
            self._last_counted[one] = hit.position
            self._count_match(item, hit, run)
            if item.is_windowed:
                continue
            if item.signature.unless or item.signature.yields_to:
                if not self._unless.get(_block(hit), set()) & set(item.signature.unless):
                    self._deferred.append(_Deferred(item, hit, run, (hit.at_s if hit.at_s is not None else self._now_s) + _DEFER_S))
                continue
            changes += self._fire(item, hit, run)
        return changes

    @staticmethod
    def _in_phase(signature: Signature, run: RunState | None) -> bool:
        """A crash belongs to the phase that it ended: its traceback and the lines after it are of the start or of serving."""
        if run is None:
            return not signature.during
        phases = {run.phase, run.crashed_in} if run.phase is Phase.CRASHED else {run.phase}
        if phases & signature.not_during:
            return False
        return not signature.during or bool(phases & signature.during)

    def _count_match(self, item: CompiledSignature, hit: Hit, run: RunState | None) -> None:
        at_s = hit.at_s if hit.at_s is not None else self._at()
        if at_s is None:
            return
        table = self._matches.setdefault((run.id if run else "", item.signature.id), {})
        table.setdefault("match", Series()).add(at_s, 1.0)
        for name, text in hit.captures.items():
            value = _typed(text, "float")
            if isinstance(value, float):
                table.setdefault(f"match.{name}", Series()).add(at_s, value)
        if run is not None and item.is_windowed:
            run.first_hits.setdefault((f"match:{item.signature.id}", ""), line_of(hit))
            recent = self._recent.setdefault((run.id, item.signature.id), [])
            recent.append(line_of(hit))
            del recent[8:-4]

    def _fire(self, item: CompiledSignature, hit: Hit, run: RunState | None) -> list[Change]:
        signature, at_s = item.signature, hit.at_s if hit.at_s is not None else self._at()
        context = self._context(run, at_s)
        w: Mapping[str, float] = {}
        verdict = applicability(signature, item.applies, context)
        if verdict is None and (item.when or signature.windows or signature.needs):
            judged = self._windowed(item, run, at_s if at_s is not None else 0.0, context)
            verdict, w = (None if judged.verdict.answer is Answer.YES else judged.verdict), judged.w
        if run is not None:
            self._verdicts[run.id, signature.id] = verdict or Verdict(Answer.YES, "it was said")
        if verdict is not None:
            return []
        if run is not None:
            for name, value in signature.concludes.items():
                run.learn(FactEvidence(name=name, value=value, source=hit.position.source, line=hit.position.line))

        def state() -> Statement:
            lines: list[LineEvidence] = [line_of(hit)]
            if run is not None and item.uses_log and item.when:
                lines += self._batch_lines(run, 3)

            def summary(count: int, ranks: tuple[str, ...]) -> str:
                of_ranks = {"rank": hit.rank, "ranks": ", ".join(ranks) or "the server", "count": count}
                return self._words(signature, context, {**hit.captures, **of_ranks}, w)

            return Statement(
                summary=summary,
                lines=tuple(lines),
                ranks=(hit.rank,),
                other=self._fact_evidence(item, run),
                gpu_uuid=None,
                gpus=_gpu_of(hit),
            )

        key = self._key(signature, run, gpu=hit.captures.get("bus") or hit.captures.get("gpu"))
        changes = self.findings.judge(key, signature, Answer.YES, at_s, state, hold_s=0.0)
        return changes + (self._fold() if changes else [])

    def _not_that(self, hit: Hit) -> None:
        """A pattern that makes the record another matter: drop what waits on the same record or traceback."""
        self._unless.setdefault(_block(hit), set()).add(hit.pattern)
        if len(self._unless) > 256:
            self._unless.pop(next(iter(self._unless)))
        self._deferred = [d for d in self._deferred if not (_block(d.hit) == _block(hit) and hit.pattern in d.item.signature.unless)]

    def _flush_deferred(self, now_s: float, run: RunState | None = None) -> list[Change]:
        due = [d for d in self._deferred if d.due_s <= now_s and (run is None or d.run is run)]
        if not due:
            return []
        self._deferred = [d for d in self._deferred if d not in due]
        return [change for d in due if not self._gives_way(d.item.signature, d.run) for change in self._fire(d.item, d.hit, d.run)]

    def _gives_way(self, signature: Signature, run: RunState | None) -> bool:
        """Whether a finding that says more stands already."""
        return self.findings.stands(run.id if run is not None else None, signature.yields_to)

    # --- not said: expected and missing -----------------------------------------------------------------------------

    def _said_after_all(self, hit: Hit, run: RunState) -> list[Change]:
        changes: list[Change] = []
        for item in self.compiled.absences:
            if hit.pattern in item.signature.await_:
                changes += self.findings.resolve(self._key(item.signature, run), hit.at_s)
        return changes

    def _judge_silences(self, *, over: bool = False) -> list[Change]:
        run = self.run
        if run is None or (run.closed and not over):
            return []
        seen = (run.version, len(run.first_hits) + len(run.milestones))
        settled = run.load.ready_s is not None and self._now_s > run.load.ready_s + _SETTLE_S
        if not over and settled and self._silences_seen.get(run.id) == seen:
            return []
        self._silences_seen[run.id] = seen
        context = self._context(run, self._at())
        changes: list[Change] = []
        now = self._tick_s if self._tick_s is not None else 0.0
        for item in self.compiled.absences:
            absence = item.signature.absence
            assert absence is not None
            silence = judge_silence(item.signature, absence, item.applies, run, context, self.releases, now, over=over)
            if silence.verdict.answer is Answer.YES and item.when:
                judged = self._windowed(item, run, now, context)
                if judged.verdict.answer is not Answer.YES:
                    silence = Silence(judged.verdict)
            self._silences[run.id, item.signature.id] = silence
            if silence.verdict.answer is Answer.YES and not self._gives_way(item.signature, run):
                changes += self._conclude(item, run, silence, context)
            self._note_fault(item.signature, silence.verdict)
        return changes + (self._fold() if changes else [])

    def _conclude(self, item: CompiledSignature, run: RunState, silence: Silence, context: Context) -> list[Change]:
        signature, at_s = item.signature, self._at()
        key = self._key(signature, run)
        if self.findings.state_of(key) is State.FIRING:
            return []
        for name, value in signature.concludes.items():
            run.learn(FactEvidence(name=name, value=value, source=run.sources[0]))

        def state() -> Statement:
            lines = [silence.until] if silence.until is not None else []
            other: list[Evidence] = [silence.evidence] if silence.evidence is not None else []
            return Statement(
                summary=self._words(signature, context, {"count": 1, "ranks": ", ".join(run.ranks)}, {}),
                lines=tuple(lines),
                other=(*other, *self._fact_evidence(item, run)),
                ranks=tuple(run.ranks),
            )

        return self.findings.judge(key, signature, Answer.YES, at_s, state, hold_s=0.0)

    # --- flags -----------------------------------------------------------------------------------------------------

    def _judge_flags(self, run: RunState, at_s: float | None) -> list[Change]:
        """Once for each run, when it is ready and the facts about model and GPU are in: one finding for each flag that does nothing."""
        judge_flags = self.settings.flag_judge
        if judge_flags is None or run.flags_judged or run.dump is None or not run.dump_complete:
            return []
        run.flags_judged = True
        gpu = {f"gpu.{name}": value for name, value in self._gpu_root(run).items()}
        facts = {name: fact.value for name, fact in run.facts.items()} | gpu
        changes: list[Change] = []
        for record in judge_flags(run.args, run.release, facts):
            signature = self._flag_signature(record)
            if signature is None:
                continue
            evidence = run.fact_evidence(f"args.{record.field}")
            statement = Statement(summary=record.summary, lines=(run.dump,), other=(evidence,) if evidence is not None else ())
            key = self._key(signature, run)
            changes += self.findings.judge(key, signature, Answer.YES, at_s, partial(_said, statement), hold_s=0.0)
        return changes

    def _flag_signature(self, record: FlagRecord) -> Signature | None:
        known = self.compiled.library.signatures.get(record.signature)
        severity = self.compiled.library.topics.get(record.topic)
        if known is None or severity is None:
            return None
        return replace(
            known, topic=record.topic, severity=severity, title=record.title, explanation=record.explanation,
            remediation=record.remediation, references=record.references, hold_s=0.0,
        )  # fmt: skip

    # --- windows -----------------------------------------------------------------------------------------------------

    def _tick(self, at_s: float) -> list[Change]:
        changes: list[Change] = []
        self._context_of = None
        if self._prelude_since is not None and at_s - self._prelude_since > self.settings.prelude_s:
            changes += self._flush_prelude()
        run = self.run
        if run is not None:
            changes += self._idle(run, at_s)
        changes += self._flush_deferred(at_s)
        changes += self._judge_silences()
        if run is not None and run.load.ready_s is not None and at_s >= run.load.ready_s + _FLAGS_AFTER_S:
            changes += self._judge_flags(run, at_s)
        self._tick_steady(run, at_s)
        for item in self.compiled.windowed:
            if run is None or run.closed:
                if is_hardware(item.signature) or item.signature.topic.startswith("source."):
                    changes += self._judge_windowed(item, run, at_s)
            else:
                changes += self._judge_windowed(item, run, at_s)
        return changes

    def _tick_steady(self, run: RunState | None, at_s: float) -> None:
        self._steady_at = at_s
        self._steady = run.load.steady(at_s) if run is not None and not run.closed else None
        self._load_root = self._root_of_load(run, at_s)

    def _root_of_load(self, run: RunState | None, at_s: float) -> dict[str, Json]:
        return run.load.root(at_s) if run is not None else {}

    def _idle(self, run: RunState, at_s: float) -> list[Change]:
        lines = run.load.series.get("batch_lines")
        if run.phase is not Phase.SERVING or lines is None or lines.newest is None:
            return []
        if at_s - lines.newest[0] <= self.settings.idle_after_s:
            return []
        run.phase = Phase.IDLE
        return [RunChanged(at_s, self._view(run), Phase.SERVING)]

    def _scene(self, item: CompiledSignature, run: RunState | None, at_s: float, gpus: Sequence[GpuState]) -> Scene:
        if self._steady_at != at_s:
            self._tick_steady(run, at_s)
        matches = self._matches.get((run.id if run else "", item.signature.id), {})
        return Scene(at_s, run.load if run else None, self._steady, self._load_root, gpus, matches)

    def _windowed(self, item: CompiledSignature, run: RunState | None, at_s: float, context: Context) -> Judged:
        return judge(item, self._scene(item, run, at_s, self.server_gpus()), context)

    def _judge_windowed(self, item: CompiledSignature, run: RunState | None, at_s: float) -> list[Change]:
        signature = item.signature
        hardware = is_hardware(signature)
        gpus = list(self.gpus.values()) if hardware and signature.topic.startswith("gpu.") and run is None else self.server_gpus()
        if not self._in_phase(signature, run) and not hardware:
            return []
        context = self._context(run, at_s)
        elsewhere = self._other_release(signature, run)
        if elsewhere is not None:
            return self._settle_windowed(item, run, at_s, Judged(elsewhere, {}, at_s), gpus, context)
        if signature.each == "gpu":
            return self._judge_each(item, run, at_s, gpus, context)
        judged = judge(item, self._scene(item, run, at_s, gpus), context)
        return self._settle_windowed(item, run, at_s, judged, gpus, context)

    def _other_release(self, signature: Signature, run: RunState | None) -> Verdict | None:
        """Why a conclusion from a release's sources does not hold for this run; a line that was said needs no release."""
        if not signature.releases or signature.match:
            return None
        covered = self.releases.covers(signature.releases, run.release) if run is not None else None
        if covered is True:
            return None
        if covered is False:
            return Verdict(Answer.NOT_APPLICABLE, f"it holds for {signature.releases} only", "", "releases")
        return Verdict(
            Answer.UNKNOWN,
            f"it holds for {signature.releases} only, and the release is not known well enough",
            "name the release: the server's address for /server_info, or a log that states it",
            "releases",
        )

    def _judge_each(
        self, item: CompiledSignature, run: RunState | None, at_s: float, gpus: Sequence[GpuState], context: Context
    ) -> list[Change]:
        """One verdict a GPU; hardware findings are one a GPU, others one a run that names the GPUs."""
        judged = {gpu.index: judge(item, self._scene(item, run, at_s, [gpu]), context, [g for g in gpus if g is not gpu]) for gpu in gpus}
        if is_hardware(item.signature):
            return [change for gpu in gpus for change in self._settle_windowed(item, run, at_s, judged[gpu.index], [gpu], context, gpu)]
        guilty = [gpu for gpu in gpus if judged[gpu.index].verdict.answer is Answer.YES]
        if guilty:
            worst = judged[guilty[0].index]
            return self._settle_windowed(item, run, at_s, worst, guilty, context)
        if not judged:
            none = Judged(Verdict(Answer.UNKNOWN, "no telemetry of this server's GPUs", "add --telemetry", "telemetry"), {}, at_s)
            return self._settle_windowed(item, run, at_s, none, [], context)
        answers = [j for j in judged.values() if j.verdict.answer is not Answer.NO] or list(judged.values())
        return self._settle_windowed(item, run, at_s, answers[0], [], context)

    def _settle_windowed(
        self,
        item: CompiledSignature,
        run: RunState | None,
        at_s: float,
        judged: Judged,
        gpus: Sequence[GpuState],
        context: Context,
        gpu: GpuState | None = None,
    ) -> list[Change]:
        signature, verdict = item.signature, judged.verdict
        self._note_fault(signature, verdict)
        if run is not None:
            self._remember(run, signature, verdict)
        key = self._key(signature, run, gpu=gpu.key if gpu else None)
        answer = verdict.answer
        if answer is Answer.YES and signature.yields_to and self._gives_way(signature, run):
            answer = Answer.NO
        if answer is not Answer.YES and signature.resolve_when and self.findings.state_of(key) is State.FIRING:
            answer = self._cleared(item, context)
        if answer is not Answer.YES and self.findings.state_of(key) is None:
            return []
        if answer is Answer.YES and run is not None:
            for name, value in signature.concludes.items():
                run.learn(FactEvidence(name=name, value=value, source="engine"))

        was = self.findings.state_of(key)

        def state() -> Statement:
            scene = self._scene(item, run, at_s, gpus)
            lines: list[LineEvidence] = []
            if run is not None:
                lines += self._recent.get((run.id, signature.id), [])
                if item.uses_log:
                    lines += self._window_lines(run, judged.from_s, at_s)
            indices = tuple(g.index for g in gpus) if item.uses_gpus or signature.each else ()
            values: dict[str, object] = {"gpus": gpu_list(indices), "count": len(lines), "ranks": "", "gpu_count": len(indices)}
            return Statement(
                summary=self._words(signature, context, values, judged.w),
                lines=tuple(lines),
                other=(*samples_evidence(item, scene, judged.from_s), *self._fact_evidence(item, run)),
                gpus=indices,
                gpu_uuid=gpu.uuid if gpu else None,
                count=0 if was is State.FIRING else 1,  # seconds in which it holds are not occurrences
            )

        changes = self.findings.judge(key, signature, answer, at_s, state)
        return changes + (self._fold() if changes else [])

    @staticmethod
    def _cleared(item: CompiledSignature, context: Context) -> Answer:
        """With `resolve_when`, only that clears; until then the finding stays as it is."""
        done = all(condition.evaluate(context) is True for condition in item.resolve_when)
        return Answer.NO if done else Answer.UNKNOWN

    def _remember(self, run: RunState, signature: Signature, verdict: Verdict) -> None:
        """Keep the last definite verdict: an idle end of the log does not unsay what was judged under load."""
        known = self._verdicts.get((run.id, signature.id))
        if known is None or verdict.answer in (Answer.YES, Answer.NO) or known.answer not in (Answer.YES, Answer.NO):
            self._verdicts[run.id, signature.id] = verdict

    def _note_fault(self, signature: Signature, verdict: Verdict) -> None:
        if verdict.reason == "fault":
            self.faults[signature.id] = self.faults.get(signature.id, 0) + 1

    # --- words and evidence ------------------------------------------------------------------------------------------

    def _context(self, run: RunState | None, at_s: float | None) -> Context:
        key = run.id if run is not None else ""
        context = self._contexts.get(key)
        if context is None:
            context = self._contexts[key] = Context(self.compiled.wanted)
        filled_for = (key, at_s, run.version if run is not None else 0)
        if self._context_of == filled_for:  # a tick asks for the same moment once for each signature
            return context
        now = at_s if at_s is not None else 0.0
        if run is not None:
            if self._context_versions.get(key) != run.version:
                context.put("args", run.args)
                context.put("model", run.root("model"))
                self._context_versions[key] = run.version
            context.put("run", {**self._source_facts(run, now), **run.run_root(now)})
            load = self._load_root if self._steady_at == at_s else self._root_of_load(run, now)
            context.put("load", load)
        else:
            context.put("run", self._source_facts(None, now))
        context.put("gpu", self._gpu_root(run))
        self._context_of = filled_for if self._steady_at == at_s else None
        return context

    def _source_facts(self, run: RunState | None, now_s: float) -> dict[str, Json]:
        """What the sources as a whole show, for the source.* signatures."""
        out: dict[str, Json] = {name: sum(_count(source, name) for source in self.sources.values())
                                for name in ("lines", "sglang_lines", "odd_lines")}  # fmt: skip
        lost = [gap for name, source in self.sources.items() if name != "gpus" for gap in _list(source["gaps"])]
        reasons = [str(gap["reason"]) for gap in lost if isinstance(gap, dict)]
        blocked = [reason for reason in reasons if reason.startswith(_BLOCKED)]
        out["gaps"] = len(reasons) - len(blocked)
        out["unreadable_sources"] = len(blocked)
        if reasons:
            out["gap_reason"] = reasons[-1]
        if self._log_s is not None and self._sample_s is not None:
            late, early = max(self._log_s[0], self._sample_s[0]), min(self._log_s[1], self._sample_s[1])
            out["clock_overlap"] = late <= early + _APART_S
        failed = [each.started_at_s for each in self.runs if each is not run and each.end_kind() != "clean"]
        out["starts_30m"] = sum(now_s - at <= _LOOP_S for at in failed if at is not None) + 1  # this one too
        if run is not None:
            out["access_log"] = run.load.answered_ever > 0
            if run.last_line_s is not None:
                out["log_silence_s"] = float(max(0.0, now_s - run.last_line_s))
            if run.release.min is not None:
                out["release_verified"] = self.releases.knows(run.release)
        return out

    def _gpu_root(self, run: RunState | None) -> dict[str, Json]:
        out = run.root("gpu") if run is not None else {}
        gpus = self.server_gpus() if run is not None else list(self.gpus.values())
        if gpus:
            out["count"] = len(gpus)
            name = next((gpu.name for gpu in gpus if gpu.name), None)
            if name is not None:
                out["name"] = name
                out |= {path.removeprefix("gpu."): value for path, value in self.products.facts_of("gpu.name", name).items()}
            limits = [gpu.last.power_limit_w for gpu in gpus if gpu.last and gpu.last.power_limit_w is not None]
            if limits:
                out["power_limit_w"] = float(min(limits))
        if self.settings.expected_power_limit_w is not None:
            out["expected_power_limit_w"] = float(self.settings.expected_power_limit_w)
        return out

    def _words(self, signature: Signature, context: Context, values: Mapping[str, object], w: Mapping[str, float]) -> str:
        template = signature.summary or signature.title
        roots: dict[str, Mapping[str, Json]] = {root: context.values(root) for root in ("args", "model", "gpu", "run", "load")}
        roots["w"] = dict(w)
        return fill(template, roots, values)

    def _fact_evidence(self, item: CompiledSignature, run: RunState | None) -> tuple[Evidence, ...]:
        if run is None:
            return ()
        found = [run.fact_evidence(path) for path in item.fact_paths]
        return tuple(fact for fact in found if fact is not None)[:8]

    @staticmethod
    def _batch_lines(run: RunState, n: int) -> list[LineEvidence]:
        return [line_at(b.position, b.text, b.at_s) for b in run.load.recent_batches[-n:]]

    @staticmethod
    def _window_lines(run: RunState, from_s: float, to_s: float) -> list[LineEvidence]:
        """The batch lines of the window, at most six, Decode lines first: they carry the load."""
        inside = [b for b in run.load.recent_batches if b.at_s is not None and from_s <= b.at_s <= to_s]
        decodes = [b for b in inside if b.is_decode] or inside or run.load.recent_batches[-3:]
        chosen = decodes if len(decodes) <= 6 else [*decodes[:3], *decodes[-3:]]
        return [line_at(b.position, b.text, b.at_s) for b in chosen]

    def _key(self, signature: Signature, run: RunState | None, *, gpu: str | None = None) -> Key:
        if is_hardware(signature):
            return Key(self.server, None, signature.id, gpu or "unknown")
        if signature.topic.startswith("source."):
            return Key(self.server, None, signature.id)
        return Key(self.server, run.id if run is not None else None, signature.id)

    def _fold(self) -> list[Change]:
        run = self.run
        return self.findings.fold(self.server, run.id if run is not None else None)

    # --- what is seen from outside -----------------------------------------------------------------------------------

    def _view(self, run: RunState) -> Run:
        placed = self.placing.current() if run is self.run else Placement(how="the run is over")
        return run.view(placed.gpus, placed.how)

    def snapshot(self) -> Snapshot:
        run = self.run
        at_s = self._at()
        load = self._root_of_load(run, at_s) if run is not None and at_s is not None and not run.closed else {}
        return Snapshot(
            at_s,
            tuple(self._view(r) for r in self.runs),
            tuple(self.findings.all()),
            tuple(gpu for _, gpu in sorted(self.gpus.items())),
            load,
            dict(self.faults),
        )

    def coverage(self) -> list[Coverage]:
        """For each run and signature: could it be judged, and if not, why and what would cure it."""
        if not self.runs:
            return [self._unseen(item.signature) for item in self.compiled.signatures.values()]
        out: list[Coverage] = []
        for run in self.runs:
            for item in self.compiled.signatures.values():
                verdict = self._verdict(item, run)
                out.append(
                    Coverage(
                        signature=item.signature.id,
                        topic=item.signature.topic,
                        run=run.id,
                        verdict=verdict.answer,
                        because=verdict.because,
                        do=verdict.do,
                        reason=verdict.reason,
                    )
                )
        return out

    def coverage_of_newest(self) -> list[Coverage]:
        """Coverage of the newest run alone."""
        newest = self.runs[-1].id if self.runs else None
        return [entry for entry in self.coverage() if entry.run == newest]

    @staticmethod
    def _unseen(signature: Signature) -> Coverage:
        return Coverage(
            signature=signature.id,
            topic=signature.topic,
            run=None,
            verdict=Answer.UNKNOWN,
            because="no SGLang record was read",
            do="point it at the server's log (stdout and stderr)",
        )

    def _verdict(self, item: CompiledSignature, run: RunState) -> Verdict:
        signature = item.signature
        if signature.absence is not None:
            silence = self._silences.get((run.id, signature.id))
            return silence.verdict if silence is not None else Verdict(Answer.UNKNOWN, "not judged yet", "", "until")
        known = self._verdicts.get((run.id, signature.id))
        if known is not None:
            return known
        if item.is_windowed:
            return Verdict(Answer.UNKNOWN, "its moment never came in what was read", "", "opportunity")
        return self._never_said(run)

    @staticmethod
    def _never_said(run: RunState) -> Verdict:
        if run.dump is None:
            return Verdict(
                Answer.UNKNOWN,
                "not said in what was read, and the log does not show the start of this run",
                "give the log from the server's start",
                "read_since",
            )
        if run.custom_logging:
            return Verdict(Answer.UNKNOWN, "the server logs in a format of its own", "unset SGLANG_LOGGING_CONFIG_PATH", "custom_logging")
        if run.gaps:
            return Verdict(Answer.UNKNOWN, f"a part of {run.gaps[0].source} was not seen ({run.gaps[0].reason})", "", "gap")
        return Verdict(Answer.NO, "it was not said in what was read")


# --- helpers that know nothing of the engine --------------------------------------------------------------------------


def _source_of(observation: Observation) -> str:
    position = getattr(observation, "position", None)
    return position.source if position is not None else observation.source  # type: ignore[union-attr]


def _time_of(observation: Observation) -> float | None:
    if isinstance(observation, Gap):
        return observation.to_s
    return observation.at_s


def _said(statement: Statement) -> Statement:
    return statement


def _widened(span: tuple[float, float] | None, at_s: float) -> tuple[float, float]:
    return (at_s, at_s) if span is None else (min(span[0], at_s), max(span[1], at_s))


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _count(source: Mapping[str, Json], name: str) -> int:
    value = source.get(name)
    return value if isinstance(value, int) else 0


def _block(hit: Hit) -> tuple[str, int]:
    """The record that a line belongs to: its header's, if it is a part of a traceback."""
    position = hit.header or hit.position
    return position.source, position.line


def _typed(text: str | None, kind: str) -> Json | None:
    """A captured text as the type its fact has; None if it does not parse."""
    if text is None:
        return None
    try:
        match kind:
            case "int":
                return int(text.replace(",", ""))
            case "float":
                return float(text.replace(",", ""))
            case "max_int":
                return max(int(part) for part in text.replace(",", " ").split())
    except ValueError:
        return None
    return text


def _gpu_of(hit: Hit) -> tuple[int, ...]:
    text = hit.captures.get("gpu", "")
    return (int(text),) if text.isdigit() else ()


def _matches_silence(finding: Finding, matchers: Mapping[str, str]) -> bool:
    values: Mapping[str, str | None] = {
        "signature": finding.signature,
        "run": finding.run,
        "topic": finding.topic,
        "server": finding.server,
        "severity": finding.severity.value,
        "id": finding.id,
    }
    return bool(matchers) and all(values.get(name) == value for name, value in matchers.items())


__all__ = ["Engine", "EngineSettings", "Snapshot"]
