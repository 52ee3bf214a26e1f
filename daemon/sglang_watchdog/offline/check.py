"""`check`: logs and a recording in, one judged report out, and the exit code that the contract gives it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ..engine.settings import EngineSettings, FlagJudge
from ..library.load import Loaded, load
from ..model.finding import Coverage, Finding, Run
from ..model.flags import Launch
from ..model.observation import GpuEvent, Probe, Sample
from ..model.signature import Library
from ..model.words import Severity
from ..parse.zone import UnknownZone, Zone
from ..sinks import encode
from ..sources.model_files import probe_model
from ..sources.telemetry_recording import Recording, TelemetryObservation
from .inputs import Input, open_inputs
from .pipeline import SourceReport, judge
from .zones import infer

USAGE: Final = 2
NOTHING_READ: Final = 3
FOUND: Final = 1
BAD_CONFIGURATION: Final = 78


class UsageError(Exception):
    """The command line cannot be carried out as it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asks for."""

    logs: list[str]
    telemetry: Path | None = None
    signatures: tuple[Path, ...] = ()
    timezone: str | None = None
    until: str | None = None
    fail_on: str = "critical"
    launch: Launch | None = None  # of the newest run
    model_config: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything a report format shows."""

    version: str
    library: str
    sources: tuple[SourceReport, ...]
    timezone: str
    runs: tuple[Run, ...]
    findings: tuple[Finding, ...]
    coverage: tuple[Coverage, ...]
    messages: tuple[str, ...]
    exit_code: int
    seconds: float
    topics: tuple[str, ...] = ()

    def document(self) -> encode.Document:
        """The contract's JSON."""
        return encode.report(
            version=self.version,
            library=self.library,
            sources=[
                encode.source(
                    source.name,
                    format=source.format,
                    lines=source.lines,
                    bytes=source.bytes,
                    sglang_lines=source.sglang_lines,
                    timezone=self.timezone,
                    gaps=source.gaps,
                )
                for source in self.sources
            ],
            runs=self.runs,
            findings=self.findings,
            verdicts=self.coverage,
        )


def run_check(
    request: Request,
    version: str,
    *,
    on_bytes: Callable[[int], None] | None = None,
    flags: Callable[[Library], FlagJudge] | None = None,
) -> Report:
    """Read and judge; `flags` makes the judge of flags, which is triage's.

    Raises:
        UsageError: a zone, a time, the model's config.json or the recording cannot be understood.
    """
    began = time.monotonic()
    inputs, messages = open_inputs(request.logs)
    is_whole = not messages
    loaded = load(request.signatures)
    messages += [fault.render() for fault in loaded.errors]
    samples = _samples(request.telemetry, messages)
    zone, how = _zone(request, inputs, samples)
    settings = EngineSettings(
        flag_judge=flags(loaded.library) if flags is not None else None, awaits_launch=request.launch is not None, launch=request.launch
    )
    judged = judge(
        inputs, loaded.library, zone=zone, samples=samples, settings=settings, until_s=_until(request, inputs, zone), on_bytes=on_bytes,
        model=_model(request.model_config),
    )  # fmt: skip
    torn = [source.fault for source in judged.sources if source.fault]
    messages += torn
    messages += [f"signature {name}: {count} faults while judging" for name, count in sorted(judged.engine.faults.items())]
    snapshot = judged.engine.snapshot()
    messages += _about_launch(request, snapshot.runs)
    return Report(
        version=version,
        library=loaded.library.version,
        sources=tuple(judged.sources),
        timezone=f"{zone.name} ({how})",
        runs=snapshot.runs,
        findings=snapshot.findings,
        coverage=tuple(judged.engine.coverage()),
        messages=tuple(messages),
        exit_code=_exit_code(request, loaded, snapshot.findings, readable=judged.sglang_lines > 0 and is_whole and not torn),
        seconds=time.monotonic() - began,
        topics=tuple(loaded.library.topics),
    )


def _about_launch(request: Request, runs: tuple[Run, ...]) -> list[str]:
    """Why the command that was given said nothing."""
    if request.launch is None:
        return []
    table = runs[-1].flags if runs else None
    if table is None:
        return ["--command: the last run was not held against it: that needs its args dump and 10 s after it was ready"]
    return [f"--command: {table.because}"] if table.because else []


def _exit_code(request: Request, loaded: Loaded, findings: tuple[Finding, ...], *, readable: bool) -> int:
    if loaded.errors:
        return BAD_CONFIGURATION
    if request.fail_on != "never":
        least = Severity(request.fail_on).rank
        if any(finding.severity.rank >= least for finding in findings):
            return FOUND
    return 0 if readable else NOTHING_READ


def _model(path: Path | None) -> Probe | None:
    if path is None:
        return None
    probe = probe_model("model", path, 0.0)
    if probe.error is not None:
        raise UsageError(f"--model-config {probe.error}")
    return probe


def _samples(path: Path | None, messages: list[str]) -> list[TelemetryObservation] | None:
    if path is None:
        return None
    recording = Recording(path, on_bad=messages.append)
    try:
        samples = list(recording)
    except OSError as error:
        raise UsageError(f"--telemetry {path}: {error.strerror or error}") from None
    if not any(isinstance(one, Sample | GpuEvent) for one in samples):
        why = recording.errors[0] if recording.errors else "the file is empty" if not recording.lines else "no line of it is a sample"
        raise UsageError(f"--telemetry {path}: holds no sample ({why}); `sglang-watchdog run --record FILE` writes such files")
    return samples


def _zone(request: Request, inputs: list[Input], samples: list[TelemetryObservation] | None) -> tuple[Zone, str]:
    if request.timezone is None:
        return infer(inputs, samples)
    try:
        return Zone.named(request.timezone), "--timezone"
    except UnknownZone as fault:
        raise UsageError(f"--timezone: {fault}") from None


def _until(request: Request, inputs: list[Input], zone: Zone) -> float | None:
    """The moment up to which the user knows that nothing more was said."""
    if request.until is None:
        return None
    if request.until == "mtime":
        return max((one.mtime_s for one in inputs if one.mtime_s is not None), default=None)
    try:
        moment = datetime.fromisoformat(request.until)
    except ValueError:
        raise UsageError(f"--until {request.until}: write it like 2026-02-19T08:30:00Z, or `mtime`") from None
    return moment.astimezone(UTC).timestamp() if moment.tzinfo else zone.unix(moment)
