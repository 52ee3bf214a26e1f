"""Which signatures could judge a run, which could not, and what would cure it."""

from ..model.finding import Coverage, Verdict
from ..model.signature import Signature
from ..model.words import Answer
from .absence import NOT_SEARCHED
from .compiled import CompiledSignature
from .runs import RunState
from .state import EngineState
from .windows import NO_TELEMETRY


def coverage_of(state: EngineState, run: RunState) -> list[Coverage]:
    """Every signature's verdict on one run."""
    return [_entry(item.signature, run, _verdict(state, item, run)) for item in state.compiled.signatures.values()]


def coverage_unseen(state: EngineState) -> list[Coverage]:
    """Before any run: everything is unknown."""
    nothing = Verdict(Answer.UNKNOWN, "no SGLang record was read", "point it at the server's log (stdout and stderr)", "")
    return [_entry(item.signature, None, nothing) for item in state.compiled.signatures.values()]


def _entry(signature: Signature, run: RunState | None, verdict: Verdict) -> Coverage:
    return Coverage(
        signature=signature.id,
        topic=signature.topic,
        run=run.id if run is not None else None,
        verdict=verdict.answer,
        because=verdict.because,
        do=verdict.do,
        reason=verdict.reason,
    )


def _verdict(state: EngineState, item: CompiledSignature, run: RunState) -> Verdict:
    signature = item.signature
    if signature.absence is not None:
        silence = state.silences.get((run.id, signature.id))
        return silence.verdict if silence is not None else Verdict(Answer.UNKNOWN, "not judged yet", "", "until")
    known = state.verdicts.get((run.id, signature.id))
    if known is not None:
        return known
    if item.uses_gpus and not state.gpus:
        return NO_TELEMETRY
    if item.is_windowed:
        return Verdict(Answer.UNKNOWN, "its moment never came in what was read", "", "opportunity")
    return _never_said(run) if run.was_searched_for(signature) else NOT_SEARCHED


def _never_said(run: RunState) -> Verdict:
    if run.dump is None:
        return Verdict(
            Answer.UNKNOWN,
            "not said in what was read, and the log does not show the start of this run",
            "give the log from the server's start",
            "read_since",
        )
    if run.custom_logging:
        return Verdict(Answer.UNKNOWN, "the server logs in a format of its own", "unset SGLANG_LOGGING_CONFIG_PATH", "custom_logging")
    if run.gaps:
        return Verdict(Answer.UNKNOWN, f"a part of {run.gaps[0].source} was not seen ({run.gaps[0].reason})", "", "gap")
    return Verdict(Answer.NO, "it was not said in what was read")
