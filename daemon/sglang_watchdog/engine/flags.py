"""Flag triage on a live run: when the flags of a run are judged, and what their findings rest on. What they come to is triage's to say.

They are due once the server is ready and the facts about model and GPU are in; what they are judged by is kept as it was then, so
that a launch command that is told later (or given to `check`) leads to the same findings.
"""

from dataclasses import replace
from functools import partial
from typing import Final

from ..model.finding import Change, Evidence, FactEvidence, RunChanged
from ..model.flags import FlagQuestion, FlagRecord, Launch
from ..model.observation import COMMAND_LINE, Probe
from ..model.signature import Library, Signature
from ..model.words import Answer, Phase
from .lifecycle import Statement
from .roots import Roots
from .runs import RunState
from .state import EngineState

LAUNCH: Final = "launch command"  # as evidence: the same whoever told it
_APART_S: Final = 2.0  # stamps of a log are whole seconds
_SLOWEST_START_S: Final = 1800.0  # from exec to the dump: imports from a network disk, a model that is fetched before it


class FlagFindings:
    """One finding for each launch flag that does nothing, is overridden or stands in conflict: the verdicts come from `settings.flag_judge`."""

    def __init__(self, state: EngineState, roots: Roots) -> None:
        self.state = state
        self.roots = roots

    def judge(self, run: RunState, at_s: float | None, *, is_over: bool = False) -> list[Change]:
        """Once for each run, when its flags are due and its launch command is told. `is_over`: no more will be told of it."""
        settings = self.state.settings
        if settings.flag_judge is None or run.flag_table is not None or run.dump is None or not run.dump_complete:
            return []
        if run.flag_question is None and not is_over:
            run.flag_question = self._question(run, at_s)
        question = run.flag_question
        if question is None or (settings.awaits_launch and not run.is_launch_told and not is_over):
            return []
        answer = settings.flag_judge(replace(question, launch=run.launch, launch_because="" if run.launch is not None else run.launch_because))
        run.flag_table = answer.table
        run.version += 1
        changes: list[Change] = []
        for record in answer.records:
            signature = signature_of(record, self.state.compiled.library)
            if signature is not None:
                said = partial(_said, _statement(record, run))
                key = self.state.key(signature, run)
                changes += self.state.findings.judge(key, signature, Answer.YES, question.at_s, said, hold_s=0.0)
        return [*changes, RunChanged(self.state.at(), self.state.view(run), run.phase)]

    def _question(self, run: RunState, at_s: float | None) -> FlagQuestion:
        facts = dict(run.facts)
        for name, value in self.roots.gpu_root(run).items():
            path = f"gpu.{name}"
            if path not in facts or facts[path].value != value:
                facts[path] = FactEvidence(name=path, value=value, source="gpus")
        return FlagQuestion(at_s=at_s, args=dict(run.args), release=run.release, facts=facts, lines=tuple(run.milestones.values()), dump=run.dump)

    def on_probe(self, run: RunState, probe: Probe) -> list[Change]:
        """Take a launch command for the run, or that none can be known. A process that began later, or long before, launched another life."""
        if probe.origin != COMMAND_LINE:
            return []
        run.is_launch_told = True
        run.launch_because = _of_another_life(run, probe)
        if probe.command is not None and not run.launch_because:
            run.launch = Launch(words=probe.command, source=probe.origin)
        return self.judge(run, probe.at_s) if run.flag_question is not None else []

    def on_end(self, run: RunState, at_s: float | None) -> list[Change]:
        """The server stopped in order; where the user gave the newest run's command, this may be that run."""
        return self.judge(run, at_s, is_over=self.state.settings.launch is None)

    def on_finish(self, run: RunState) -> list[Change]:
        """All was read: the newest run is the one whose command the user gave."""
        run.launch = run.launch or self.state.settings.launch
        changes = self.judge(run, self.state.at(), is_over=True)
        return changes + (self.state.findings.close_run(run.id, run.ended_at_s) if run.phase is Phase.STOPPED else [])


def _of_another_life(run: RunState, probe: Probe) -> str:
    """Why the process did not begin this run; "" where its start and the run's go together, or one of them is not known."""
    if probe.command is None or probe.started_s is None or run.started_at_s is None:
        return ""
    if probe.started_s > run.started_at_s + _APART_S:
        return "the launcher that is running began after this run: its command launched another life"
    if probe.started_s < run.started_at_s - _SLOWEST_START_S:
        minutes = (run.started_at_s - probe.started_s) / 60
        return f"the launcher that is running began {minutes:.0f} minutes before this run's first line: its command is another server's"
    return ""


def _statement(record: FlagRecord, run: RunState) -> Statement:
    """The dump's line, the value it shows, and what was asked."""
    shown = run.fact_evidence(f"args.{record.field}")
    asked = FactEvidence(name=f"asked.{record.field}", value=record.asked, source=LAUNCH)
    other: tuple[Evidence, ...] = (*([shown] if shown is not None else []), *([asked] if record.was_asked else []))
    return Statement(summary=record.summary, lines=(run.dump,) if run.dump is not None else (), other=other)


def signature_of(record: FlagRecord, library: Library) -> Signature | None:
    """The flag's signature with this record's topic and words; None where the library knows neither."""
    known = library.signatures.get(record.signature)
    severity = library.topics.get(record.topic)
    if known is None or severity is None:
        return None
    return replace(
        known, topic=record.topic, severity=severity, title=record.title, explanation=record.explanation,
        remediation=record.remediation, references=record.references, hold_s=0.0,
    )  # fmt: skip


def _said(statement: Statement) -> Statement:
    return statement
