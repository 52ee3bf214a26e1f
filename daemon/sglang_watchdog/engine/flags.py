"""Flag triage on a live run: asks the judge once for each run and raises what it says."""

from dataclasses import replace
from functools import partial

from ..model.finding import Change
from ..model.signature import Signature
from ..model.words import Answer
from .lifecycle import Statement
from .roots import Roots
from .runs import RunState
from .settings import FlagRecord
from .state import EngineState


class FlagFindings:
    """One finding for each launch flag that does nothing, is overridden or stands in conflict: the verdicts come from `settings.flag_judge`."""

    def __init__(self, state: EngineState, roots: Roots) -> None:
        self.state = state
        self.roots = roots

    def judge(self, run: RunState, at_s: float | None) -> list[Change]:
        """Once for each run, when it is ready and the facts about model and GPU are in: one finding for each flag that does nothing."""
        judge_flags = self.state.settings.flag_judge
        if judge_flags is None or run.flags_judged or run.dump is None or not run.dump_complete:
            return []
        run.flags_judged = True
        gpu = {f"gpu.{name}": value for name, value in self.roots.gpu_root(run).items()}
        facts = {name: fact.value for name, fact in run.facts.items()} | gpu
        changes: list[Change] = []
        for record in judge_flags(run.args, run.release, facts):
            signature = self._flag_signature(record)
            if signature is None:
                continue
            evidence = run.fact_evidence(f"args.{record.field}")
            statement = Statement(summary=record.summary, lines=(run.dump,), other=(evidence,) if evidence is not None else ())
            key = self.state.key(signature, run)
            changes += self.state.findings.judge(key, signature, Answer.YES, at_s, partial(_said, statement), hold_s=0.0)
        return changes

    def _flag_signature(self, record: FlagRecord) -> Signature | None:
        known = self.state.compiled.library.signatures.get(record.signature)
        severity = self.state.compiled.library.topics.get(record.topic)
        if known is None or severity is None:
            return None
        return replace(
            known, topic=record.topic, severity=severity, title=record.title, explanation=record.explanation,
            remediation=record.remediation, references=record.references, hold_s=0.0,
        )  # fmt: skip


def _said(statement: Statement) -> Statement:
    return statement
