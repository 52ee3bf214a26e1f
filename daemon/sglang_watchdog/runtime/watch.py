"""One watched server: its scanners and its engine, fed with what its sources deliver. Synchronous; the pump calls it."""

import time
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..engine.engine import Engine
from ..engine.runs import RunState
from ..model.finding import Change, RunChanged
from ..model.observation import Gap, Observation, Opened, Probe, ProcessSeen, Sample, Tally, Watermark
from ..model.signature import Library
from ..parse.zone import Zone
from ..scan.patterns import PatternSet
from ..scan.scanner import Scanner
from ..sources.block import Block
from ..sources.position import SourcePosition, TailPosition, UnknownPosition, position_from_json
from .clock import LogClock, WallClock
from .plan import ServerPlan
from .zones import ZoneWatch

_REMEMBERED_BLOCKS = 256
_RUN_AGAIN_S = 600.0  # how often the load of a run that goes on is written down; each time is an entry of the ledger
_ABSENT_S = 2.0  # a file that is being replaced is missing for a moment
_STUCK_S = 15.0  # a readable source moves its watermark every few seconds


@dataclass(frozen=True, slots=True)
class ResumeAt:
    """Where a log is to be read again after a restart: the block that holds the current run's first line."""

    position: SourcePosition | None
    line: int = 0  # lines before it belong to an earlier run
    watched_since_s: float | None = None  # when it was first opened, by the wall clock; None: it was not yet

    def to_json(self) -> dict[str, Any]:
        return {"position": self.position.to_json() if self.position is not None else None, "line": self.line, "watched_since_s": self.watched_since_s}


def resume_from_json(stored: Mapping[str, Any]) -> ResumeAt:
    """What `to_json` wrote; something else begins anew."""
    position = stored.get("position")
    try:
        since = stored.get("watched_since_s")
        return ResumeAt(
            position_from_json(position) if position is not None else None,
            int(stored.get("line", 0)),
            float(since) if since is not None else None,
        )
    except (UnknownPosition, TypeError, ValueError):
        return ResumeAt(None)


@dataclass(slots=True)
class _Log:
    """One log while it is read."""

    scanner: Scanner
    zone: ZoneWatch
    skip_before_line: int = 0  # in the first generation only
    generation: int | None = None
    blocks: deque[tuple[int, int, SourcePosition | None]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_BLOCKS))
    resume: ResumeAt = field(default_factory=lambda: ResumeAt(None))
    lines: int = 0
    bytes: int = 0
    sglang_lines: int = 0
    gaps: list[Gap] = field(default_factory=list)
    last_line_s: float | None = None
    heard_s: float | None = None  # monotonic clock: the last block or watermark
    is_waited_for: bool = True
    is_read_to_end: bool = False  # it was, once: what comes then is new
    from_start: bool | None = None


