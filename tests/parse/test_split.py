"""Splitting a line: SGLang's prefix in every release's form, the other writers of the stream, request logs."""

import pytest

from sglang_watchdog.parse.record import Form, is_request_log, split_odd, split_record, without_noise


@pytest.mark.parametrize(
    ("line", "stamp", "rank", "message"),
    [
        ("[2026-01-02 03:04:05] server_args=x", "2026-01-02 03:04:05", "", "server_args=x"),
        ("[2026-01-02 03:04:05 TP0] Load", "2026-01-02 03:04:05", "TP0", "Load"),
        ("[2026-01-02 03:04:05 DP1 TP3] Load", "2026-01-02 03:04:05", "DP1 TP3", "Load"),
        ("[2026-01-02 03:04:05 DP0 TP1 EP1 PP2] Load", "2026-01-02 03:04:05", "DP0 TP1 EP1 PP2", "Load"),
        ("[2026-01-02 03:04:05.678 DP1 PP0 TP3 EP3] Load", "2026-01-02 03:04:05.678", "DP1 PP0 TP3 EP3", "Load"),
        (
            "[2026-01-02 03:04:05 DP0 PP0 ATTN_CP1 MOE_DP2 TP3 EP4] Load",
            "2026-01-02 03:04:05",
            "DP0 PP0 ATTN_CP1 MOE_DP2 TP3 EP4",
            "Load",
        ),
        ("[03:04:05 TP0] Load", "03:04:05", "TP0", "Load"),
        ("[2026-01-02 03:04:05 encode_server] Load", "2026-01-02 03:04:05", "encode_server", "Load"),
        ("[2026-01-02 03:04:05 TP0 encode_dp_worker[3]] Load", "2026-01-02 03:04:05", "TP0 encode_dp_worker[3]", "Load"),
        ("[2026-01-02 03:04:05 TP0]", "2026-01-02 03:04:05", "TP0", ""),
        ("[2026-01-02 03:04:05 TP0] Load\r\n", "2026-01-02 03:04:05", "TP0", "Load"),
        ("a bar\rmore\r[2026-01-02 03:04:05 TP0] Load", "2026-01-02 03:04:05", "TP0", "Load"),
        ("  0%| | 0/36 [00:00<?, ?it/s][2026-01-02 03:04:05 TP0] Load", "2026-01-02 03:04:05", "TP0", "Load"),
        ("x:  5%|#| 3/36 [00:00<?, 2.5s/it] [2026-01-02 03:04:05] Load", "2026-01-02 03:04:05", "", "Load"),
        ("Mar 11 22:14:14 host python[7]: [2026-01-02 03:04:05 TP0] Load", "2026-01-02 03:04:05", "TP0", "Load"),
    ],
)
def test_the_prefix_is_read_in_every_form(line: str, stamp: str, rank: str, message: str) -> None:
    record = split_record(line.encode())

    assert (record.form, record.stamp, record.rank, record.message) == (Form.SGLANG, stamp.encode(), rank, message.encode())
    assert record.text.endswith(message.encode())
    assert record.text.startswith(b"[")


@pytest.mark.parametrize(
    ("line", "stamp", "inner"),
    [
        ("2026-01-02 03:04:05,678 - INFO - core.py:12 - flashinfer.jit: Loading", "2026-01-02 03:04:05,678", "Loading"),
        ("W0204 12:00:02.337000 2211 torch/a.py:2425] TORCH", "0204 12:00:02.337000", "TORCH"),
        ("[rank4]:[E210 02:06:33.643248754 P.cpp:616] [Rank 4] Watchdog", "210 02:06:33.643248754", "[Rank 4] Watchdog"),
        ("E0917 16:23:04.601934 20417 worker_pool.cpp:281] Worker", "0917 16:23:04.601934", "Worker"),
        ("Mar  1 22:14:14 node-a kernel: NVRM: Xid", "Mar  1 22:14:14", "NVRM: Xid"),
        ("node-a:123:456 [0] NCCL WARN x", "", "NCCL WARN x"),
        ("[12345.678901] NVRM: Xid", "", "NVRM: Xid"),
    ],
)
def test_other_writers_keep_their_stamps(line: str, stamp: str, inner: str) -> None:
    record = split_record(line.encode())

    assert (record.form, record.stamp, record.inner, record.message) == (
        Form.FOREIGN,
        stamp.encode(),
        inner.encode(),
        line.encode(),
    )


@pytest.mark.parametrize(
    "line", ['  File "a"', "", "Loading safetensors", "[not a stamp] x", "[2026-01-02] x", "x [2026-01-02 03:04:05 TP0] Load"]
)
def test_what_has_no_head_is_bare(line: str) -> None:
    assert split_record(line.encode()).form is Form.BARE


@pytest.mark.parametrize(
    "message",
    [
        "Receive: obj=GenerateReqInput(text='a')",
        "Finish: obj=GenerateReqInput(text='a'), out={}",
        "Receive OpenAI: obj={'a': 1}",
        "in=GenerateReqInput(text='a'), out={'text': 'b'}",
        '{"timestamp": "t", "event": "request.received", "rid": "1", "obj": {}}',
        '{"timestamp":"t","event":"request.finished.openai"}',
    ],
)
def test_request_logs_are_the_text_of_users_with_and_without_a_prefix(message: str) -> None:
    assert is_request_log(message.encode())
    assert split_record(message.encode()).form is Form.REQUEST_LOG
    assert split_record(f"[2026-01-02 03:04:05] {message}".encode()).form is Form.REQUEST_LOG
    assert split_odd(f"2026-01-02 03:04:05 INFO [a.py:1] {message}".encode()) is None


def test_a_carriage_return_in_a_request_log_opens_no_new_record() -> None:
    assert split_record(b"Receive: obj=GenerateReqInput(text='a\r[2026-01-02 03:04:05] Decode batch. x')").form is Form.REQUEST_LOG


@pytest.mark.parametrize(
    "line",
    ['INFO:     10.0.0.7:1 - "GET /a HTTP/1.1" 200 OK', '[2026-01-02 03:04:05] INFO:     10.0.0.7:1 - "GET /a HTTP/1.1" 200'],
)
def test_access_lines_are_told_apart_from_uvicorns_messages(line: str) -> None:
    assert split_record(line.encode()).form is Form.ACCESS
    assert split_record(b"INFO:     Application startup complete.").form is Form.UVICORN


def test_colours_and_nuls_are_removed() -> None:
    assert without_noise(b"\x00\x00\x1b[32mINFO\x1b[0m:  \x1b]0;title\x07x\x1b[1;31m!") == b"INFO:  x!"


def test_a_custom_format_is_split_at_every_likely_place() -> None:
    odd = split_odd(b"2025-10-20 03:02:13,123 INFO 31220 [DP0 TP0 EP0 scheduler_metrics_mixin.py:222] Decode batch. x")

    assert odd is not None
    assert odd.messages[-1] == b"Decode batch. x"
    assert (odd.stamp, odd.rank) == (b"2025-10-20 03:02:13,123", "DP0 TP0 EP0")
    assert split_odd(b"just some text: with a colon") is None
