# log lines are as long as they are
"""What comes out of a log: records in order, with time, rank and the place where they stand."""

import pytest
from scanning import PATTERNS, hits, scan

from sglang_watchdog.model.observation import Access, Batch, Dump, Opened, Position, Progress, Tally
from sglang_watchdog.model.signature import Pattern
from sglang_watchdog.parse.zone import Zone

NOON_S = 1767355200.0  # 2026-01-02 12:00:00 UTC


def test_a_message_is_found_behind_the_prefix_with_its_rank_time_and_place() -> None:
    (hit,) = hits(scan("first\n[2026-01-02 12:00:00 DP1 TP3] KV cache pool is full. Retract requests. #retracted_reqs: 7, x\n"))

    assert (hit.pattern, hit.rank, hit.at_s, hit.captures) == ("retract", "DP1 TP3", NOON_S, {"retracted": "7"})
    assert hit.position == Position("server.log", 2, 6)
    assert hit.dated
    assert hit.header is None


def test_a_pattern_is_anchored_at_the_start_of_the_message() -> None:
    """Somebody's text in the middle of a message must not count as SGLang's."""
    assert not hits(scan("[2026-01-02 12:00:00] Model said: Scheduler hit an exception\n"))


def test_a_line_without_the_prefix_is_matched_only_by_patterns_that_allow_it() -> None:
    seen = hits(scan("Scheduler hit an exception\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU\n"))

    assert [(hit.pattern, hit.captures) for hit in seen] == [("oom", {"asked": "2.00 GiB"})]


def test_an_undated_line_carries_the_last_stamp_and_says_so() -> None:
    (hit,) = hits(scan("[2026-01-02 12:00:00] a\nplain\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"))

    assert (hit.at_s, hit.dated) == (NOON_S, False)


def test_a_record_glued_behind_a_progress_bar_is_found() -> None:
    """Seen on H200: rank 0's first MoE line in 13 of 15 starts stands behind a bar in the same line."""
    log = (
        "[2026-01-02 12:00:00] Capture begins\n"
        "\r  0%|          | 0/36 [00:00<?, ?it/s]\rCapturing batches (bs=256 avail_mem=12.83 GB):   3%|1 | 1/36 [01:09<40:37, 69.64s/it]"
        "[2026-01-02 12:00:01 TP0] Using default MoE kernel config. Performance\n"
    )

    seen = scan(log)

    assert [(hit.pattern, hit.rank, hit.at_s, hit.position.line) for hit in hits(seen)] == [("moe-default", "TP0", NOON_S + 1, 2)]
    assert hits(seen)[0].text.startswith("[2026-01-02 12:00:01 TP0] Using")
    assert [(bar.what, bar.done, bar.total, bar.elapsed_s) for bar in seen if isinstance(bar, Progress)] == [("capture", 1, 36, 69.0)]


@pytest.mark.parametrize(
    "line",
    [
        "node-a kernel: the driver can't reach the GPU, it doesn't answer",
        "the driver can't reach the GPU, it doesn't answer",
        "module 'nvidia': the driver can't reach the GPU, it doesn't answer",
    ],
)
def test_apostrophes_are_no_quotation_marks(line: str) -> None:
    """Between the two of `can't … doesn't` stands no text of users, so a pattern that may stand anywhere sees it."""
    pattern = Pattern(id="mute", regex="can't reach the GPU, it doesn't answer", undated=True, anywhere="kernel")

    assert [hit.pattern for hit in hits(scan(line, patterns=[pattern]))] == ["mute"]


def test_a_quoted_sentence_is_cut_behind_an_apostrophe_too() -> None:
    pattern = Pattern(id="mute", contains=("the GPU is gone",), undated=True, anywhere="kernel")

    assert not hits(scan("can't read b'the GPU is gone' of 'a user: the GPU is gone'", patterns=[pattern]))


def test_a_bar_is_reported_only_when_it_moved() -> None:
    line = "Loading safetensors checkpoint shards:  50% Completed | 8/16 [00:02<00:02,  3.33it/s]\n"

    bars = [one for one in scan(line * 3 + line.replace("8/16", "9/16")) if isinstance(one, Progress)]

    assert [(bar.done, bar.what) for bar in bars] == [(8, "weights"), (9, "weights")]


