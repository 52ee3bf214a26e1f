"""The pure state machine: one observation in, what changed out. No I/O, no clock; same input, same output.

Observations of several sources are put in order of event time first; what depends on windows is judged on a grid of whole seconds
of event time, so that neither block cuts nor the order of arrival show in the results.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..model.finding import Change, Coverage, Finding, Run, RunChanged
from ..model.observation import Command, Dump, Gap, Hit, Json, Observation, Raised, Sample, Watermark
from ..model.signature import Library
from ..model.words import Phase
from .compiled import compile_library, is_hardware
from .coverage import coverage_of, coverage_unseen
from .flags import FlagFindings
from .gpus import GpuState
from .intake import Intake
from .lifecycle import Findings
from .products import Products
from .releases import Releases
from .roots import Roots
from .run_keeper import RunKeeper
from .runs import RunState
from .said import SaidJudge
from .sequencer import Sequencer
from .settings import EngineSettings
from .silences import SilenceJudge
from .state import NEVER, EngineState
from .windowed import WindowJudge

_FLAGS_AFTER_S = 10.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the API and the reports show: immutable."""

    at_s: float | None
    runs: tuple[Run, ...]
    findings: tuple[Finding, ...]
    gpus: tuple[GpuState, ...]
    load: Mapping[str, Json]
    faults: Mapping[str, int]


