"""When silence is an answer: the preconditions of `expected` and `missing`, each with its own reason and its cure."""

from dataclasses import dataclass

from ..model.finding import AbsenceEvidence, LineEvidence, Verdict
from ..model.signature import Absence, Signature
from ..model.words import Answer
from .compiled import CompiledSignature
from .conditions import CompiledCondition, Context, Fault, Unknown
from .releases import Releases
from .runs import RunState

NOT_SEARCHED = Verdict(
    Answer.UNKNOWN,
    "the signature came with a reload after this run began, so earlier lines were not searched for it",
    "restart the watchdog: it reads the current run again from its first line",
    "reloaded",
)
_LEVELS = ("debug", "info", "warning", "error", "critical")


@dataclass(frozen=True, slots=True)
class Silence:
    """A verdict on a silence with what it rests on."""

    verdict: Verdict
    evidence: AbsenceEvidence | None = None
    until: LineEvidence | None = None


def unknown(reason: str, because: str, do: str = "") -> Silence:
    return Silence(Verdict(Answer.UNKNOWN, because, do, reason))


def applicability(signature: Signature, conditions: tuple[CompiledCondition, ...], context: Context) -> Verdict | None:
    """None if every condition holds, else why the signature does not apply or why that cannot be told."""
    undecided: Verdict | None = None
    for condition in conditions:
        outcome = condition.evaluate(context)
        if outcome is False:
            return Verdict(Answer.NOT_APPLICABLE, condition.because or f"{condition.expression} does not hold", "", "applies_when")
        if isinstance(outcome, Unknown) and undecided is None:
            undecided = Verdict(Answer.UNKNOWN, f"{outcome.path} is not known", _cure(outcome.path), outcome.path)
        if isinstance(outcome, Fault):
            undecided = Verdict(
                Answer.UNKNOWN,
                f"{signature.id}: {condition.expression}: {outcome.message}",
                "report this: the signature is faulty",
                "fault",
            )
    return undecided


def _cure(path: str) -> str:
    if path.startswith("args."):
        return "give the log from the server's start (its server_args line), or the server's address for /server_info"
    if path.startswith(("w.", "load.")):
        return ""
    if path.startswith("gpu."):
        return "add telemetry (--telemetry) or name the GPU in the configuration"
    return "give the log from the server's start"


def judge_silence(
    item: CompiledSignature,
    absence: Absence,
    run: RunState,
    context: Context,
    releases: Releases,
    now_s: float,
    *,
    over: bool,
) -> Silence:
    """The verdict of an `expected` or `missing` signature on a run at `now_s`. `over`: nothing more will be read."""
    signature = item.signature
    said = [line for pattern in signature.await_ for (seen, _), line in run.first_hits.items() if seen == pattern]
    if said and not absence.per_rank:
        line = min(said, key=lambda found: found.line)
        return Silence(Verdict(Answer.NO, f"it was said ({line.source}:{line.line})"), until=line)
    if run.custom_logging:
        return unknown(
            "custom_logging",
            "the server logs in a format of its own, so lines may be hidden or reworded",
            "unset SGLANG_LOGGING_CONFIG_PATH, or keep SGLang's format in one handler",
        )
    if absence.read_since == "run_start" and run.dump is None:
        return unknown("read_since", "the log does not show the start of this run", "give the log from the server's start")
    not_for = applicability(signature, item.applies, context)
    if not_for is not None:
        return Silence(not_for)
    for check in (_released, _unbroken, _level):
        found = check(signature, absence, run, releases)
        if found is not None:
            return found
    reached = run.reached(absence.until, by_all_ranks=absence.per_rank)
    if reached is None:
        done = "" if not over else "; the log ends before it"
        return unknown("until", f"the run has not reached {absence.until}{done}", "wait, or give more of the log")
    if not over and reached.at_s is not None and now_s < reached.at_s + absence.grace_s:
        return unknown("grace", f"{absence.grace_s:g} s have not passed since {absence.until}", "")
    if over and reached.at_s is not None and now_s < reached.at_s + absence.grace_s:
        return unknown(
            "grace",
            f"the log ends within {absence.grace_s:g} s of {absence.until}",
            "give more of the log, or --until if you know that nothing followed",
        )
    opportunity = _first(run, absence.opportunity)
    if absence.opportunity and opportunity is None:
        return unknown("opportunity", "nothing shows that this code path had its chance to speak", "send a request, then look again")
    witness = _first(run, absence.witness)
    if absence.witness and witness is None:
        return unknown(
            "witness",
            "no line of this level and process was seen, so such lines may not reach this log",
            "start with --log-level info and keep both stdout and stderr",
        )
    if absence.per_rank and said:
        silent = _silent_ranks(signature, run)
        if not silent:
            return Silence(Verdict(Answer.NO, "every rank said it"), until=said[0])
    evidence = AbsenceEvidence(
        awaited=item.awaited or signature.title,
        from_s=run.started_at_s,
        until_s=now_s if now_s > 0 else None,
        witness=witness,
        opportunity=opportunity,
    )
    return Silence(Verdict(Answer.YES, "it was not said, and would have been seen"), evidence, reached)


def _released(signature: Signature, absence: Absence, run: RunState, releases: Releases) -> Silence | None:  # noqa: ARG001
    verdict = releases.covers(signature.releases, run.release)
    if verdict is True:
        return None
    what = _release_text(run)
    if verdict is False:
        return unknown(
            "releases",
            f"{what} is outside the releases whose sources were read ({signature.releases})",
            "update the signature library",
        )
    return unknown(
        "releases",
        f"{what}, and only {signature.releases} is known to print it",
        "name the release: the server's address for /server_info, or a log that states it",
    )


def _release_text(run: RunState) -> str:
    low, high = run.release.min, run.release.max
    if low is None and high is None:
        return "the release is not known"
    return f"SGLang {low}" if low == high else f"the release is somewhere from {low or 'the first'} to {high or 'the newest'}"


def _unbroken(signature: Signature, absence: Absence, run: RunState, releases: Releases) -> Silence | None:  # noqa: ARG001
    if not run.gaps:
        return None
    gap = run.gaps[0]
    return unknown("gap", f"a part of {gap.source} was not seen ({gap.reason})", "keep rotated files until they are read")


def _level(signature: Signature, absence: Absence, run: RunState, releases: Releases) -> Silence | None:  # noqa: ARG001
    level = run.args.get("log_level")
    if not isinstance(level, str):
        return None  # the witness must speak for it
    if _LEVELS.index(level.lower()) > _LEVELS.index(absence.log_level) if level.lower() in _LEVELS else False:
        return unknown("log_level", f"--log-level {level} hides it", f"start with --log-level {absence.log_level}")
    return None


def _first(run: RunState, patterns: tuple[str, ...]) -> LineEvidence | None:
    lines = [line for (seen, _), line in run.first_hits.items() if seen in patterns]
    return min(lines, key=lambda line: line.line) if lines else None


def _silent_ranks(signature: Signature, run: RunState) -> list[str]:
    spoke = {rank for (seen, rank) in run.first_hits if seen in signature.await_}
    return sorted(set(run.ranks) - spoke)
