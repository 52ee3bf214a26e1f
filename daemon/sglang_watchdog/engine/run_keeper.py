"""Which run a line belongs to, and what the line does to it: dumps, milestones, starts, ends."""

from collections.abc import Sequence

from ..model.finding import Change, FactEvidence, LineEvidence, Release, RunChanged
from ..model.observation import Dump, Hit, Json
from ..model.signature import Milestone
from ..model.words import Kind, Phase
from .args import flattened
from .compiled import CompiledSignature, Roles, is_hardware
from .flags import FlagFindings
from .load import Load
from .roots import Roots
from .runs import BUSY, ENDED, RANK_PHASE, SERVING, RunState, joins, line_at, line_of, run_id
from .said import SaidJudge
from .silences import SilenceJudge
from .state import EngineState
from .values import typed
from .windowed import WindowJudge

# Milestones and facts that tell where the server is.
_PLACED_BY = {
    "dist-begin": "dist_begin",
    "dist-end": "dist_end",
    "ready": "ready",
    "run.launcher_pid": "launcher_pid",
    "run.scheduler_pid": "scheduler_pid",
    "run.avail_gib": "avail_gib",
}


class RunKeeper:
    """Opens, moves and closes runs; holds the launcher's first lines until it is known whose they are."""

    def __init__(
        self, state: EngineState, roots: Roots, windowed: WindowJudge, said: SaidJudge, silences: SilenceJudge, flags: FlagFindings
    ) -> None:
        self.state = state
        self.roots = roots
        self.windowed = windowed
        self.said = said
        self.silences = silences
        self.flags = flags
        self._prelude: list[Hit] = []  # launcher lines before a dump
        self._prelude_since: float | None = None

    def on_tick(self, at_s: float) -> list[Change]:
        """Lines that waited for a dump long enough belong to the run there is."""
        if self._prelude_since is None or at_s - self._prelude_since <= self.state.settings.prelude_s:
            return []
        return self.flush_prelude()

    def on_hit(self, hit: Hit) -> list[Change]:
        """A line that means something: to a run, or to what comes before one."""
        roles = self.state.compiled.roles.get(hit.pattern)
        if roles is None:
            return []
        names = {milestone.name for milestone in roles.milestones}
        hardware = [item for item in roles.match if is_hardware(item.signature)]
        if hardware and not names and len(hardware) == len(roles.match):
            return self.said.matches_of(hit, self.state.run, roles.match)
        run = self.state.run
        changes: list[Change] = []
        if run is None or self._begins_anew(run, names):
            if not self._opens_run(names, roles.match):
                self._prelude.append(hit)
                self._prelude_since = self._prelude_since if self._prelude_since is not None else hit.at_s
                return []
            changes += self.flush_prelude(force=True, first=hit)
            if self.state.run is run:
                changes += self._open_run(hit.at_s, "", line_of(hit), hit.position.source)
            run = self.state.run
        if run is None:
            return changes
        return changes + self._hit_in_run(hit, run, roles)

    def _hit_in_run(self, hit: Hit, run: RunState, roles: Roles) -> list[Change]:
        changes: list[Change] = []
        self.touch(run, hit.position.source, hit.at_s)
        if roles.watched:
            key = (hit.pattern, hit.rank)
            if key not in run.first_hits:
                run.first_hits[key] = line_of(hit)
        changes += self.silences.said_after_all(hit, run)
        if roles.unless:
            self.said.not_that(hit)
        # Matches are judged in the phase that held before the line: a crash line in STOPPING is an orderly stop's.
        changes += self.said.matches_of(hit, run, roles.match)
        for milestone in roles.milestones:
            changes += self._on_milestone(milestone, hit, run)
        for item in roles.resolve:
            changes += self.state.findings.resolve(self.state.key(item.signature, run), hit.at_s)
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

    def flush_prelude(self, *, force: bool = False, first: Hit | None = None) -> list[Change]:
        """Lines held for a dump that did not come belong to the run there is, or to one without a dump."""
        if not self._prelude:
            return []
        held, self._prelude, self._prelude_since = self._prelude, [], None
        changes: list[Change] = []
        if self.state.run is None or force:
            head = held[0]
            changes += self._open_run(head.at_s if head.at_s is not None else (first.at_s if first else None), "", line_of(head), head.position.source)
        run = self.state.run
        assert run is not None
        for hit in held:
            changes += self._hit_in_run(hit, run, self.state.compiled.roles[hit.pattern])
        return changes

    def on_dump(self, dump: Dump) -> list[Change]:
        """An argument dump: another start, another node of the same start, or news of a running one."""
        run = self.state.run
        line = line_at(dump.position, dump.text, dump.at_s)
        if dump.update:
            return self._on_new_args(dump, run)
        if run is not None and not self._prelude and run.dump is not None and joins(run, dump):
            run.nodes.add(str(dump.args.get("node_rank")))
            self.touch(run, dump.position.source, dump.at_s)
            return []
        held, self._prelude, self._prelude_since = self._prelude, [], None
        if run is not None and not run.closed and run.id == run_id(self.state.server, dump.at_s, dump.digest, line.text):
            # The same start in another file (a rotated part beside a copy of the whole): one run, not a start that ended at once.
            self.touch(run, dump.position.source, dump.at_s)
            return [change for hit in held for change in self._hit_in_run(hit, run, self.state.compiled.roles[hit.pattern])]
        changes = self._open_run(dump.at_s, dump.digest, line, dump.position.source)
        run = self.state.run
        assert run is not None
        run.dump, run.dump_complete, run.phase = line, dump.complete, Phase.STARTING
        if held and held[0].position.source == dump.position.source:
            run.first_line = line_of(held[0])
        run.args, run.args_from = flattened(dump.args), dump.position.source
        run.nodes.add(str(dump.args.get("node_rank")))
        if dump.release_min is not None and dump.release_max is not None:
            run.release = Release(min=dump.release_min, max=dump.release_max, source="inferred")
        self.state.placing.on_fact("args", run.args)
        chunk = run.args.get("chunked_prefill_size")
        run.load.chunk_size = chunk if isinstance(chunk, int) and chunk > 0 else None
        run.version += 1
        for hit in held:
            changes += self._hit_in_run(hit, run, self.state.compiled.roles[hit.pattern])
        return [*changes, RunChanged(dump.at_s, self.state.view(run), Phase.UNKNOWN)]

    @staticmethod
    def _on_new_args(dump: Dump, run: RunState | None) -> list[Change]:
        """`Global server args updated!` of a rank: the run goes on with other arguments."""
        if run is not None and run.dump is not None:
            run.args = run.args | flattened(dump.args)
            run.version += 1
        return []

    def _open_run(self, at_s: float | None, digest: str, line: LineEvidence, source: str) -> list[Change]:
        changes = self._close_run(at_s)
        run = RunState(run_id(self.state.server, at_s, digest, line.text), self.state.server, at_s, Load(self.state.settings.load), first_line=line)
        run.sources.append(source)
        gaps = self.state.source(source).get("gaps")
        if isinstance(gaps, list):
            gaps.clear()
        self.state.runs.append(run)
        self.state.placing.new_run(at_s)
        if len(self.state.runs) > self.state.settings.keep_runs:
            self._forget(self.state.runs.pop(0))
        return [*changes, RunChanged(at_s, self.state.view(run), None)]

    def _close_run(self, at_s: float | None) -> list[Change]:
        run = self.state.run
        if run is None:
            return []
        changes = self.said.flush_deferred(float("inf"))
        if run.ended_at_s is None:
            run.ended_at_s = run.last_line_s
        was, run.closed = run.phase, True
        if run.phase not in ENDED:
            run.facts["run.restarted"] = FactEvidence(name="run.restarted", value=True, source=run.sources[-1])
            run.version += 1
        changes += self.windowed.judge_end(run, at_s)
        changes += self.flags.judge(run, at_s, is_over=True)
        changes += self.state.findings.close_run(run.id, at_s)
        self._prune(run)
        return [*changes, RunChanged(at_s, self.state.view(run), was)]

    def _prune(self, run: RunState) -> None:
        run.load.series.clear()
        self.roots.forget(run.id)
        self.said.forget(run.id)

    def _forget(self, run: RunState) -> None:
        self.state.findings.forget(frozenset(kept.id for kept in self.state.runs))
        for table in (self.state.silences, self.state.verdicts):
            for key in [key for key in table if key[0] == run.id]:
                del table[key]
        self.silences.forget(run.id)
        self.windowed.forget(run.id)

    def touch(self, run: RunState, source: str, at_s: float | None) -> None:
        """A source spoke of the run."""
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
            self.state.placing.on_fact(_PLACED_BY[milestone.name], None, at_s=hit.at_s, rank=hit.rank)
        if milestone.name == "retracted":
            run.load.on_retracted(int(hit.captures.get("count", "1") or 1), hit.rank)
        for name, source in milestone.facts.items():
            group, _, kind = source.rpartition(":")
            if kind == "const" and name in run.facts:
                continue  # that a line was there says less than what an earlier one said
            value = typed(group if kind == "const" else hit.captures.get(group), kind)
            if value is not None and name in _PLACED_BY:
                self.state.placing.on_fact(_PLACED_BY[name], value, at_s=hit.at_s, rank=hit.rank)
            if value is not None and run.learn(FactEvidence(name=name, value=value, source=line.source, line=line.line)):
                self._implied(run, name, value, line)
        changes: list[Change] = [] if before is None else [RunChanged(hit.at_s, self.state.view(run), before)]
        if run.phase in ENDED and before is not None:
            changes += self.said.flush_deferred(float("inf"), run) if run.phase is Phase.STOPPED else []
            if run.phase is Phase.STOPPED:
                changes += self.windowed.judge_end(run, hit.at_s) + self.flags.on_end(run, hit.at_s)
                changes += self.state.findings.close_run(run.id, hit.at_s)
        return changes

    def _implied(self, run: RunState, fact: str, value: Json, line: LineEvidence) -> None:
        """What an architecture or a product name implies, and a stated release."""
        if fact == "run.sglang_version" and isinstance(value, str):
            run.release = Release(min=value, max=value, source="stated")
        implied = self.state.products.facts_of(fact, str(value))
        for name, known in implied.items():
            if name not in run.facts:
                run.learn(FactEvidence(name=name, value=known, source=line.source, line=line.line))

    def run_for(self, at_s: float | None, line: LineEvidence) -> tuple[RunState | None, list[Change]]:
        """The run that a batch line belongs to, opened if there is none."""
        changes: list[Change] = []
        if self.state.run is None:
            changes += self.flush_prelude()
        if self.state.run is None:
            changes += self._open_run(at_s, "", line, line.source)
        elif self._prelude and not self.state.run.closed:
            changes += self.flush_prelude()
        return self.state.run, changes