class Engine:
    """One server's engine: puts observations in order, hands each to the part that knows it, lets the clock of event time tick."""

    def __init__(self, library: Library, *, server: str = "sglang", settings: EngineSettings | None = None) -> None:
        settings = settings or EngineSettings()
        self.state = EngineState(
            server=server,
            settings=settings,
            compiled=compile_library(library),
            releases=Releases(library.releases),
            products=Products(library.models, library.gpus, library.shapes, library.parameter_bytes),
            findings=Findings(settings.severities),
        )
        if settings.gpus:
            self.state.placing.on_fact("gpus", list(settings.gpus))
        self.roots = Roots(self.state)
        self.windowed = WindowJudge(self.state, self.roots)
        self.said = SaidJudge(self.state, self.roots, self.windowed)
        self.silences = SilenceJudge(self.state, self.roots, self.windowed)
        self.flags = FlagFindings(self.state, self.roots)
        self.keeper = RunKeeper(self.state, self.roots, self.windowed, self.said, self.silences, self.flags)
        self.intake = Intake(self.state, self.keeper, self.flags)
        self._order = Sequencer()

    @property
    def run(self) -> RunState | None:
        """The newest run."""
        return self.state.run

    @property
    def runs(self) -> list[RunState]:
        """The runs that are kept, oldest first."""
        return self.state.runs

    @property
    def findings(self) -> Findings:
        """The findings and their life cycle."""
        return self.state.findings

    @property
    def faults(self) -> Mapping[str, int]:
        """How often a condition of a signature failed."""
        return self.state.faults

    def reload(self, library: Library) -> list[Change]:
        """Take a new library; the state of signatures that did not change survives. Findings of vanished ones expire, and are
        reopened when the signature comes back unchanged while their run goes on."""
        old, at_s, findings = self.state.compiled.library, self.state.at(), self.state.findings
        changes = findings.withdraw(old, library, at_s)
        self.state.take_library(library)
        self.roots.forget()
        self.state.silences.clear()
        self.silences.forget()
        over = {run.id for run in self.runs if run.closed}
        changes += findings.bring_back(library, {item.signature.id for item in self.state.compiled.windowed}, over, at_s)
        self.state.forget_verdicts(library.signatures.keys() - old.signatures.keys())
        return changes

    def use(self, settings: EngineSettings) -> None:
        """Judge with other thresholds from here on; what was recognised stays."""
        self.state.settings = settings
        for run in self.runs:
            run.load.settings = settings.load

    def announce(self, source: str) -> None:
        """A source that will speak: nothing that it might still precede is acted on before it did."""
        self._order.announce(source)

    def withdraw(self, source: str) -> list[Change]:
        """A source that ended or is stuck no longer holds the others back."""
        return self._act(self._order.withdraw(source))

    def feed(self, observation: Observation) -> list[Change]:
        """Take one observation, return what changed."""
        if isinstance(observation, Command):
            return self.intake.on_command(observation)
        source, at_s = _source_of(observation), _time_of(observation)
        if at_s is not None and getattr(observation, "position", None) is not None:
            self.state.told_s = max(self.state.told_s, at_s)
        return self._act(self._order.feed(source, at_s, observation))

    def saw_zone(self, source: str, given: str, arrival: str) -> None:
        """The zone that somebody gave a log, and the one in which its lines arrive."""
        self.state.source(source)["zone"] = {"given": given, "arrival": arrival}

    def settle(self) -> list[Change]:
        """All sources are quiet and were read to their end: judge the newest second too, and what waited for more lines."""
        changes = self._act(self._order.drain())
        changes += self.keeper.flush_prelude()
        if self.state.now_s > NEVER:
            changes += self._tick_to(self.state.now_s, inclusive=True)
        changes += self.said.flush_deferred(float("inf"))
        return changes + self.state.fold()

    def finish(self, until_s: float | None = None) -> list[Change]:
        """The end of everything. `until_s` adds silence that the user knows of."""
        changes = self.settle()
        if until_s is not None and until_s > self.state.now_s:
            changes += self._tick_to(until_s, inclusive=True)
        changes += self.silences.judge(over=True)
        run = self.state.run
        return changes + (self.flags.on_finish(run) if run is not None else []) + self.state.fold()

    def _act(self, released: Iterator[Observation]) -> list[Change]:
        changes: list[Change] = []
        for observation in released:
            at_s = _time_of(observation)
            if isinstance(observation, Watermark):
                continue
            if at_s is not None:
                changes += self._tick_to(at_s, inclusive=False)
                self.state.now_s = max(self.state.now_s, at_s)
                self.state.data_s = max(self.state.data_s, at_s)
                if isinstance(observation, Sample):
                    self.state.sample_s = _widened(self.state.sample_s, at_s)
                elif getattr(observation, "position", None) is not None:
                    self.state.log_s = _widened(self.state.log_s, at_s)
            changes += self._apply(observation)
        low = self._order.low_s
        if self.state.now_s > NEVER and math.isfinite(low):
            changes += self._tick_to(low, inclusive=True)
            self.state.now_s = max(self.state.now_s, low)
        return changes

    def _tick_to(self, to_s: float, *, inclusive: bool) -> list[Change]:
        """Judge every whole second that has passed entirely; long silences are judged more and more rarely."""
        last = math.floor(to_s) if inclusive or to_s != math.floor(to_s) else math.floor(to_s) - 1
        if self.state.tick_s is None:
            self.state.tick_s = float(last)
            return self._tick(self.state.tick_s) if inclusive else []
        changes: list[Change] = []
        while self.state.tick_s < last:
            quiet = self.state.tick_s - self.state.data_s
            step = 1.0 if quiet < 150 else 5.0 if quiet < 900 else math.floor(quiet / 60)  # a log of last year is caught up in seconds
            self.state.tick_s = min(self.state.tick_s + step, float(last))
            changes += self._tick(self.state.tick_s)
        return changes

    def _apply(self, observation: Observation) -> list[Change]:
        self.roots.stale()
        match observation:
            case Hit():
                return self.keeper.on_hit(observation)
            case Dump():
                return self.keeper.on_dump(observation)
            case Raised():
                return self.said.on_raised(observation)
        return self.intake.take(observation)

    def _tick(self, at_s: float) -> list[Change]:
        changes: list[Change] = []
        self.roots.stale()
        changes += self.keeper.on_tick(at_s)
        run = self.state.run
        if run is not None:
            changes += self._idle(run, at_s)
        changes += self.said.flush_deferred(at_s)
        changes += self.silences.judge()
        if run is not None and run.load.ready_s is not None and at_s >= run.load.ready_s + _FLAGS_AFTER_S:
            changes += self.flags.judge(run, at_s)
        self.roots.tick_steady(run, at_s)
        if run is not None and run.yardstick.is_news(at_s):
            changes.append(RunChanged(at_s, self.state.view(run), run.phase))
        for item in self.state.compiled.windowed:
            if run is None or run.closed:
                if is_hardware(item.signature) or item.signature.topic.startswith("source."):
                    changes += self.windowed.judge(item, run, at_s)
            else:
                changes += self.windowed.judge(item, run, at_s)
        return changes

    def _idle(self, run: RunState, at_s: float) -> list[Change]:
        lines = run.load.series.get("batch_lines")
        if run.phase is not Phase.SERVING or lines is None or lines.newest is None:
            return []
        if at_s - lines.newest[0] <= self.state.settings.idle_after_s:
            return []
        run.phase = Phase.IDLE
        return [RunChanged(at_s, self.state.view(run), Phase.SERVING)]

    def snapshot(self) -> Snapshot:
        run = self.state.run
        at_s = self.state.at()
        load = self.roots.root_of_load(run, at_s) if run is not None and at_s is not None and not run.closed else {}
        return Snapshot(
            at_s,
            tuple(self.state.view(r) for r in self.state.runs),
            tuple(self.state.findings.all()),
            tuple(gpu for _, gpu in sorted(self.state.gpus.items())),
            load,
            dict(self.state.faults),
        )

    def coverage(self) -> list[Coverage]:
        """For each run and signature: could it be judged, and if not, why and what would cure it."""
        if not self.state.runs:
            return coverage_unseen(self.state)
        return [entry for run in self.state.runs for entry in coverage_of(self.state, run)]

    def coverage_of_newest(self) -> list[Coverage]:
        """Coverage of the newest run alone."""
        run = self.state.run
        return coverage_unseen(self.state) if run is None else coverage_of(self.state, run)


def _source_of(observation: Observation) -> str:
    position = getattr(observation, "position", None)
    return position.source if position is not None else observation.source  # type: ignore[union-attr]


def _time_of(observation: Observation) -> float | None:
    if isinstance(observation, Gap):
        return observation.to_s
    return observation.at_s


def _widened(span: tuple[float, float] | None, at_s: float) -> tuple[float, float]:
    return (at_s, at_s) if span is None else (min(span[0], at_s), max(span[1], at_s))


__all__ = ["Engine", "EngineSettings", "Snapshot"]