TRACEBACKS = """\
[2026-01-02 12:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):
  File "/srt/managers/scheduler.py", line 2, in run
[2026-01-02 12:00:01 TP1] Scheduler hit an exception: Traceback (most recent call last):
  File "/srt/managers/scheduler.py", line 2, in run
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 1
[2026-01-02 12:00:02 TP1] something else
    raise it
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0
[2026-01-02 12:00:03] quiet
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0
"""


def test_lines_of_tracebacks_belong_to_their_headers_although_ranks_interleave() -> None:
    seen = [hit for hit in hits(scan(TRACEBACKS)) if hit.pattern == "oom"]

    told = [(hit.captures["asked"], hit.rank, hit.header.line if hit.header else None) for hit in seen]
    assert told == [("1.00 GiB", "TP1", 3), ("2.00 GiB", "TP0", 1), ("3.00 GiB", "TP0", 1), ("4.00 GiB", "", None)]


def test_a_chained_traceback_stays_with_the_record_that_began_it() -> None:
    log = (
        "[2026-01-02 12:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n  File\nRuntimeError: a\n\n"
        "During handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU\n"
    )

    hit = hits(scan(log))[-1]

    assert (hit.pattern, hit.rank, hit.header) == ("oom", "TP0", Position("server.log", 1, 0))


def test_a_traceback_of_a_process_that_never_logged_is_one_block_all_the_same() -> None:
    hit = hits(scan("Traceback (most recent call last):\n  File\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"))[0]

    assert hit.header == Position("server.log", 1, 0)
    assert hit.at_s is None


def test_the_stamps_of_torch_and_of_the_kernel_are_read() -> None:
    """Ten minutes lie between the last dated line and what torch's watchdog says: carried time would be wrong by as much."""
    log = (
        "[2026-02-10 01:56:29 TP0] Decode batch. #running-req: 9\n"
        "[rank4]:[E210 02:06:33.643248754 ProcessGroupNCCL.cpp:616] [Rank 4] Watchdog caught collective operation timeout: x\n"
        "Feb 10 02:06:40 node-a kernel: NVRM: Xid (PCI:0000:44:00): 79, pid=1\n"
    )

    nccl, xid = hits(scan(log))

    assert (nccl.pattern, nccl.dated, xid.pattern, xid.captures["xid"]) == ("nccl-timeout", True, "xid", "79")
    assert nccl.at_s == pytest.approx(1770689193.643, abs=1e-3)
    assert xid.at_s == 1770689200.0


def test_batch_lines_of_both_separators_become_numbers() -> None:
    old, new = [
        one
        for one in scan(
            "[2026-01-02 12:00:00 TP0] Decode batch. #running-req: 9, #token: 30100, token usage: 0.06, gen throughput (token/s): 212.04, #queue-req: 1\n"
            "[2026-01-02 12:00:01] Prefill batch, #new-seq: 2, #new-token: 64, #cached-token: 8, token usage: 0.03, #running-req: 5, #queue-req: 0, "
            "#pending-token: 4, cuda graph: False, input throughput (token/s): 13.28\n"
        )
        if isinstance(one, Batch)
    ]

    assert (old.is_decode, old.rank, old.running_requests, old.used_tokens, old.kv_used_ratio) == (True, "TP0", 9, 30100, 0.06)
    assert (old.tokens_per_s, old.queue_requests, old.graph, old.at_s) == (212.04, 1, None, NOON_S)
    assert (new.is_decode, new.new_sequences, new.new_tokens, new.cached_tokens, new.graph) == (False, 2, 64, 8, False)
    assert (new.tokens_per_s, new.extra) == (13.28, {"pending_token": 4.0})


def test_a_batch_is_built_as_its_own_constructor_builds_it() -> None:
    from sglang_watchdog.scan.batches import make_batch

    position, known, extra = Position("a", 1, 2), {"running_requests": 3, "graph": True, "forward_occupancy": 0.5}, {"iteration": 1.0}

    assert make_batch(1.0, position, "TP0", "x", True, known, extra) == Batch(
        at_s=1.0, position=position, rank="TP0", text="x", is_decode=True, running_requests=3, graph=True, forward_occupancy=0.5, extra=extra
    )


