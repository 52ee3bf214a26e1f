# log lines are as long as they are
"""Batch lines in the wordings of all releases."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_watchdog.parse.batch import HEAD, BatchReader, read_batch, read_fields

CAPTURES = Path(__file__).parents[1] / "captures"
CASES = Path(__file__).parents[1] / "cases"

# A slow pattern with one look-ahead for each field, checked against the templates of 36 releases: the reader must agree with it.
ORACLE = re.compile(
    r"(?P<phase>Prefill|Decode) batch(?:\(mixed #running-req: (?P<mixed_running_req>\d+)\))?(?: \[(?P<iter>\d+)\])?(?=[.,])"
    r"(?:(?=.*?#new-seq: (?P<new_sequences>\d+)))?(?:(?=.*?#new-token: (?P<new_tokens>\d+)))?(?:(?=.*?#cached-token: (?P<cached_tokens>\d+)))?"
    r"(?:(?=.*?[.,\]] ?#running-req: (?P<running_requests>\d+)))?(?:(?=.*?#queue-req: (?P<queue_requests>\d+)))?(?:(?=.*?#token: (?P<token>\d+)))?"
    r"(?:(?=.*?[.,\]] token usage: (?P<token_usage>[\d.]+)))?(?:(?=.*?#full token: (?P<full_token>\d+)))?"
    r"(?:(?=.*?full token usage: (?P<full_token_usage>[\d.]+)))?(?:(?=.*?#retracted-req: (?P<retracted_requests>\d+)))?"
    r"(?:(?=.*?[.,\]] accept len: (?P<accept_length>[\d.]+)))?(?:(?=.*?accept rate: (?P<accept_rate>[\d.]+)))?"
    r"(?:(?=.*?(?:cuda|cpu|npu|musa) graph: (?P<graph>True|False)))?(?:(?=.*?gen throughput \(token/s\): (?P<gen>[\d.]+)))?"
    r"(?:(?=.*?input throughput \(token/s\): (?P<input>[\d.]+)))?(?:(?=.*?fwd occupancy: (?P<fwd>[\d.]+)%))?"
)


def by_oracle(message: str) -> dict[str, float]:
    found = ORACLE.search(message)
    assert found is not None
    told = {name: value for name, value in found.groupdict().items() if value is not None}
    expected: dict[str, float] = {}
    for name, value in told.items():
        field = {
            "token": "used_tokens",
            "full_token": "used_tokens",
            "token_usage": "kv_used_ratio",
            "full_token_usage": "kv_used_ratio",
            "gen": "tokens_per_s",
            "input": "tokens_per_s",
        }.get(name, name)
        if name == "graph":
            expected[field] = value == "True"
        elif name == "fwd":
            expected["forward_occupancy"] = float(value) / 100
        elif name not in ("phase", "iter", "mixed_running_req"):
            expected[field] = float(value)
    if "mixed_running_req" in told:
        expected.setdefault("running_requests", float(told["mixed_running_req"]))
    return expected


def test_real_lines_are_read_as_the_oracle_reads_them() -> None:
    lines = [
        line[line.index(word) :]
        for log in [*CAPTURES.glob("*/server.log"), *CASES.glob("*/server.log")]
        for line in log.read_text(errors="replace").split("\n")
        for word in ("Prefill batch", "Decode batch")
        if f"] {word}" in line and "obj=" not in line
    ]

    assert len(lines) > 1000
    for line in lines[:: max(1, len(lines) // 1500)]:
        read = read_batch(line.encode())
        assert read is not None
        assert dict(read.known) == by_oracle(line), line


COUNT = st.integers(0, 10**7).map(str)
REAL = st.floats(0, 1e6).map(lambda value: f"{value:.2f}")
TRUTH = st.sampled_from(["True", "False"])
PERCENT = REAL.map(lambda value: f"{value}%")
DECODE = {
    "#running-req": COUNT,
    "#token": COUNT,
    "token usage": REAL,
    "#swa token": COUNT,
    "swa token usage": REAL,
    "mamba num": COUNT,
    "mamba usage": REAL,
    "gpu token usage": REAL,
    "cpu token usage": REAL,
    "accept len": REAL,
    "accept rate": REAL,
    "cap len": REAL,
    "block accept len": REAL,
    "pre-allocated usage": REAL,
    "#prealloc-req": COUNT,
    "#transfer-req": COUNT,
    "#host-receive-req": COUNT,
    "#retracted-req": COUNT,
    "waiting-image-req": COUNT,
    "cuda graph": TRUTH,
    "gen throughput (token/s)": REAL,
    "#queue-req": COUNT,
    "est. decode TFLOPS/s (per GPU)": REAL,
    "est. read BW (GB/s per GPU)": REAL,
    "fwd occupancy": PERCENT,
    "largest-len": COUNT,
}
PREFILL = {
    "#new-seq": COUNT,
    "#new-token": COUNT,
    "#cached-token": COUNT,
    "cache hit rate": PERCENT,
    "full token usage": REAL,
    "#running-req": COUNT,
    "#queue-req": COUNT,
    "#pending-token": COUNT,
    "#unbootstrapped-req": COUNT,
    "#bootstrap-req": COUNT,
    "#inflight-req": COUNT,
    "#optimistic-req": COUNT,
    "npu graph": TRUTH,
    "input throughput (token/s)": REAL,
    "est. prefill TFLOPS/s (per GPU)": REAL,
    "fwd occupancy": PERCENT,
}


@st.composite
def lines(draw: st.DrawFn) -> str:
    head, fields = draw(st.sampled_from([("Decode", DECODE), ("Prefill", PREFILL)]))
    keys = draw(st.permutations(sorted(fields)))[: draw(st.integers(1, len(fields)))]
    mixed = draw(st.sampled_from(["", "(mixed #running-req: 3)"])) if head == "Prefill" else ""
    iteration = draw(st.sampled_from(["", " [17]"]))
    body = ", ".join(f"{key}: {draw(fields[key])}" for key in keys)
    return f"{head} batch{mixed}{iteration}{draw(st.sampled_from(['.', ',']))} {body}{draw(st.sampled_from(['', ', ']))}"


@settings(max_examples=120, deadline=None)
@given(lines())
def test_fields_are_found_by_key_in_any_order(line: str) -> None:
    read = read_batch(line.encode())

    assert read is not None
    assert dict(read.known) == by_oracle(line)


@settings(max_examples=80, deadline=None)
@given(st.lists(lines(), min_size=1, max_size=6), st.integers(0, 200))
def test_the_fast_reader_gives_the_same(some: list[str], cut: int) -> None:
    """It makes a regex of each order of fields it meets; a line that was cut must not be taken for another order."""
    reader = BatchReader()
    for line in [*some, *some, *(line[:cut] for line in some)]:
        head = HEAD.match(line.encode())
        if head is None:
            continue
        body = line.encode()[head.end() :]
        expected = read_fields(head[1] == b"Decode", body)
        assert reader.read(head[1] == b"Decode", body) == (expected.known, expected.extra)


def test_hybrid_models_print_full_token_usage_instead() -> None:
    read = read_batch(
        b"Decode batch, #running-req: 4, #full token: 2580416, full token usage: 1.00, #swa token: 15104, swa token usage: 0.05, #queue-req: 3"
    )

    assert read is not None
    assert read.known["used_tokens"] == 2580416
    assert read.known["kv_used_ratio"] == 1.0
    assert read.extra == {"swa_token": 15104.0, "swa_token_usage": 0.05}


def test_percentages_become_ratios() -> None:
    read = read_batch(b"Prefill batch. #new-seq: 1, cache hit rate: 12.50%, fwd occupancy: 85.30%")

    assert read is not None
    assert read.extra == {"cache_hit_rate": 0.125}
    assert read.known["forward_occupancy"] == pytest.approx(0.853)


def test_a_number_that_is_none_is_left_out() -> None:
    read = read_batch(b"Decode batch, #running-req: many, gen throughput (token/s): nan, #token: 12x, #queue-req: 1")

    assert read is not None
    assert dict(read.known) == {"used_tokens": 12, "queue_requests": 1}


def test_other_messages_are_no_batch_line() -> None:
    assert read_batch(b"Prefill batch size is 3") is None
    assert read_batch(b"x Decode batch, #running-req: 1") is None
