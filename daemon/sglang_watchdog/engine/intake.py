"""Observations that are neither a match nor a dump, and what they change."""

from collections.abc import Mapping

from ..model.finding import Change, FactEvidence, Finding, Release, RunChanged
from ..model.observation import (
    Access,
    Batch,
    Command,
    Gap,
    GpuEvent,
    Json,
    Observation,
    Opened,
    Probe,
    ProcessSeen,
    Progress,
    Sample,
    Tally,
)
from .flags import FlagFindings
from .gpus import GpuState
from .run_keeper import RunKeeper
from .runs import line_at
from .state import EngineState

_BLOCKED = ("unreadable", "failed", "permission")  # reasons of gaps that say that nothing could be read, not that bytes were lost

_DEAD = ("gone", "zombie")


class Intake:
    """What is neither a match nor a dump: load, samples, sources, probes, processes and a person's commands."""

    def __init__(self, state: EngineState, keeper: RunKeeper, flags: FlagFindings) -> None:
        self.state = state
        self.keeper = keeper
        self.flags = flags

    def take(self, observation: Observation) -> list[Change]:
        """Take one observation; those that are not for it change nothing."""
        match observation:
            case Batch():
                return self._on_batch(observation)
            case Access():
                return self._on_access(observation)
            case Progress():
                return self._on_progress(observation)
            case Sample():
                return self._on_sample(observation)
            case Tally():
                return self._on_tally(observation)
            case Gap():
                return self._on_gap(observation)
            case Opened():
                self.state.source(observation.source)["from_start"] = observation.from_start
            case GpuEvent():
                return self._on_gpu_event(observation)
            case Probe():
                return self._on_probe(observation)
            case ProcessSeen():
                return self._on_process(observation)
        return []

    def _on_batch(self, batch: Batch) -> list[Change]:
        run, changes = self.keeper.run_for(batch.at_s, line_at(batch.position, batch.text, batch.at_s))
        if run is None:
            return changes
        self.keeper.touch(run, batch.position.source, batch.at_s)
        if batch.at_s is None:
            return changes
        if run.load.first_batch_s is None:
            self.state.placing.on_fact("ready", None, at_s=batch.at_s)
        run.load.on_batch(batch, batch.at_s)
        before = run.on_batch()
        return changes if before is None else [*changes, RunChanged(batch.at_s, self.state.view(run), before)]

    def _on_access(self, access: Access) -> list[Change]:
        run = self.state.run
        if run is not None and access.at_s is not None:
            self.keeper.touch(run, access.position.source, access.at_s)
            run.load.on_access(access, access.at_s)
        return []

    def _on_progress(self, progress: Progress) -> list[Change]:
        run = self.state.run
        if run is None or progress.total <= 0:
            return []
        prefix = f"run.progress_{progress.what}"
        facts: dict[str, Json] = {f"{prefix}_done": progress.done, f"{prefix}_total": progress.total}
        if progress.elapsed_s is not None:
            facts[f"{prefix}_s"] = float(progress.elapsed_s)
        for name, value in facts.items():
            run.learn(FactEvidence(name=name, value=value, source=progress.position.source, line=progress.position.line))
        at_s = progress.at_s if progress.at_s is not None else self.state.at()
        if at_s is not None:
            run.load.add("progress", at_s, progress.done / progress.total)
        return []

    def _on_sample(self, sample: Sample) -> list[Change]:
        gpu = self.state.gpus.setdefault(sample.gpu, GpuState(sample.gpu))
        gpu.on_sample(sample)
        self.state.placing.on_sample(sample)
        if sample.processes and any(self.state.placing.is_named(process) for process in sample.processes):
            self.state.is_seen_alive = True
        if sample.xid:
            gpu.add(f"extra.xid_{sample.xid}", sample.at_s, 1.0)
        self._count_processes(gpu, sample)
        return []

    def _count_processes(self, gpu: GpuState, sample: Sample) -> None:
        """How many processes on the GPU are the server's and how many are nobody's that we know."""
        if sample.processes is None:
            return
        foreign = [self.state.placing.is_foreign(process) for process in sample.processes]
        if None not in foreign:
            gpu.add("foreign_processes", sample.at_s, float(sum(bool(each) for each in foreign)))
            gpu.add("server_processes", sample.at_s, float(sum(not each for each in foreign)))

    def _on_gpu_event(self, event: GpuEvent) -> list[Change]:
        gpu = self.state.gpus.setdefault(event.gpu, GpuState(event.gpu))
        name = f"extra.event_{event.event}" if event.xid is None else f"extra.xid_{event.xid}"
        for series_name in dict.fromkeys((name, f"extra.event_{event.event}")):
            gpu.add(series_name, event.at_s, 1.0)
        if event.event == "lost":
            gpu.lost_s = event.at_s
        return []

    def _on_tally(self, tally: Tally) -> list[Change]:
        source = self.state.source(tally.source)
        for name in ("lines", "bytes", "sglang_lines", "odd_lines"):
            source[name] = _count(source, name) + getattr(tally, name)
        if self.state.run is not None and tally.odd_lines:
            self.state.run.custom_logging = True
            self.state.run.version += 1
        return []

    def _on_gap(self, gap: Gap) -> list[Change]:
        source = self.state.source(gap.source)
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
        if self.state.run is not None and gap.source in self.state.run.sources and not gap.reason.startswith(_BLOCKED):
            self.state.run.gaps.append(gap)
            self.state.run.version += 1
        return []

    def _on_probe(self, probe: Probe) -> list[Change]:
        if probe.command or (probe.origin.startswith("/") and probe.facts):  # its launcher, or an answer of its endpoints
            self.state.is_seen_alive = True
        if probe.command and probe.started_s is not None:
            self.state.launcher_started_s = probe.started_s
        run = self.state.run
        if run is None:
            return []
        for name, value in probe.facts.items():
            if name.startswith("args."):
                if run.dump is None:
                    run.args.setdefault(name[5:], value)
                    run.args_from = run.args_from or probe.origin
                    run.facts.setdefault(name, FactEvidence(name=name, value=value, source=probe.origin))
            elif name.startswith("load."):
                if isinstance(value, int | float):
                    run.load.add(name[5:], probe.at_s, float(value))
            elif not (name.startswith("model.") and name in run.facts and run.facts[name].source != probe.origin):
                run.learn(FactEvidence(name=name, value=value, source=probe.origin))  # of the model, the log knows better
            if name == "run.sglang_version" and isinstance(value, str):
                run.release = Release(min=value, max=value, source="probed")
        if probe.facts and all(name.startswith("load.") for name in probe.facts):
            return []  # readings, not facts
        run.version += 1
        changes = self.flags.on_probe(run, probe)
        return [*changes, RunChanged(probe.at_s, self.state.view(run), run.phase)]

    def _on_process(self, seen: ProcessSeen) -> list[Change]:
        if seen.port_open or seen.state not in _DEAD:
            self.state.is_seen_alive = True
        run = self.state.run
        if run is None:
            return []
        if seen.role == "scheduler" and seen.cpu_ratio is not None:
            run.load.add("process_cpu", seen.at_s, seen.cpu_ratio)
        facts: dict[str, Json] = {}
        state = run.on_process(seen.role, seen.pid, seen.state)
        known = run.facts.get(f"run.{seen.role}_state")
        if known is None or known.value != state:
            facts = {f"run.{seen.role}_state": state, f"run.{seen.role}_state_since_s": seen.at_s}
        if seen.port_open is not None:
            facts["run.port_open"] = seen.port_open
        news = [run.learn(FactEvidence(name=name, value=value, source=seen.source)) for name, value in facts.items()]
        return [RunChanged(seen.at_s, self.state.view(run), run.phase)] if any(news) else []

    def on_command(self, command: Command) -> list[Change]:
        """An acknowledgement or a silence, or its end."""
        match command.action:
            case "acknowledge":
                return self.state.findings.overlay(command.target, acknowledged_by=command.by, acknowledged_note=command.note)
            case "unacknowledge":
                return self.state.findings.overlay(command.target, acknowledged_by=None, acknowledged_note="")
            case "silence" | "unsilence":
                until = command.until_s if command.action == "silence" else None
                hit = [f.id for f in self.state.findings.all() if _matches_silence(f, command.matchers)]
                return [change for one in hit for change in self.state.findings.overlay(one, silenced_until_s=until)]
        return []


def _count(source: Mapping[str, Json], name: str) -> int:
    value = source.get(name)
    return value if isinstance(value, int) else 0


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