def test_a_pattern_aimed_at_batch_lines_hits_once_a_second_and_rank() -> None:
    """Hundreds of batch lines a second are normal; their numbers come as Batch, so one hit is proof enough."""
    line = "[2026-01-02 12:00:0{} TP{}] Prefill batch, #new-seq: 1, #new-token: 6, #cached-token: 0, \n"

    seen = hits(scan("".join(line.format(second, rank) for second in (0, 0, 1) for rank in (0, 1))))

    assert [(hit.pattern, hit.rank, hit.at_s) for hit in seen] == [
        ("first-prefill", "TP0", NOON_S),
        ("first-prefill", "TP1", NOON_S),
        ("first-prefill", "TP0", NOON_S + 1),
        ("first-prefill", "TP1", NOON_S + 1),
    ]


def test_a_pattern_that_also_has_other_beginnings_hits_them_all() -> None:
    either = Pattern(id="forward", starts=("Capture cuda graph end", "Prefill batch"))
    log = "[2026-01-02 12:00:00] Capture cuda graph end. x\n" + "[2026-01-02 12:00:01] Prefill batch, #new-seq: 1, \n" * 3

    assert [hit.position.line for hit in hits(scan(log, patterns=[either]))] == [1, 2]


def test_answers_are_counted_by_second_status_and_kind_of_endpoint() -> None:
    log = (
        '[2026-01-02 12:00:00] INFO:     10.0.0.7:1 - "POST /generate HTTP/1.1" 200 OK\n'
        '[2026-01-02 12:00:00] INFO:     10.0.0.7:2 - "POST /v1/chat/completions?a=b HTTP/1.1" 200 OK\n'
        '[2026-01-02 12:00:00] INFO:     10.0.0.7:3 - "GET /health HTTP/1.1" 503 Service Unavailable\n'
        'INFO:     10.0.0.7:4 - "GET /metrics/ HTTP/1.1" 200 OK\n'
        '\x1b[32mINFO\x1b[0m:     10.0.0.7:4 - "\x1b[1mGET /get_model_info HTTP/1.1\x1b[0m" \x1b[32m200 OK\x1b[0m\n'
        '[2026-01-02 12:00:01] INFO:     2001:db8::1:5 - "POST /generate HTTP/1.1" 200 OK\r\n'
    )

    answers = [(one.at_s, one.kind, one.status, one.count, one.position.line) for one in scan(log) if isinstance(one, Access)]

    assert answers == [
        (NOON_S, "generate", 200, 2, 1),
        (NOON_S, "health", 503, 1, 3),
        (NOON_S, "metrics", 200, 1, 4),
        (NOON_S, "other", 200, 1, 5),
        (NOON_S + 1, "generate", 200, 1, 6),
    ]


def test_uvicorns_own_messages_match_with_and_without_the_level_word() -> None:
    log = "[2026-01-02 12:00:00] INFO:     Started server process [711]\nINFO:     Started server process [712]\n"

    assert [hit.pattern for hit in hits(scan(log))] == ["started", "started"]
    whole = Pattern(id="whole", starts=("INFO:     Started server process",))
    assert [hit.pattern for hit in hits(scan(log, patterns=[whole]))] == ["whole", "whole"]


def test_a_server_with_its_own_logging_configuration_is_read_as_far_as_it_is_recognisable() -> None:
    log = (
        "2026-01-02 12:00:00 INFO 31220 [DP0 TP0 EP0 scheduler.py:222] Decode batch. #running-req: 32, #token: 7, token usage: 0.21\n"
        "2026-01-02 12:00:00 ERROR 31220 [DP0 TP0 EP0 scheduler.py:9] Scheduler hit an exception: Traceback (most recent call last):\n"
        '2026-01-02 12:00:01 INFO 31101 [httptools_impl.py:476] 10.0.0.7:41000 - "POST /generate HTTP/1.1" 200\n'
        "2026-01-02 12:00:02 INFO 1 [a.py:1] Receive: obj=GenerateReqInput(text='a [x] Scheduler hit an exception')\n"
    )

    seen = scan(log)

    batch = next(one for one in seen if isinstance(one, Batch))
    answer = next(one for one in seen if isinstance(one, Access))
    (hit,) = hits(seen)
    assert (batch.at_s, batch.rank, batch.running_requests) == (NOON_S, "DP0 TP0 EP0", 32)
    assert (answer.at_s, answer.kind, answer.status) == (NOON_S + 1, "generate", 200)
    assert (hit.pattern, hit.rank, hit.at_s) == ("exception", "DP0 TP0 EP0", NOON_S)
    tally = next(one for one in seen if isinstance(one, Tally))
    assert (tally.lines, tally.odd_lines, tally.sglang_lines) == (4, 3, 3)


