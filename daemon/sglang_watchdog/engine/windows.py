"""Evaluates rate, telemetry and correlation signatures at one moment: gates, window values, conditions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..model.finding import SamplesEvidence, Verdict
from ..model.observation import Json
from ..model.series import GPU_SERIES
from ..model.signature import Signature, Window
from ..model.words import Answer
from .absence import applicability
from .compiled import CompiledSignature
from .conditions import Context, Fault, Unknown
from .gpus import GpuState, group_values, medians
from .load import Load, Steady
from .series import Series, median, reduce
from .words import span

BY_RANK = "match of "  # beside "match", the series of one rank's own matches
MIN_SAMPLES = 10  # per GPU in a window that is long enough to hold them (contract)
_AGE_HORIZON_S = float("inf")
_UNSAMPLED = frozenset({"age", "last", "first", "gpus", "count", "increase", "max"})
NO_TELEMETRY = Verdict(
    Answer.UNKNOWN, "no telemetry of this server's GPUs", "add --telemetry; `sglang-watchdog doctor` says what the daemon sees", "telemetry"
)
_RECORD = "record with `sglang-watchdog run --record`: it reads what the GPU and its driver offer"
# How facts that no log tells become known, by the beginning of their names.
_CURES: Mapping[str, str] = {
    "run.scheduler_state": "let the daemon watch the server: a log does not show its processes",
    "run.launcher_state": "let the daemon watch the server: a log does not show its processes",
    "run.detokenizer_state": "let the daemon watch the server: a log does not show its processes",
    "run.port_open": "let the daemon watch the server: a log does not show its port",
    "run.restarted": "read on: the next start of this server tells",
    "gpu.expected_power_limit_w": "set expected_power_limit_w of the server",
}
_GATES: Mapping[str, tuple[str, str]] = {
    "ready": ("the server is not ready, or was busy loading or capturing within 10 s", "wait until it serves"),
    "steady": ("no steady load: too few Decode lines, or the running requests vary too much", "judge again under steady load"),
    "load": ("no load in the log", "judge again while requests run"),
    "idle": ("the server is not idle", ""),
    "telemetry": (NO_TELEMETRY.because, NO_TELEMETRY.do),
}


@dataclass(frozen=True, slots=True)
class Scene:
    """What a windowed signature can look at."""

    at_s: float
    load: Load | None
    steady: Steady | None
    load_root: Mapping[str, Json]
    gpus: Sequence[GpuState]  # of the server; placement is done
    matches: Mapping[str, Series]  # own matches: "match", "match.<capture>" and BY_RANK + rank
    silent_before_watch_s: float | None = None  # only a silence that nobody watched begin is left, and nothing shows life


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict with the values it rests on."""

    verdict: Verdict
    w: Mapping[str, float]
    from_s: float
    gpus: tuple[int, ...] = ()


def judge(item: CompiledSignature, scene: Scene, context: Context, peers: Sequence[GpuState] = ()) -> Judged:
    """One verdict over `scene.gpus` (all of the group, or one of them with its `peers`)."""
    signature = item.signature
    start = scene.at_s - max([w.over_s or 0.0 for w in signature.windows], default=0.0)
    closed = _gate(signature, item, scene)
    if closed is not None:
        return Judged(closed, {}, start)
    if item.gpu_series and not any(name in gpu.series for gpu in scene.gpus for name in item.gpu_series):
        unread = ", ".join(name.removeprefix("extra.") for name in item.gpu_series[:3])
        return Judged(Verdict(Answer.UNKNOWN, f"not read of these GPUs: {unread}", _RECORD, "telemetry"), {}, start)
    not_for = applicability(signature, item.applies, context)
    if not_for is not None:
        return Judged(not_for, {}, start)
    w: dict[str, float] = {}
    for window in signature.windows:
        value = window_value(window, scene, peers)
        if value is not None:
            w[window.name] = value
        if window.steady and scene.steady is not None:
            start = min(start, scene.steady.from_s)
    context.put("w", dict(w))
    verdict = _decide(item, context, w, scene.load_root)
    if verdict.answer is Answer.YES and "alive" in signature.needs and scene.silent_before_watch_s is not None:
        verdict = _not_shown_alive(scene.silent_before_watch_s)
    return Judged(verdict, w, start, tuple(gpu.index for gpu in scene.gpus) if item.uses_gpus else ())


def _gate(signature: Signature, item: CompiledSignature, scene: Scene) -> Verdict | None:
    needs = set(signature.needs) | ({"telemetry"} if item.uses_gpus else set())
    is_open = {
        "ready": bool(scene.load_root.get("ready")),
        "steady": scene.steady is not None,
        "load": _has_load(scene),
        "idle": not _has_load(scene),
        "telemetry": any(gpu.samples for gpu in scene.gpus),
    }
    for need in ("telemetry", "ready", "load", "steady", "idle"):
        if need in needs and not is_open[need]:
            because, do = _GATES[need]
            return Verdict(Answer.UNKNOWN, because, do, need)
    return None


def _not_shown_alive(silent_s: float) -> Verdict:
    return Verdict(
        Answer.UNKNOWN,
        f"the log was already silent for {span(silent_s)} when it was opened; nothing shows that the server still runs",
        "let the daemon see the server's process, or give the server's address",
        "alive",
    )


def _has_load(scene: Scene) -> bool:
    age, running = scene.load_root.get("last_batch_age_s"), scene.load_root.get("running")
    return isinstance(age, float) and age <= 15.0 and isinstance(running, float) and running >= 1.0