class ServerWatch:
    """Scanners, engine and places to resume from, for one server."""

    def __init__(
        self,
        plan: ServerPlan,
        library: Library,
        patterns: PatternSet,
        clock: WallClock | LogClock,
        zone: Zone,
        *,
        sources: Mapping[str, ResumeAt],
        telemetry: bool,
    ) -> None:
        """`sources` are all logs of the server by source name, with where each is taken up."""
        self._opened_s = time.time()
        known = [at.watched_since_s for at in sources.values() if at.watched_since_s is not None]
        self._since_s = min(known, default=self._opened_s) if isinstance(clock, WallClock) else None
        self.plan = replace(plan, engine=replace(plan.engine, watched_since_s=self._since_s))
        self.zone = zone
        self.engine = Engine(library, server=plan.name, settings=self.plan.engine)
        self._clock = clock
        self._watches_zones = isinstance(clock, WallClock)  # a replay's file is written at another time than its stamps say
        self._library, self._patterns = library, patterns
        self.logs: dict[str, _Log] = {}
        for name, resume in sources.items():
            self.add_log(name, resume, patterns)
        self._told: dict[str, Probe] = {}  # of the running launcher, by origin
        self._noted: RunState | None = None
        self._load_told: tuple[str, Mapping[str, float], float] | None = None  # run, its load, monotonic clock
        self._samples_come = telemetry
        if telemetry:
            self.engine.announce("gpus")

    def add_log(self, name: str, resume: ResumeAt, patterns: PatternSet) -> None:
        """Take up a log; the engine waits for it from now on."""
        zone = ZoneWatch(self.zone, how="configured" if self.plan.zone is not None else "machine")
        path = next((one.where for one in self.plan.logs if one.name == name), "")
        if path.startswith("/") and self._watches_zones:
            zone.look(path)
        if resume.watched_since_s is None:
            resume = replace(resume, watched_since_s=self._since_s)
        self.logs[name] = _Log(Scanner(self._library, name, zone=zone.zone, patterns=patterns), zone, resume.line, resume=resume)
        self.engine.announce(name)

    def on_block(self, block: Block, wall_s: float) -> list[Change]:
        """Scan a block and feed what was recognised. A file that joins a pattern later is taken up here."""
        if block.source not in self.logs:
            self.add_log(block.source, ResumeAt(None), self._patterns)
        log = self.logs[block.source]
        self._hear(log, block.source)
        if log.generation is None:
            log.generation = block.generation
        elif block.generation != log.generation:
            log.generation, log.skip_before_line = block.generation, 0
        if self._watches_zones:
            self._mind_zone(log, block)
        log.blocks.append((block.generation, block.line, block.before))
        observations = log.scanner.feed(block.data, offset=block.offset, line=block.line)
        if log.scanner.zone is not log.zone.zone:
            log.zone.measured_by(log.scanner.zone)
        if block.was_cut:
            observations += log.scanner.finish()
        changes: list[Change] = []
        for observation in observations:
            if self._note(log, observation, wall_s):
                changes += self.engine.feed(observation)
        return changes + self._note_run()

    def on_event(self, event: Gap | Opened | Watermark) -> list[Change]:
        """A gap, a new file, or "read to the end at that time"."""
        log = self.logs.get(event.source)
        if isinstance(event, Watermark):
            if log is not None:
                self._hear(log, event.source)
                log.is_read_to_end = True
            moved = self._clock.watermark(event.source, event.at_s)
            return self.engine.feed(moved) + self._note_run() if moved is not None else []
        if isinstance(event, Gap):
            if log is not None:
                log.gaps.append(event)
                del log.gaps[:-100]
            return self.engine.feed(event)
        return []  # the scanner says Opened itself, with the format that it found

    def _mind_zone(self, log: _Log, block: Block) -> None:
        """Follow a zone that nobody gave; hold one that was given against the arrival of new lines."""
        if log.zone.see(block, is_new=log.is_read_to_end and self._was_written(block)) and not log.scanner.zone.certain:
            log.scanner.zone = log.zone.zone
        if log.scanner.zone.certain and log.zone.arrival is not None:
            self.engine.saw_zone(block.source, log.zone.zone.name, log.zone.arrival)

    def _was_written(self, block: Block) -> bool:
        """Whether a block that came after the end was reached is news, and not a last line that no newline ends."""
        after = block.after
        return isinstance(after, TailPosition) and bool(after.files) and after.files[-1].modified_ns / 1e9 > self._opened_s

    def _hear(self, log: _Log, name: str) -> None:
        log.heard_s = time.monotonic()
        if not log.is_waited_for:
            log.is_waited_for = True
            self.engine.announce(name)

    def unstick(self, now_s: float, unread: Collection[str] = ()) -> list[Change]:
        """Wait no longer for a log that can say nothing (missing or unreadable: `unread`; a child that hangs): the others go on."""
        changes: list[Change] = []
        for name, log in self.logs.items():
            log.heard_s = log.heard_s if log.heard_s is not None else now_s
            if log.is_waited_for and now_s - log.heard_s > (_ABSENT_S if name in unread else _STUCK_S):
                log.is_waited_for = False
                changes += self.engine.withdraw(name)
        return changes

    def on_observation(self, observation: Observation, wall_s: float) -> list[Change]:
        """Samples, probes, processes, commands."""
        if isinstance(observation, Gap):
            # No driver, a hung one, a missing recording: the log must not wait for samples that do not come.
            self._samples_come = False
            return self.engine.feed(observation) + self.engine.withdraw(observation.source)
        if isinstance(observation, ProcessSeen | Probe):
            if isinstance(observation, Probe):
                if "run.launcher_pid" in observation.facts:
                    self._told.clear()  # another launcher: what the last one told is over
                if not all(name.startswith("load.") for name in observation.facts):  # readings hold for their moment only
                    self._told[observation.origin] = observation
            return self._feed_rare(observation)
        at_s = getattr(observation, "at_s", None)
        if isinstance(observation, Sample) and not self._samples_come:
            self._samples_come = True
            self.engine.announce(observation.source)
        if at_s is not None and not isinstance(observation, Watermark):
            self._clock.newest(at_s, wall_s)
        return self.engine.feed(observation) + self._note_run()

    def reload(self, library: Library, patterns: PatternSet, plan: ServerPlan) -> list[Change]:
        """Judge with a new library and the plan's thresholds from here on; what scanners carry from line to line stays."""
        self._library, self._patterns = library, patterns
        load, idle_s, limit_w = plan.engine.load, plan.engine.idle_after_s, plan.engine.expected_power_limit_w
        self.plan = replace(self.plan, engine=replace(self.plan.engine, load=load, idle_after_s=idle_s, expected_power_limit_w=limit_w))
        self.engine.use(self.plan.engine)
        for log in self.logs.values():
            log.scanner.use(patterns)
        return self.engine.reload(library)

    def settle(self) -> list[Change]:
        """All sources have been quiet for a while."""
        return self.engine.settle() + self._note_run()

    def run_news(self, *, at_once: bool = False) -> list[Change]:
        """The load of the run that goes on: soon when its speed is first known, then now and then, `at_once` while all is quiet."""
        run, now_s = self.engine.run, time.monotonic()
        if run is None or run.load.ready_s is None or run.closed:
            return []
        view = self.engine.state.view(run)
        if self._load_told is not None and self._load_told[0] == view.id:
            _, told, told_s = self._load_told
            is_due = at_once or now_s - told_s >= _RUN_AGAIN_S or len(view.load) > len(told)
            if told == view.load or not is_due:
                return []
        self._load_told = (view.id, view.load, now_s)
        return [RunChanged(self.engine.state.at(), view, run.phase)]

    def positions(self) -> dict[str, Any]:
        """Where each log is to be taken up after a restart, as JSON by source name."""
        return {name: log.resume.to_json() for name, log in self.logs.items()}

    def _note(self, log: _Log, observation: Observation, wall_s: float) -> bool:
        """Count, and say whether the engine is to see it: lines of an earlier run are passed over after a restart."""
        if isinstance(observation, Tally):
            log.lines += observation.lines
            log.bytes += observation.bytes
            log.sglang_lines += observation.sglang_lines
        elif isinstance(observation, Opened):
            log.from_start = observation.from_start
        position = getattr(observation, "position", None)
        if position is not None and position.line < log.skip_before_line:
            return False
        at_s = getattr(observation, "at_s", None)
        if at_s is not None:
            log.last_line_s = at_s
            self._clock.newest(at_s, wall_s)
        return True

    def _note_run(self) -> list[Change]:
        """When a run began, remember where its first line stands, and tell it what its processes told before that line was out."""
        run = self.engine.run
        if run is None or run is self._noted or run.first_line is None:
            return []
        self._noted = run
        log = self.logs.get(run.first_line.source)
        if log is not None:
            at = next((b for b in reversed(log.blocks) if b[1] <= run.first_line.line and b[0] == log.generation), None)
            if at is not None:
                log.resume = replace(log.resume, position=at[2], line=run.first_line.line)
        return [change for probe in self._told.values() for change in self._feed_rare(probe)]

    def _feed_rare(self, observation: ProcessSeen | Probe) -> list[Change]:
        return self.engine.feed(observation) + self.engine.withdraw(observation.source)  # no log line waits for it
