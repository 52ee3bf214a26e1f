"""Lines that were not said: absence as evidence, once everything that could have made the line appear has been checked."""

from ..model.finding import Change, Evidence, FactEvidence
from ..model.observation import Hit
from ..model.words import Answer, State
from .absence import NOT_SEARCHED, Silence, judge_silence
from .compiled import CompiledSignature
from .conditions import Context
from .lifecycle import Statement
from .roots import Roots
from .runs import RunState
from .state import EngineState
from .windowed import WindowJudge

_SETTLE_S = 120.0  # after readiness, silences are judged at every tick this long, then only on news


class SilenceJudge:
    """Judges signatures by a line that was not said, under all preconditions of absence.py."""

    def __init__(self, state: EngineState, roots: Roots, windowed: WindowJudge) -> None:
        self.state = state
        self.roots = roots
        self.windowed = windowed
        self._seen: dict[str, tuple[int, int]] = {}  # run -> what was there when it was judged last

    def forget(self, run: str | None = None) -> None:
        """Drop what is kept for a run, or for all after a reload."""
        for key in [run] if run is not None else list(self._seen):
            self._seen.pop(key, None)

    def said_after_all(self, hit: Hit, run: RunState) -> list[Change]:
        """A line came that was held to be missing."""
        changes: list[Change] = []
        for item in self.state.compiled.absences:
            if hit.pattern in item.signature.await_:
                changes += self.state.findings.resolve(self.state.key(item.signature, run), hit.at_s)
        return changes

    def judge(self, *, over: bool = False) -> list[Change]:
        """Judge all silences of the newest run; `over`: no line can come any more."""
        run = self.state.run
        if run is None or (run.closed and not over):
            return []
        seen = (run.version, len(run.first_hits) + len(run.milestones))
        settled = run.load.ready_s is not None and self.state.now_s > run.load.ready_s + _SETTLE_S
        if not over and settled and self._seen.get(run.id) == seen:
            return []
        self._seen[run.id] = seen
        context = self.roots.context(run, self.state.at())
        changes: list[Change] = []
        now = self.state.tick_s if self.state.tick_s is not None else 0.0
        for item in self.state.compiled.absences:
            absence = item.signature.absence
            assert absence is not None
            silence = judge_silence(item, absence, run, context, self.state.releases, now, over=over)
            if silence.verdict.answer is Answer.YES and item.when:
                judged = self.windowed.judged_now(item, run, now, context)
                if judged.verdict.answer is not Answer.YES:
                    silence = Silence(judged.verdict)
            rests_on_lines = silence.verdict.answer is Answer.YES or silence.verdict.reason in ("witness", "opportunity")
            if rests_on_lines and not run.was_searched_for(item.signature) and not self._stands(item, run):
                silence = Silence(NOT_SEARCHED)
            self.state.silences[run.id, item.signature.id] = silence
            if silence.verdict.answer is Answer.YES and not self.state.gives_way(item.signature, run):
                changes += self._conclude(item, run, silence, context)
            self.state.note_fault(item.signature, silence.verdict)
        return changes + (self.state.fold() if changes else [])

    def _stands(self, item: CompiledSignature, run: RunState) -> bool:
        return self.state.findings.state_of(self.state.key(item.signature, run)) is State.FIRING

    def _conclude(self, item: CompiledSignature, run: RunState, silence: Silence, context: Context) -> list[Change]:
        signature, at_s = item.signature, self.state.at()
        key = self.state.key(signature, run)
        if self.state.findings.state_of(key) is State.FIRING:
            return []
        for name, value in signature.concludes.items():
            run.learn(FactEvidence(name=name, value=value, source=run.sources[0]))

        def state() -> Statement:
            lines = [silence.until] if silence.until is not None else []
            other: list[Evidence] = [silence.evidence] if silence.evidence is not None else []
            return Statement(
                summary=self.roots.words(signature, context, {"count": 1, "ranks": ", ".join(run.ranks)}, {}),
                lines=tuple(lines),
                other=(*other, *self.roots.fact_evidence(item, run)),
                ranks=tuple(run.ranks),
            )

        return self.state.findings.judge(key, signature, Answer.YES, at_s, state, hold_s=0.0)
