"""Logs and samples through scanner and engine in the order of event time, without asyncio.

The daemon feeds the same scanner and the same engine; what differs is only where the bytes come from.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from ..engine.engine import Engine
from ..engine.settings import EngineSettings
from ..model.finding import Change
from ..model.observation import Gap, Observation, Opened, Probe, Tally
from ..model.signature import Library
from ..parse.zone import Zone
from ..scan.patterns import PatternSet, compile_patterns
from ..scan.scanner import Scanner
from ..sources.telemetry_recording import TelemetryObservation
from .inputs import Input, Unreadable, blocks


@dataclass(slots=True)
class SourceReport:
    """What was read of one log."""

    name: str
    format: str = "plain"
    lines: int = 0
    bytes: int = 0
    sglang_lines: int = 0
    gaps: list[Gap] = field(default_factory=list)
    fault: str = ""


@dataclass(slots=True)
class Judged:
    """The engine after everything was fed, and what the sources were."""

    engine: Engine
    changes: list[Change]
    sources: list[SourceReport]

    @property
    def sglang_lines(self) -> int:
        return sum(source.sglang_lines for source in self.sources)


def judge(
    inputs: Iterable[Input],
    library: Library,
    *,
    zone: Zone,
    samples: Iterable[TelemetryObservation] | None = None,
    settings: EngineSettings | None = None,
    server: str = "sglang",
    until_s: float | None = None,
    on_bytes: Callable[[int], None] | None = None,
    patterns: PatternSet | None = None,
    model: Probe | None = None,
) -> Judged:
    """Feed all inputs and samples as one server and judge them to the newest stamp (or `until_s`). `patterns` are the library's, where
    they are compiled already; `model` is told to each run."""
    compiled = patterns if patterns is not None else compile_patterns(library)
    engine = Engine(library, server=server, settings=settings)
    reports = [SourceReport(one.name) for one in inputs]
    streams = [
        _stream(_log(one, report, Scanner(library, one.name, zone=zone, patterns=compiled), on_bytes), index)
        for index, (one, report) in enumerate(zip(inputs, reports, strict=True))
    ]
    if samples is not None:
        streams.append(_stream(iter(samples), len(streams)))
        engine.announce("gpus")
    for report in reports:
        engine.announce(report.name)
    changes: list[Change] = []
    told: str | None = None
    for at_s, _, source, observation in heapq.merge(*streams, key=lambda item: (item[0], item[1])):
        changes += engine.withdraw(source) if observation is None else engine.feed(observation)
        if model is not None and engine.run is not None and engine.run.id != told:
            told = engine.run.id
            changes += engine.feed(replace(model, at_s=max(at_s, 0.0))) + engine.withdraw(model.source)
    changes += engine.finish(until_s)
    return Judged(engine, changes, reports)


Item = tuple[float, int, str, Observation | None]


def _stream(observations: Iterator[Observation], index: int) -> Iterator[Item]:
    """Dated by the newest stamp so far, so that a source keeps its order; an end mark withdraws the source.

    What stands before a source's first stamp is dated by that stamp: the rest of a rotated file's last record must not come
    before the file that it continues.
    """
    newest = float("-inf")
    undated: list[Observation] = []
    source = "gpus"
    for observation in observations:
        source = _source_of(observation)
        at_s = observation.to_s if isinstance(observation, Gap) else observation.at_s
        if newest == float("-inf") and at_s is None:
            undated.append(observation)
            continue
        if at_s is not None:
            newest = max(newest, at_s)
        for held in undated:
            yield newest, index, source, held
        undated.clear()
        yield newest, index, source, observation
    for held in undated:
        yield newest, index, source, held
    yield newest, index, source, None


def _source_of(observation: Observation) -> str:
    position = getattr(observation, "position", None)
    return position.source if position is not None else str(getattr(observation, "source", ""))


def _log(one: Input, report: SourceReport, scanner: Scanner, on_bytes: Callable[[int], None] | None) -> Iterator[Observation]:
    try:
        for block in blocks(one):
            for observation in scanner.feed(block.data, offset=block.offset, line=block.line):
                _note(observation, report)
                yield observation
            if on_bytes is not None:
                on_bytes(len(block.data))
    except Unreadable as fault:
        report.fault = str(fault)
        yield Gap(source=one.name, from_s=None, to_s=None, reason="unreadable")
    for observation in scanner.finish():
        _note(observation, report)
        yield observation


def _note(observation: Observation, report: SourceReport) -> None:
    if isinstance(observation, Tally):
        report.lines += observation.lines
        report.bytes += observation.bytes
        report.sglang_lines += observation.sglang_lines
    elif isinstance(observation, Opened):
        report.format = observation.format
    elif isinstance(observation, Gap):
        report.gaps.append(observation)
