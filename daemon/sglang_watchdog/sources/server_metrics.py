"""Asks a running server for its own metrics: GET /metrics on loopback, every 15 s, bounded in time and size.

They say beside the log what is running, whether graphs are replayed, how long requests wait for their first token and how many
end in server errors. Silence under load is a sign too: the endpoint is served by the process that also takes requests.
Names by the sources of 0.3.6 to 0.5.23 (srt/metrics/collector.py, srt/observability/metrics_collector.py, http_request_metrics.py);
vLLM-style exporters write `sglang_` where SGLang writes `sglang:`.
"""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from prometheus_client.parser import text_string_to_metric_families

from ..model.observation import Json, Probe, Watermark
from .loopback_http import NoAnswer, check_loopback, get

ORIGIN: Final = "/metrics"
_MOST_BYTES: Final = 4 * 1024 * 1024  # eight ranks with all histograms write about 300 KB
_MOST_LINES: Final = 20_000  # of the names below
_EVERY_S: Final = 15.0
_ABSENT_EVERY_S: Final = 600.0  # a server without --enable-metrics answers 404 for its whole life
_WITHIN_S: Final = 5.0
_PREFIXES: Final = (b"sglang:", b"sglang_")
_NAMES: Final = (
    "num_running_reqs", "num_queue_reqs", "gen_throughput", "fwd_occupancy", "cuda_graph_passes_total", "http_responses_total",
    "time_to_first_token_seconds_bucket",
)  # fmt: skip
_WANTED: Final = tuple(name.encode() for name in _NAMES)

Address: TypeAlias = tuple[str, int]
Labels: TypeAlias = Mapping[str, str]
MetricsEvent: TypeAlias = Probe | Watermark


@dataclass(frozen=True, slots=True)
class Exposition:
    """The samples of one answer that matter here, by plain name: labels and value, NaN left out."""

    samples: Mapping[str, list[tuple[Labels, float]]]

    def of(self, name: str) -> list[tuple[Labels, float]]:
        return self.samples.get(name, [])


def read_exposition(body: bytes) -> Exposition:
    """The wanted samples of a text in the exposition format 0.0.4.

    Raises:
        NoAnswer: it is no such text, or has more of the wanted lines than any server writes.
    """
    kept = [line for line in body.split(b"\n") if line.startswith(_PREFIXES) and line[7:].startswith(_WANTED)]
    if len(kept) > _MOST_LINES:
        raise NoAnswer(f"more than {_MOST_LINES} series")
    found: dict[str, list[tuple[Labels, float]]] = {}
    try:
        for family in text_string_to_metric_families(b"\n".join(kept).decode("utf-8", "replace") + "\n"):
            for sample in family.samples:
                name = sample.name[7:]
                if name in _NAMES and not math.isnan(sample.value):
                    found.setdefault(name, []).append((sample.labels, float(sample.value)))
    except (ValueError, IndexError, KeyError) as error:
        raise NoAnswer(f"the answer is no exposition text: {error}") from error
    if not found and not any(line.startswith(_PREFIXES) for line in body.split(b"\n")):
        raise NoAnswer("the answer holds no metric of SGLang")
    return Exposition(found)