def _decide(item: CompiledSignature, context: Context, w: Mapping[str, float], load_root: Mapping[str, Json]) -> Verdict:
    undecided: Verdict | None = None
    for condition in item.when:
        outcome = condition.evaluate(context)
        if outcome is False:
            values = [f"{path[2:]} is {w[path[2:]]:.4g}" for path in sorted(condition.paths) if path.startswith("w.") and path[2:] in w]
            return Verdict(Answer.NO, condition.because or "; ".join([f"{condition.expression} does not hold", *values]))
        if isinstance(outcome, Unknown) and undecided is None:
            what = "too few samples or lines" if outcome.path.startswith("w.") else "it is not known"
            cure = next((text for name, text in _CURES.items() if outcome.path.startswith(name)), "")
            if outcome.path.startswith("load.ceiling"):
                cure = str(load_root.get("ceiling_do", ""))
            undecided = Verdict(Answer.UNKNOWN, f"{outcome.path}: {what}", cure, outcome.path)
        if isinstance(outcome, Fault):
            undecided = Verdict(
                Answer.UNKNOWN,
                f"{item.signature.id}: {condition.expression}: {outcome.message}",
                "report this: the signature is faulty",
                "fault",
            )
    if undecided is not None:
        return undecided
    return Verdict(Answer.YES, "; ".join(f"{name} = {value:.4g}" for name, value in w.items()) or "all conditions hold")


def window_value(window: Window, scene: Scene, peers: Sequence[GpuState]) -> float | None:
    """The value of one declared window at the scene's moment; None if there are too few values."""
    if window.steady:
        if scene.steady is None:
            return None
        over_s = scene.steady.until_s - scene.steady.from_s
    else:
        over_s = window.over_s if window.over_s is not None else _AGE_HORIZON_S
    from_s = scene.at_s - over_s
    if window.series in GPU_SERIES or window.series.startswith("extra."):
        return _gpu_value(window, scene, peers, from_s, over_s)
    series = (
        scene.matches.get(window.series)
        if window.series.startswith("match")
        else (scene.load.series.get(window.series) if scene.load is not None else None)
    )
    if window.function == "age":
        newest = series.last_at(scene.at_s) if series is not None else None
        return scene.at_s - newest[0] if newest is not None else None
    values = series.window(from_s, scene.at_s) if series is not None else []
    if window.function == "count" and window.series == "match":
        return _events(scene.matches, len(values), from_s, scene.at_s)
    # Lines and answers are held as counts by second.
    function = "sum" if window.function == "count" and window.series.endswith("_lines") else window.function
    return reduce(function, values, over_s, window.argument)


def _events(matches: Mapping[str, Series], lines: int, from_s: float, to_s: float) -> float:
    """How often something happened, where each rank of a replica says it: what one rank said most often, summed over replicas."""
    replicas: dict[str, int] = {}
    for name, series in matches.items():
        if name.startswith(BY_RANK):
            said = len(series.window(from_s, to_s))
            lines -= said
            replica = next((part for part in name.removeprefix(BY_RANK).split() if part.startswith("DP")), "")
            replicas[replica] = max(replicas.get(replica, 0), said)
    return float(lines + sum(replicas.values()))


def _gpu_value(window: Window, scene: Scene, peers: Sequence[GpuState], from_s: float, over_s: float) -> float | None:
    function, to_s = window.function, scene.at_s
    if function == "peer_median":
        values = group_values(peers, window.series, from_s, to_s)
        return median(values) if values else None
    if function == "age":
        newest = [point[0] for gpu in scene.gpus if (s := gpu.series.get(window.series)) and (point := s.last_at(to_s))]
        return to_s - max(newest) if newest else None
    if function not in _UNSAMPLED and not _enough(window, scene.gpus, from_s, to_s, over_s):
        return None
    if function in ("spread", "min_gpu", "max_gpu", "gpus"):
        each = medians(scene.gpus, window.series, from_s, to_s)
        return _over_gpus(function, each)
    if function == "increase":
        grown = [reduce("increase", s.window(from_s, to_s), over_s, None) for gpu in scene.gpus if (s := gpu.series.get(window.series))]
        known = [value for value in grown if value is not None]
        return max(known) if known else None
    values = group_values(scene.gpus, window.series, from_s, to_s)
    return reduce(function, values, over_s, window.argument)


def _over_gpus(function: str, each: Mapping[int, float]) -> float | None:
    if function == "gpus":
        return float(len(each))
    if not each:
        return None
    return {"spread": max(each.values()) - min(each.values()), "min_gpu": min(each.values()), "max_gpu": max(each.values())}[function]


def _enough(window: Window, gpus: Sequence[GpuState], from_s: float, to_s: float, over_s: float) -> bool:
    """At least ten samples of each GPU, fewer only where the window itself is shorter than ten seconds."""
    need = min(MIN_SAMPLES, max(2, int(over_s * 0.7))) if over_s != float("inf") else 1
    counts = [len(s.window(from_s, to_s)) for gpu in gpus if (s := gpu.series.get(window.series)) is not None]
    return bool(counts) and min(counts) >= need


def samples_evidence(item: CompiledSignature, scene: Scene, from_s: float) -> tuple[SamplesEvidence, ...]:
    """Medians of the GPU series that the signature looked at, over the window it was judged on."""
    names = item.signature.evidence_series or tuple(
        dict.fromkeys(window.series for window in item.signature.windows if window.series in GPU_SERIES)
    )
    out = []
    for name in names:
        values = group_values(scene.gpus, name, from_s, scene.at_s)
        if values:
            out.append(
                SamplesEvidence(
                    metric=name,
                    gpus=tuple(gpu.index for gpu in scene.gpus),
                    from_s=from_s,
                    until_s=scene.at_s,
                    median=round(median(values), 4),
                    n=len(values),
                )
            )
    return tuple(out)