def test_guessing_ends_with_the_first_line_that_has_the_prefix() -> None:
    log = "[2026-01-02 12:00:00] ready\n2026-01-02 12:00:01 INFO said: Scheduler hit an exception\n"

    assert not hits(scan(log))


def test_a_json_logging_configuration_is_read_too() -> None:
    log = '{"asctime": "2026-01-02 12:00:00", "levelname": "INFO", "message": "Decode batch. #running-req: 3, #token: 4, token usage: 0.21"}\n'

    (batch,) = [one for one in scan(log) if isinstance(one, Batch)]

    assert (batch.at_s, batch.running_requests, batch.kv_used_ratio) == (NOON_S, 3, 0.21)


def test_a_dump_gives_its_arguments_and_a_second_one_is_an_update() -> None:
    first, second = [
        one
        for one in scan(
            "[2026-01-02 12:00:00] server_args=ServerArgs(model_path='/m/a, b', tp_size=2, api_key='topsecret')\n"
            "[2026-01-02 12:00:01 TP0] Global server args updated! global_server_args=ServerArgs(model_path='/m', tp_size=2)\n"
        )
        if isinstance(one, Dump)
    ]

    assert (first.args, first.update, first.complete) == ({"model_path": "/m/a, b", "tp_size": 2, "api_key": "***"}, False, True)
    assert "topsecret" not in first.text
    assert (second.args["tp_size"], second.update) == (2, True)


def test_the_source_is_opened_once_and_again_when_its_offset_jumps() -> None:
    from scanning import library

    from sglang_watchdog.scan.scanner import Scanner

    scanner = Scanner(library(), "server.log", zone=Zone.utc())
    line = b"[2026-01-02 12:00:00] a\n"

    said = [
        [one for one in scanner.feed(line, offset=offset, line=number) if isinstance(one, Opened)]
        for offset, number in ((0, 1), (len(line), 2), (0, 1), (1000, 20))
    ]

    assert [[one.from_start for one in opened] for opened in said] == [[True], [], [True], [False]]
    assert said[0][0].at_s == NOON_S or said[0][0].at_s is None


def test_lines_are_tallied() -> None:
    tally = next(one for one in scan("[2026-01-02 12:00:00] a\nbare\n[2026-01-02 12:00:01 TP0] b\n") if isinstance(one, Tally))

    assert (tally.lines, tally.bytes, tally.sglang_lines, tally.odd_lines, tally.first_position) == (
        3,
        57,
        2,
        0,
        Position("server.log", 1, 0),
    )


def test_a_time_of_day_alone_is_dated_if_the_day_is_known() -> None:
    """0.3.0 prints no date."""
    from datetime import date

    log = "[23:59:59 TP0] Scheduler hit an exception\n[00:00:01 TP0] Scheduler hit an exception\n"

    assert [hit.at_s for hit in hits(scan(log))] == [None, None]
    dated = hits(scan(log, zone=Zone.utc().dated(date(2026, 1, 2))))
    assert [hit.at_s for hit in dated] == [1767398399.0, 1767398401.0]


def test_a_zone_other_than_utc_moves_the_times() -> None:
    hit = hits(scan("[2026-01-02 12:00:00] Scheduler hit an exception\n", zone=Zone.named("+08:00")))[0]

    assert hit.at_s == NOON_S - 8 * 3600


def test_patterns_without_any_fixed_text_are_tried_on_every_line() -> None:
    loose = Pattern(id="loose", regex=r"^[A-Z]{3}\d+$", undated=True)

    assert [hit.position.line for hit in hits(scan("a\nABC12\n[2026-01-02 12:00:00] ABC1\nABC\n", patterns=[*PATTERNS, loose]))] == [2, 3]


def test_unknown_formats_and_engines_are_refused_with_what_would_do() -> None:
    with pytest.raises(ValueError, match="choose one of auto, plain, docker"):
        scan("", format="dokcer")
    with pytest.raises(ValueError, match="choose auto, hyperscan, re2 or plain"):
        scan("", engine="fast")