@dataclass(slots=True)
class Readings:
    """Turns one answer after the other into readings; counters and histograms are differences to the answer before."""

    before: dict[str, float] = field(default_factory=dict)
    buckets: dict[float, float] = field(default_factory=dict)

    def take(self, answer: Exposition) -> dict[str, Json]:
        """Readings by the name of their series; what the answer does not tell is left out."""
        told = {
            "metrics_running_requests": _by_replica(answer.of("num_running_reqs")),
            "metrics_queue_requests": _by_replica(answer.of("num_queue_reqs")),
            "metrics_tokens_per_s": _by_replica(answer.of("gen_throughput")),
            "metrics_forward_occupancy": _least(answer.of("fwd_occupancy")),
            "metrics_decode_graph": self._graph_share(answer.of("cuda_graph_passes_total")),
            "metrics_http_5xx": self._errors(answer.of("http_responses_total")),
            **self._first_token(answer.of("time_to_first_token_seconds_bucket")),
        }
        return {name: value for name, value in told.items() if value is not None}

    def _grown(self, name: str, now: float) -> float | None:
        """What a counter grew since the last answer; one that fell began anew. None at the first answer."""
        before = self.before.get(name)
        self.before[name] = now
        return None if before is None else now - before if now >= before else now

    def _graph_share(self, passes: Iterable[tuple[Labels, float]]) -> float | None:
        """0 to 1: decode passes that replayed a graph."""
        by_mode: dict[str, float] = {}
        for labels, value in passes:
            mode = labels.get("mode", "")
            by_mode[mode] = by_mode.get(mode, 0.0) + value
        grown = {mode: self._grown(f"mode {mode}", by_mode.get(mode, 0.0)) or 0.0 for mode in ("decode_cuda_graph", "decode_none")}
        every = sum(grown.values())
        return grown["decode_cuda_graph"] / every if every > 0 else None

    def _errors(self, responses: list[tuple[Labels, float]]) -> float | None:
        if not responses:
            return None
        return self._grown("5xx", sum(value for labels, value in responses if labels.get("status_code", "").startswith("5")))

    def _first_token(self, buckets: Iterable[tuple[Labels, float]]) -> dict[str, float | None]:
        """Seconds to the first token of the requests since the last answer: the bounds of the buckets that hold the half and nine tenths."""
        now: dict[float, float] = {}
        for labels, value in buckets:
            try:
                bound = float(labels.get("le", "nan").replace("Inf", "inf"))
            except ValueError:
                continue
            if not math.isnan(bound):
                now[bound] = now.get(bound, 0.0) + value
        grown = {bound: max(0.0, count - self.buckets.get(bound, 0.0)) for bound, count in sorted(now.items())}
        is_first, self.buckets = not self.buckets, now
        every = max(grown.values(), default=0.0)
        if is_first or every <= 0:
            return {}
        return {"metrics_ttft_p50_s": _quantile(grown, every, 0.5), "metrics_ttft_p90_s": _quantile(grown, every, 0.9)}


def _quantile(grown: Mapping[float, float], every: float, share: float) -> float | None:
    bound = next((bound for bound, count in grown.items() if count >= share * every), math.inf)
    finite = [each for each in grown if math.isfinite(each)]
    return bound if math.isfinite(bound) else max(finite, default=None)


def _by_replica(samples: Iterable[tuple[Labels, float]]) -> float | None:
    """Ranks of one replica say the same, replicas add up."""
    most: dict[str, float] = {}
    for labels, value in samples:
        replica = labels.get("dp_rank", "")
        most[replica] = max(most.get(replica, value), value)
    return sum(most.values()) if most else None


def _least(samples: Iterable[tuple[Labels, float]]) -> float | None:
    values = [value / 100.0 for _, value in samples]  # SGLang writes percent
    return min(values, default=None)


class ServerMetrics:
    """The metrics of one server as observations. `address` is where it listens now, None while that is not known."""

    def __init__(
        self,
        name: str,
        address: Callable[[], Address | None],
        *,
        every_s: float = _EVERY_S,
        absent_every_s: float = _ABSENT_EVERY_S,
        within_s: float = _WITHIN_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self._address = address
        self._every_s, self._absent_every_s, self._within_s = every_s, absent_every_s, within_s
        self._clock = clock
        self._readings = Readings()
        self._asked: Address | None = None

    async def events(self) -> AsyncGenerator[Probe, None]:
        """Yield one probe for each question, answered or not."""
        while True:
            address = self._address()
            wait_s = self._every_s
            if address is not None:
                probe, is_absent = await self.ask(*address)
                yield probe
                wait_s = self._absent_every_s if is_absent else self._every_s
            await asyncio.sleep(wait_s)

    async def ask(self, host: str, port: int) -> tuple[Probe, bool]:
        """One answer as readings, and whether the server has no such endpoint. `host` must be a loopback address."""
        check_loopback(host)
        if self._asked != (host, port):
            self._asked, self._readings = (host, port), Readings()
        try:
            async with asyncio.timeout(self._within_s):
                status, body = await get(host, port, "/metrics", accept="text/plain; version=0.0.4", most_bytes=_MOST_BYTES)
                if status == 200:
                    answer = await asyncio.to_thread(read_exposition, body)
                    return self._probe({"load.metrics_answered": 1.0, **_loads(self._readings.take(answer))}), False
        except TimeoutError:
            return self._probe({"load.metrics_answered": 0.0}, f"no answer within {self._within_s:g} s"), False
        except (OSError, NoAnswer) as failure:
            return self._probe({}, str(failure)), False
        why = "the server was started without --enable-metrics" if status == 404 else f"HTTP status {status}"
        return self._probe({}, why), status == 404

    def _probe(self, facts: dict[str, Json], error: str | None = None) -> Probe:
        return Probe(at_s=self._clock(), source=self.name, origin=ORIGIN, facts=facts, error=error)


def _loads(readings: Mapping[str, Json]) -> dict[str, Json]:
    return {f"load.{name}": value for name, value in readings.items()}
