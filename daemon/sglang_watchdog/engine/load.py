"""The load that the log itself reports: what runs, how fast, whether it is ready and steady, and who still waits.

READY and STEADY are the contract's. The last batch line before a server falls idle always shows running requests, so
"requests were running, then silence" proves nothing; requests admitted and not answered do.
"""

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

from ..model.observation import Access, Batch, Json, Position
from .series import Series, median

_PAUSE_S = 2.0  # two stamps of whole seconds: at least one second without a line
_BATCH_KEEP_S = 900.0
_SPEEDS_KEPT = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """Thresholds of the load gates; seconds and shares. Defaults are the contract's."""

    ready_quiet_s: float = 10.0  # no load, capture or JIT line for this long
    window_s: float = 15.0
    window_max_s: float = 60.0
    decode_lines: int = 3
    tolerance: float = 0.30  # running requests around their median
    share: float = 0.90  # of the seconds within it
    max_silence_s: float = 5.0  # between batch lines, or twice the median interval of Decode lines


@dataclass(slots=True)
class _RankLoad:
    running: int = 0
    queue: int = 0
    tokens_per_s: float = 0.0
    kv_used: float | None = None
    used_tokens: int | None = None
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Steady:
    """The STEADY window that ends at `until_s`, with the medians over its seconds."""

    from_s: float
    until_s: float
    running: float
    tokens_per_s: float
    context_tokens: float | None = None  # KV slots in use, all requests together


