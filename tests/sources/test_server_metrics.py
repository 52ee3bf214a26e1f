"""The server's own metrics, asked over a real socket: real answers, none, garbage, far too much."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from sglang_watchdog.model.observation import Probe
from sglang_watchdog.sources.server_metrics import Readings, ServerMetrics, read_exposition

CAPTURE = Path(__file__).resolve().parents[1] / "captures/21-dense-logreq-apikey-metrics"
REAL = (CAPTURE / "metrics-loaded.txt").read_bytes()
HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n"


@asynccontextmanager
async def server(*answers: bytes, waits_s: float = 0.0) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that gives one answer after the other, the last one for ever; with what it was asked."""
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        try:
            await asyncio.sleep(waits_s)
            writer.write(answers[min(len(asked), len(answers)) - 1])
            await writer.drain()
        except ConnectionError:
            pass  # the asker had enough
        finally:
            writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1], asked


def metrics(port: int, *, within_s: float = 5.0) -> ServerMetrics:
    return ServerMetrics("chat/metrics", lambda: ("127.0.0.1", port), every_s=0.01, absent_every_s=0.01, within_s=within_s, clock=lambda: 1.0)


async def ask(port: int, times: int = 1, *, within_s: float = 5.0) -> Probe:
    """The last of so many answers."""
    async with aclosing(metrics(port, within_s=within_s).events()) as events:
        for _ in range(times - 1):
            await anext(events)
        return await anext(events)


async def test_a_real_answer_tells_the_load():
    async with server(HEAD + REAL) as (port, asked):
        probe = await ask(port)

    assert probe.error is None
    assert probe.facts["load.metrics_answered"] == 1.0
    assert probe.facts["load.metrics_running_requests"] == 32.0
    assert probe.facts["load.metrics_queue_requests"] == 0.0
    assert probe.facts["load.metrics_tokens_per_s"] == pytest.approx(12_603.02, abs=0.01)
    assert asked[0].startswith(b"GET /metrics ")


async def test_counters_and_histograms_tell_what_happened_in_between():
    """Both prefixes; 90 of 100 decode passes replay a graph, 3 answers are server errors, 8 of 10 first tokens come within 0.1 s."""

    def text(prefix: str, graph: int, eager: int, errors: int, within: int, every: int) -> bytes:
        return HEAD + "\n".join(
            [
                f'{prefix}cuda_graph_passes_total{{mode="decode_cuda_graph",tp_rank="0"}} {graph}',
                f'{prefix}cuda_graph_passes_total{{mode="decode_none",tp_rank="0"}} {eager}',
                f'{prefix}cuda_graph_passes_total{{mode="prefill_none",tp_rank="0"}} 77',
                f'{prefix}http_responses_total{{endpoint="/generate",status_code="503"}} {errors}',
                f'{prefix}http_responses_total{{endpoint="/generate",status_code="200"}} 1000',
                f'{prefix}time_to_first_token_seconds_bucket{{le="0.1"}} {within}',
                f'{prefix}time_to_first_token_seconds_bucket{{le="2.5"}} {every}',
                f'{prefix}time_to_first_token_seconds_bucket{{le="+Inf"}} {every}',
                f'{prefix}fwd_occupancy{{tp_rank="0"}} 81.5',
                f'{prefix}fwd_occupancy{{tp_rank="1"}} nan',
            ]
        ).encode() + b"\n"

    for prefix in ("sglang:", "sglang_"):
        async with server(text(prefix, 1000, 50, 4, 100, 120), text(prefix, 1090, 60, 7, 108, 130)) as (port, _):
            probe = await ask(port, 2)

        assert probe.facts == {
            "load.metrics_answered": 1.0, "load.metrics_decode_graph": 0.9, "load.metrics_http_5xx": 3.0, "load.metrics_ttft_p50_s": 0.1,
            "load.metrics_ttft_p90_s": 2.5, "load.metrics_forward_occupancy": 0.815,
        }, prefix  # fmt: skip


def test_ranks_of_a_replica_say_the_same_and_replicas_add_up():
    text = b"".join(b'sglang:num_running_reqs{dp_rank="%d",tp_rank="%d"} %d\n' % (dp, tp, 10 + dp) for dp in (0, 1) for tp in (0, 1))

    assert Readings().take(read_exposition(text))["metrics_running_requests"] == 21.0


def test_a_server_that_began_anew_is_no_fall_of_its_counters():
    readings = Readings()
    for errors in (100, 2):
        told = readings.take(read_exposition(b'sglang:http_responses_total{status_code="500"} %d\n' % errors))

    assert told["metrics_http_5xx"] == 2.0


async def test_a_server_that_does_not_answer_in_time_is_a_reading():
    async with server(HEAD + REAL, waits_s=30.0) as (port, _):
        probe = await ask(port, within_s=0.1)

    assert probe.facts == {"load.metrics_answered": 0.0}
    assert "no answer within 0.1 s" in (probe.error or "")


async def test_a_refused_connection_is_no_such_reading():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        probe = await ask(taken.getsockname()[1])

    assert probe.facts == {}
    assert probe.error


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"HTTP/1.0 404 Not Found\r\n\r\n{}", "--enable-metrics"),
        (b"HTTP/1.0 401 Unauthorized\r\n\r\n", "HTTP status 401"),
        (b"220 mail.example ESMTP\r\n", "does not speak HTTP"),
        (HEAD + b"<html>hello</html>", "no metric of SGLang"),
        (HEAD + b"sglang:num_running_reqs{tp_rank=\x00\xff 32\n", "no exposition text"),
        (HEAD + b"sglang:num_running_reqs{tp_rank=\"0\"} many\n", "no exposition text"),
        (HEAD + gzip.compress(REAL), "no metric of SGLang"),
        (HEAD + b"x" * (5 * 1024 * 1024), "longer than"),
        (HEAD + b'sglang:num_running_reqs{a="b"} 1\n' * 30_000, "more than"),
    ],
    ids=["no metrics", "key", "another protocol", "a page", "garbage", "no number", "compressed", "huge", "too many"],
)
async def test_what_is_no_answer_is_said_and_read_as_nothing(answer: bytes, says: str):
    async with server(answer) as (port, _):
        probe = await ask(port)

    assert probe.facts == {}
    assert says in (probe.error or "")


async def test_only_this_machine_is_asked():
    with pytest.raises(ValueError, match="not a loopback address"):
        await ServerMetrics("chat/metrics", lambda: None).ask("10.0.0.1", 30_000)


async def test_nothing_is_asked_while_the_address_is_not_known():
    addresses: list[tuple[str, int] | None] = []
    async with server(HEAD + REAL) as (port, asked):
        source = ServerMetrics("chat/metrics", lambda: addresses.pop(0) if addresses else ("127.0.0.1", port), every_s=0.01)
        addresses += [None, None]
        async with aclosing(source.events()) as events:
            await anext(events)

    assert len(asked) == 1
    assert not addresses
