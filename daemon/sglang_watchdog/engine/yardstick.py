"""How fast a run decodes against two yardsticks: what the memory allows, and its own best under a like load."""

from collections import deque
from dataclasses import dataclass, field, replace

from ..model.finding import OwnBest, Roofline
from ..model.observation import Json
from .load import Steady
from .roofline import Ceiling, Span
from .roofline_inputs import Gathered, Known, estimate
from .series import percentile

_KEPT = 64  # windows of one bucket
_BUCKETS = 64  # of like load; the one unused for longest goes
_ENOUGH = 8  # windows for a best worth comparing with: two minutes
_NEWS_S = 60.0
_NEWS_SHARE = 0.2  # of a change of the share
_PRECISION = 0.15  # weights and KV from the log; facts on five models of known shape agreed within that
_PRECISION_ASSUMED = 0.40

Bucket = tuple[int, int]


@dataclass(slots=True)
class Yardstick:
    """The newest judgement of one run and its bests. Bounded: at most 64 buckets of 64 windows."""

    newest: Roofline | None = None
    buckets: dict[Bucket, deque[float]] = field(default_factory=dict)
    _counted_s: float = float("-inf")
    _told: tuple[float, float | None, tuple[str, ...]] | None = None

    def judge(self, known: Known, steady: Steady) -> None:
        """Take the steady window that ends now."""
        self._count(steady)
        found, gathered = estimate(known, steady.running, steady.context_tokens)
        judged = _judged(steady, found, gathered)
        self.newest = replace(judged, text=_text(judged))

    def _count(self, steady: Steady) -> None:
        """One value for each window that does not overlap the last one."""
        if steady.from_s < self._counted_s or steady.tokens_per_s <= 0:
            return
        self._counted_s = steady.until_s
        bucket = _bucket(steady)
        speeds = self.buckets.pop(bucket, None) or deque(maxlen=_KEPT)
        speeds.append(steady.tokens_per_s)
        self.buckets[bucket] = speeds  # the newest last
        while len(self.buckets) > _BUCKETS:
            del self.buckets[next(iter(self.buckets))]

    def best_of(self, steady: Steady) -> float | None:
        """Tokens/s of this run's own best under a like load, once there are enough windows."""
        speeds = self.buckets.get(_bucket(steady))
        return percentile(list(speeds), 0.90) if speeds is not None and len(speeds) >= _ENOUGH else None

    def root(self, steady: Steady) -> dict[str, Json]:
        """What conditions and summaries read as load.ceiling_* and load.own_best*; what is not known is left out."""
        newest = self.newest
        if newest is None:
            return {}
        best = self.best_of(steady)
        return {
            "ceiling_low": newest.ceiling_low,
            "ceiling_high": newest.ceiling_high,
            "ceiling_share_low": newest.share_low,
            "ceiling_share_high": newest.share_high,
            "ceiling_text": newest.text,
            "ceiling_do": "; ".join(newest.do),
            "own_best": best,
            "own_best_share": newest.tokens_per_s / best if best else None,
        }

    def is_news(self, at_s: float) -> bool:
        """Whether those outside should hear of it: the first judgement, another set of inputs, or another share, once a minute."""
        newest = self.newest
        if newest is None:
            return False
        if self._told is not None:
            told_s, share, missing = self._told
            moved = share is not None and newest.share_high is not None and abs(newest.share_high - share) > _NEWS_SHARE * share
            if newest.missing == missing and (share is None) == (newest.share_high is None) and not (moved and at_s - told_s >= _NEWS_S):
                return False
        self._told = (at_s, newest.share_high, newest.missing)
        return True

    def view(self) -> Roofline | None:
        if self.newest is None:
            return None
        return replace(self.newest, own_best=tuple(_best(bucket, speeds) for bucket, speeds in sorted(self.buckets.items())))


def _bucket(steady: Steady) -> Bucket:
    each = steady.context_tokens / steady.running if steady.context_tokens is not None else 0.0
    return int(steady.running).bit_length(), int(each).bit_length()


def _best(bucket: Bucket, speeds: deque[float]) -> OwnBest:
    (running_from, running_to), (context_from, context_to) = (_ends(bits) for bits in bucket)
    return OwnBest(
        running_from=running_from, running_to=running_to, context_from=context_from, context_to=context_to,
        tokens_per_s=percentile(list(speeds), 0.90), windows=len(speeds),
    )  # fmt: skip


def _ends(bits: int) -> tuple[int, int]:
    return (1 << bits - 1 if bits else 0), (1 << bits) - 1


def _judged(steady: Steady, found: Ceiling | None, gathered: Gathered) -> Roofline:
    missing = tuple(what for what, _ in gathered.missing)
    inputs, do = tuple(gathered.inputs), tuple(dict.fromkeys(cure for _, cure in gathered.missing))
    base = Roofline(
        at_s=steady.until_s, running=steady.running, tokens_per_s=steady.tokens_per_s, inputs=inputs, missing=missing, do=do,
        assumptions=tuple(gathered.assumptions),
    )  # fmt: skip
    if found is None:
        return base
    share = found.share(steady.tokens_per_s)
    open_above = gathered.is_open_above
    return replace(
        base,
        ceiling_low=found.tokens_per_s.low,
        ceiling_high=None if open_above else found.tokens_per_s.high,
        share_low=None if open_above else share.low,
        share_high=share.high,
        step_bytes_low=None if open_above else found.bytes.low,
        step_bytes_high=found.bytes.high,
        precision=_PRECISION_ASSUMED if any(each.is_assumed for each in inputs) else _PRECISION,
    )


def _text(judged: Roofline) -> str:
    """One sentence with the ceiling, the share and every input."""
    rate = f"{judged.tokens_per_s:,.0f} tokens/s with {judged.running:.0f} running"
    if judged.ceiling_low is None:
        return f"{rate}; the ceiling of the memory is not known, for want of {' and '.join(judged.missing)}"
    inputs = "; ".join(_input(each.name, Span(each.low, each.high), each.unit, each.source, each.is_assumed) for each in judged.inputs)
    if judged.ceiling_high is None or judged.share_low is None or judged.step_bytes_low is None or judged.step_bytes_high is None:
        most = f"at most {judged.share_high:.0%} of the at least {judged.ceiling_low:,.0f} tokens/s that the memory allows"
        return f"{rate} are {most}, were all weights read in each step ({inputs}; not known: {' and '.join(judged.missing)})"
    allowed = _range(judged.ceiling_low, judged.ceiling_high, "{:,.0f}")
    share = _range(100 * judged.share_low, 100 * (judged.share_high or 0.0), "{:.0f}")
    read = _range(judged.step_bytes_low / 1e9, judged.step_bytes_high / 1e9, "{:.1f}")
    return (
        f"{rate} are {share} % of the {allowed} that the memory allows: a step reads {read} GB on each GPU "
        f"(give or take {judged.precision or 0.0:.0%}; {inputs})"
    )


def _input(name: str, span: Span, unit: str, source: str, is_assumed: bool) -> str:
    value = _range(span.low, span.high, "{:,.0f}" if span.high >= 100 or not unit else "{:.4g}")
    return f"{name} {value}{' ' + unit if unit else ''} ({'assumed: ' if is_assumed else ''}{source})"


def _range(low: float, high: float, form: str) -> str:
    first, last = form.format(low), form.format(high)
    return first if first == last else f"{first} to {last}"