@dataclass(slots=True)
class Load:
    """Batch and access lines of one run, in time order."""

    settings: LoadSettings = field(default_factory=LoadSettings)
    series: dict[str, Series] = field(default_factory=dict)
    ready_s: float | None = None
    last_busy_line_s: float | None = None  # load, capture, JIT
    last_batch: Batch | None = None
    last_decode: Batch | None = None
    first_batch_s: float | None = None
    admitted: int = 0
    answered: int = 0
    answered_ever: int = 0
    health_failures: int = 0
    max_running: int = 0
    decode_tokens: float = 0.0
    position_of_last_batch: Position | None = None
    chunk_size: int | None = None
    _ranks: dict[str, _RankLoad] = field(default_factory=dict)
    _chunk_open: dict[str, bool] = field(default_factory=dict)
    recent_batches: deque[Batch] = field(default_factory=lambda: deque(maxlen=12))
    pauses: deque[tuple[Batch, Batch]] = field(default_factory=lambda: deque(maxlen=16))  # the lines around silences of 2 s and more
    speeds: dict[int, deque[float]] = field(default_factory=dict)  # by bucket of running requests: 1, 2-3, 4-7, 8-15 …

    def add(self, name: str, at_s: float, value: float | None) -> None:
        if value is None:
            return
        series = self.series.get(name)
        if series is None:
            series = self.series[name] = Series(_BATCH_KEEP_S)
        series.add(at_s, float(value))

    def count(self, name: str, at_s: float, value: float) -> None:
        series = self.series.get(name)
        if series is None:
            series = self.series[name] = Series(_BATCH_KEEP_S)
        series.add_to_second(at_s, value)

    def on_batch(self, batch: Batch, at_s: float) -> None:
        before = self.last_batch
        if before is not None and before.at_s is not None and batch.at_s is not None and batch.at_s - before.at_s >= _PAUSE_S:
            self.pauses.append((before, batch))
        self.last_batch = batch
        self.recent_batches.append(batch)
        if self.first_batch_s is None:
            self.first_batch_s = at_s
        rank = self._ranks.get(batch.rank)
        if rank is None:
            rank = self._ranks[batch.rank] = _RankLoad()
        rank.at_s = at_s
        if batch.queue_requests is not None:
            rank.queue = batch.queue_requests
        if batch.kv_used_ratio is not None:
            rank.kv_used = batch.kv_used_ratio
        self.count("batch_lines", at_s, 1.0)
        alive = self._alive(at_s)
        if batch.is_decode:
            self._on_decode(batch, at_s, rank, alive)
        else:
            self._on_prefill(batch, at_s)
        self.add("queue_requests", at_s, sum([r.queue for r in alive]))
        used = [r.kv_used for r in alive if r.kv_used is not None]
        if used:
            self.add("kv_used_ratio", at_s, max(used))
        if self.answered_ever:
            self.add("unanswered_requests", at_s, self.unanswered())

    def _on_decode(self, batch: Batch, at_s: float, rank: _RankLoad, alive: list[_RankLoad]) -> None:
        self.last_decode = batch
        if batch.running_requests is not None:
            rank.running = batch.running_requests
        rank.tokens_per_s = batch.tokens_per_s if batch.tokens_per_s is not None else 0.0
        each = [r.running for r in alive]
        running, speed = sum(each), sum([r.tokens_per_s for r in alive])
        self.max_running = max(self.max_running, running)
        self.count("decode_lines", at_s, 1.0)
        self.add("running_requests", at_s, running)
        if len(each) > 1:
            self.add("running_requests_most", at_s, max(each))
            self.add("running_requests_least", at_s, min(each))
        self.add("decode_tokens_per_s", at_s, speed)
        if running > 0:
            bucket = running.bit_length()
            if bucket not in self.speeds:
                self.speeds[bucket] = deque(maxlen=_SPEEDS_KEPT)
            self.speeds[bucket].append(speed)
        rank.used_tokens = batch.used_tokens
        held = [r.used_tokens for r in alive if r.used_tokens is not None]
        if len(held) == len(alive):
            self.add("used_tokens", at_s, sum(held))
        self.add("decode_graph", at_s, batch.graph)
        self.add("accept_length", at_s, batch.accept_length)
        self.add("accept_rate", at_s, batch.accept_rate)
        self.add("forward_occupancy", at_s, batch.forward_occupancy)
        self.add("retracted_requests", at_s, batch.retracted_requests)

    def _on_prefill(self, batch: Batch, at_s: float) -> None:
        new = batch.new_sequences or 0
        if batch.running_requests == 0 and not self._chunk_open.get(batch.rank):
            # Nothing was running when this batch was formed: all that was admitted before has left.
            self.admitted = self.answered
        if self._chunk_open.get(batch.rank) and new:
            new -= 1  # the first sequence continues a prompt that was counted with its first chunk
        self._chunk_open[batch.rank] = bool(self.chunk_size and batch.new_tokens is not None and batch.new_tokens >= self.chunk_size)
        self.admitted += new
        self.count("prefill_lines", at_s, 1.0)
        self.add("new_tokens", at_s, batch.new_tokens)
        self.add("cached_tokens", at_s, batch.cached_tokens)
        self.add("prefill_tokens_per_s", at_s, batch.tokens_per_s)
        self.add("prefill_graph", at_s, batch.graph)

    def on_retracted(self, requests: int, rank: str) -> None:
        """Requests thrown back will be admitted a second time. Every rank says so, the one that prints batch lines counts."""
        if rank and self._ranks and rank not in self._ranks:
            return
        self.admitted = max(self.answered, self.admitted - requests)

    def on_access(self, access: Access, at_s: float) -> None:
        klass = access.status // 100
        if klass in (2, 4, 5):
            self.count(f"http_{klass}xx", at_s, access.count)
        if access.status == 503:
            self.count("http_503", at_s, access.count)
        if access.kind == "generate":
            self.answered_ever += access.count
            self.answered = min(self.admitted, self.answered + access.count)
            self.add("unanswered_requests", at_s, self.unanswered())
            if klass == 2:
                self.count("http_generate_ok", at_s, access.count)
        elif access.kind == "health" and klass != 2:
            self.health_failures += access.count
            self.count("http_health_failed", at_s, access.count)

    def full_speed(self) -> float | None:
        """Median tokens/s over the Decode lines of the fullest bucket of running requests that has at least three."""
        told = [bucket for bucket, speeds in self.speeds.items() if len(speeds) >= 3]
        return median(self.speeds[max(told)]) if told else None

    def by_rank(self) -> dict[str, dict[str, float | None]]:
        """The newest numbers of each rank that speaks, by rank as the log prints it."""
        return {
            name: {
                "running_requests": float(rank.running), "queue_requests": float(rank.queue),
                "decode_tokens_per_s": rank.tokens_per_s, "kv_used_ratio": rank.kv_used,
            }
            for name, rank in self._ranks.items()
        }  # fmt: skip

    def _alive(self, at_s: float) -> list[_RankLoad]:
        """Ranks whose last line is not much older than the newest: one that fell silent no longer counts."""
        return [rank for rank in self._ranks.values() if at_s - rank.at_s <= 60.0]

    # --- gates ---------------------------------------------------------------------------------------------------

    def is_ready(self, at_s: float) -> bool:
        quiet = self.settings.ready_quiet_s
        if self.last_busy_line_s is not None and at_s - self.last_busy_line_s < quiet:
            return False
        if self.ready_s is not None:
            return at_s >= self.ready_s
        return self.first_batch_s is not None and at_s - self.first_batch_s >= quiet

    def batch_interval_s(self, at_s: float) -> float | None:
        """Median time between Decode lines over the last two minutes; lines of one second count as one."""
        series = self.series.get("decode_lines")
        if series is None:
            return None
        times = sorted({at for at, _ in series.points(at_s - 120.0, at_s)})
        gaps = [after - before for before, after in pairwise(times)]
        return median(gaps) if gaps else None

    def steady(self, at_s: float) -> Steady | None:
        """The contract's STEADY at `at_s`, or None."""
        s = self.settings
        decodes, lines = self.series.get("decode_lines"), self.series.get("batch_lines")
        running = self.series.get("running_requests")
        if decodes is None or lines is None or running is None:
            return None
        oldest_s = self._since_lines(decodes, s.decode_lines, at_s)
        if oldest_s is None:
            return None
        length = max(s.window_s, at_s - oldest_s + 1e-6)
        from_s = at_s - length
        if self._longest_silence(from_s, at_s, lines) > max(s.max_silence_s, 2.0 * (self.batch_interval_s(at_s) or 0.0)):
            return None
        values = self._by_second(running, from_s, at_s)
        if len(values) < length * s.share:
            return None
        middle = median(values)
        near = sum(abs(value - middle) <= s.tolerance * middle for value in values)
        if middle <= 0 or near < s.share * len(values):
            return None
        speeds = self.series["decode_tokens_per_s"].window(from_s, at_s)
        held = self.series["used_tokens"].window(from_s, at_s) if "used_tokens" in self.series else []
        return Steady(from_s, at_s, middle, median(speeds) if speeds else 0.0, median(held) if held else None)

    def _since_lines(self, lines: Series, wanted: int, at_s: float) -> float | None:
        """When the last `wanted` lines began, or None if the longest window does not hold so many."""
        held = 0.0
        for second, count in reversed(lines.points(at_s - self.settings.window_max_s, at_s)):
            held += count
            if held >= wanted:
                return second
        return None

    @staticmethod
    def _longest_silence(from_s: float, to_s: float, lines: Series) -> float:
        before = lines.last_at(from_s)
        times = [before[0] if before else from_s, *(at for at, _ in lines.points(from_s, to_s)), to_s]
        times = [max(at, from_s) for at in times]
        return max(after - earlier for earlier, after in pairwise(times))

    @staticmethod
    def _by_second(series: Series, from_s: float, to_s: float) -> list[float]:
        """The value in force in each second of the window, carried forward from the line before."""
        values: list[float] = []
        second = from_s + 1.0
        while second <= to_s + 1e-9:
            newest = series.last_at(second)
            if newest is not None and newest[0] > from_s - 60.0:
                values.append(newest[1])
            second += 1.0
        return values

    def stalls(self, from_s: float, to_s: float) -> tuple[list[tuple[float, float]], float]:
        """Pauses between batch lines (since when, for how many seconds at least) of a server that else prints several a second, and
        the most lines of one second. Stamps are whole seconds, so that a pause shorter than one does not show."""
        lines = self.series.get("batch_lines")
        points = lines.points(from_s, to_s) if lines is not None else []
        if not points or median([count for _, count in points]) < 2.0:
            return [], 0.0
        pauses = [(earlier, after - earlier - 1.0) for (earlier, _), (after, _) in pairwise(points)]
        return [(at_s, length) for at_s, length in pauses if length >= 1.0], max(count for _, count in points)

    def unanswered(self) -> int | None:
        """Requests admitted and not answered; None where the access log is off, so that nothing can be told."""
        return max(0, self.admitted - self.answered) if self.answered_ever else None

    def root(self, at_s: float) -> dict[str, Json]:
        """The `load` root of conditions: floats and truth values; what is not known is left out."""
        steady = self.steady(at_s)
        out: dict[str, Json] = {"ready": self.is_ready(at_s), "steady": steady is not None}
        running, speed = self.series.get("running_requests"), self.series.get("decode_tokens_per_s")
        if steady is not None:
            out |= {"running": steady.running, "tokens_per_s": steady.tokens_per_s, "seconds": steady.until_s - steady.from_s}
            stalls, most = self.stalls(steady.from_s, at_s)
            out |= {"stalls": float(len(stalls)), "stalls_text": _stalls_text(stalls, most)}
        elif running is not None and speed is not None:
            out |= {
                "running": running.newest[1] if running.newest else None,
                "tokens_per_s": speed.newest[1] if speed.newest else None,
                "seconds": 0.0,
            }
        lines = self.series.get("batch_lines")
        newest = lines.last_at(at_s) if lines is not None else None
        if newest is not None and self.last_batch is not None:
            out["last_batch_age_s"] = float(at_s - newest[0])
            out["last_batch_was_prefill"] = not self.last_batch.is_decode
            out["queue"] = float(sum(rank.queue for rank in self._ranks.values()))
        interval = self.batch_interval_s(at_s if newest is None else newest[0])
        if interval is not None:
            out["batch_interval_s"] = float(interval)
        unanswered = self.unanswered()
        if unanswered is not None:
            out["unanswered"] = float(unanswered)
        out["health_failures"] = float(self.health_failures)
        out["max_running"] = float(self.max_running)
        window = steady.until_s - steady.from_s if steady is not None else 60.0
        new, decoded = self.series.get("new_tokens"), self.series.get("decode_tokens_per_s")
        if new is not None and decoded is not None:
            prefilled = sum(new.window(at_s - window, at_s))
            generated = (median(values) if (values := decoded.window(at_s - window, at_s)) else 0.0) * window
            if prefilled + generated > 0:
                out["prefill_share"] = prefilled / (prefilled + generated)
        return out


def _stalls_text(stalls: list[tuple[float, float]], most: float) -> str:
    if not stalls:
        return "no pause of a second shows between the batch lines"
    lengths = [length for _, length in stalls]
    length = f"{min(lengths):.0f}" if min(lengths) == max(lengths) else f"{min(lengths):.0f} to {max(lengths):.0f}"
    moments = ", ".join(_clock(at_s) for at_s, _ in stalls[:6]) + (" …" if len(stalls) > 6 else "")
    many = "a stall" if len(stalls) == 1 else f"{len(stalls)} stalls"
    return f"{many} of {length} s or more without a batch line, after {moments} UTC, where other seconds hold up to {most:.0f} lines"


def _clock(at_s: float) -> str:
    second = int(at_s) % 86_400
    return f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
