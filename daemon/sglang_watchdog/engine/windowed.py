"""Signatures of kind rate, telemetry and correlation: windows over load, matches and samples, judged every second of event time."""

from collections.abc import Sequence

from ..model.finding import Change, FactEvidence, LineEvidence, Verdict
from ..model.signature import Signature
from ..model.words import Answer, State
from .compiled import CompiledSignature, is_hardware, spans_runs
from .conditions import Context
from .gpus import GpuState
from .lifecycle import Statement
from .roots import Roots
from .runs import RunState, line_at
from .state import EngineState, in_phase
from .windows import NO_TELEMETRY, Judged, judge, samples_evidence
from .words import gpu_list, gpus_named


class WindowJudge:
    """Judges each signature whose conditions look at a window, on a grid of whole seconds."""

    def __init__(self, state: EngineState, roots: Roots) -> None:
        self.state = state
        self.roots = roots
        self._ended: set[str] = set()  # runs whose end was judged

    def forget(self, run: str) -> None:
        """A run that is no longer kept."""
        self._ended.discard(run)

    def judged_now(self, item: CompiledSignature, run: RunState | None, at_s: float, context: Context) -> Judged:
        """The verdict of its conditions alone, with nothing recorded."""
        return judge(item, self.roots.scene(item, run, at_s, self.state.server_gpus()), context)

    def judge(self, item: CompiledSignature, run: RunState | None, at_s: float) -> list[Change]:
        """Judge it for one second and settle what follows: verdict, facts, finding."""
        signature = item.signature
        hardware = is_hardware(signature)
        gpus = self.state.server_gpus() if run is not None or not hardware else list(self.state.gpus.values())
        if not in_phase(signature, run) and not hardware:
            return []
        context = self.roots.context(run, at_s)
        elsewhere = self._other_release(signature, run)
        if elsewhere is not None:
            return self._settle_windowed(item, run, at_s, Judged(elsewhere, {}, at_s), gpus, context)
        if signature.each == "gpu":
            changes = self._judge_each(item, run, at_s, gpus, context)
            if hardware and signature.all_gpus and len(gpus) < len(self.state.gpus):
                own = {gpu.index for gpu in gpus}
                others = [gpu for index, gpu in sorted(self.state.gpus.items()) if index not in own]
                changes += self._judge_each(item, run, at_s, others, context)
            return changes
        judged = judge(item, self.roots.scene(item, run, at_s, gpus), context)
        return self._settle_windowed(item, run, at_s, judged, gpus, context)

    def _other_release(self, signature: Signature, run: RunState | None) -> Verdict | None:
        """Why a conclusion from a release's sources does not hold for this run; a line that was said needs no release."""
        if not signature.releases or signature.match:
            return None
        covered = self.state.releases.covers(signature.releases, run.release) if run is not None else None
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

    def _judge_each(self, item: CompiledSignature, run: RunState | None, at_s: float, gpus: Sequence[GpuState], context: Context) -> list[Change]:
        """One verdict a GPU; hardware findings are one a GPU, others one a run that names the GPUs."""
        judged = {gpu.index: judge(item, self.roots.scene(item, run, at_s, [gpu]), context, [g for g in gpus if g is not gpu]) for gpu in gpus}
        if is_hardware(item.signature):
            return [change for gpu in gpus for change in self._settle_windowed(item, run, at_s, judged[gpu.index], [gpu], context, gpu)]
        guilty = [gpu for gpu in gpus if judged[gpu.index].verdict.answer is Answer.YES]
        if guilty:
            worst = judged[guilty[0].index]
            return self._settle_windowed(item, run, at_s, worst, guilty, context)
        if not judged:
            none = Judged(NO_TELEMETRY, {}, at_s)
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
        self.state.note_fault(signature, verdict)
        if run is not None:
            self.state.remember(run, signature, verdict)
        key = self.state.key(signature, run, gpu=gpu.key if gpu else None)
        answer = verdict.answer
        if answer is Answer.YES and signature.yields_to and self.state.gives_way(signature, run, own=key, counts_pending=True):
            answer = Answer.NO
        if answer is not Answer.YES and signature.resolve_when and self.state.findings.state_of(key) is State.FIRING:
            answer = self._cleared(item, context)
        if answer is not Answer.YES and self.state.findings.state_of(key) is None:
            return []
        if answer is Answer.YES and run is not None:
            for name, value in signature.concludes.items():
                run.learn(FactEvidence(name=name, value=value, source="engine"))

        was = self.state.findings.state_of(key)

        def state() -> Statement:
            scene = self.roots.scene(item, run, at_s, gpus)
            lines: list[LineEvidence] = []
            if run is not None:
                lines += self.state.recent.get((run.id, signature.id), [])
                if spans_runs(signature):
                    starts = [*self.state.failed_starts(run, at_s), run]
                    lines += [line for each in starts if (line := each.dump or each.first_line) is not None]
                if item.uses_log:
                    since_s = scene.steady.from_s if scene.steady is not None and "load.stalls" in signature.summary else at_s
                    lines += self._window_lines(run, judged.from_s, at_s, since_s)
            indices = tuple(g.index for g in gpus) if item.uses_gpus or signature.each else ()
            named = {"gpus": gpu_list(indices), "gpus_named": gpus_named(indices), "gpu_count": len(indices)}
            values: dict[str, object] = {**named, "count": len(lines), "ranks": ""}
            return Statement(
                summary=self.roots.words(signature, context, values, judged.w),
                lines=tuple(lines),
                other=(*samples_evidence(item, scene, judged.from_s), *self.roots.fact_evidence(item, run)),
                gpus=indices,
                gpu_uuid=gpu.uuid if gpu else None,
                count=0 if was in (State.FIRING, State.PENDING) else 1,  # seconds in which it holds are not occurrences
            )

        changes = self.state.findings.judge(key, signature, answer, at_s, state)
        return changes + (self.state.fold() if changes else [])

    @staticmethod
    def _cleared(item: CompiledSignature, context: Context) -> Answer:
        """With `resolve_when`, only that clears; until then the finding stays as it is."""
        done = all(condition.evaluate(context) is True for condition in item.resolve_when)
        return Answer.NO if done else Answer.UNKNOWN

    @staticmethod
    def _window_lines(run: RunState, from_s: float, to_s: float, stalls_since_s: float) -> list[LineEvidence]:
        """At most six batch lines, Decode lines first: they carry the load. The lines around the two longest stalls come before others."""
        inside = [b for b in run.load.recent_batches if b.at_s is not None and from_s <= b.at_s <= to_s]
        decodes = [b for b in inside if b.is_decode] or inside or list(run.load.recent_batches)[-3:]
        stalls = [pair for pair in run.load.pauses if (pair[0].at_s or 0.0) >= stalls_since_s]
        longest = sorted(stalls, key=lambda pair: (pair[0].at_s or 0.0) - (pair[1].at_s or 0.0))[:2]
        room = 6 - 2 * len(longest)
        chosen = decodes if len(decodes) <= room else [*decodes[: room // 2], *decodes[-(room // 2) :]]
        every = {(b.position.source, b.position.line): b for b in (*(b for pair in longest for b in pair), *chosen)}
        shown = sorted(every.values(), key=lambda b: b.at_s or 0.0) if longest else every.values()
        return [line_at(b.position, b.text, b.at_s) for b in shown]

    def judge_end(self, run: RunState, at_s: float | None) -> list[Change]:
        """Signatures about how a run ended are judged once, when it has."""
        if run.id in self._ended:
            return []
        self._ended.add(run.id)
        enders = [item for item in self.state.compiled.windowed if any("run.end" in c.paths for c in item.when)]
        changes: list[Change] = []
        for item in enders:
            changes += self.judge(item, run, at_s if at_s is not None else 0.0)
        return changes
