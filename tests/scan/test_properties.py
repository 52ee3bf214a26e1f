# log lines are as long as they are
"""What must hold for any log: results depend neither on the cuts between blocks nor on the engine, users cannot forge records,
and secrets never come out."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scanning import EXAMPLES, PATTERNS, Seen, hits, scan, settled

from sglang_watchdog.model.observation import Batch, Dump, Progress, Tally
from sglang_watchdog.model.signature import Pattern
from sglang_watchdog.scan.literals import is_anchored, required
from sglang_watchdog.scan.patterns import compile_pattern
from sglang_watchdog.scan.search import build_search

CAPTURES = Path(__file__).parents[1] / "captures"
CASES = Path(__file__).parents[1] / "cases"
ENGINES = ("hyperscan", "re2", "plain")

STAMPS = st.sampled_from(
    [
        "",
        "[2026-01-02 12:00:00] ",
        "[2026-01-02 12:00:01 TP0] ",
        "[2026-01-02 12:00:01.500 DP1 TP1 EP1] ",
        "[2026-01-02 12:00:02 TP1] ",
    ]
)
BODIES = st.sampled_from(
    [
        *EXAMPLES,
        "Traceback (most recent call last):",
        '  File "/a.py", line 1, in f',
        "RuntimeError: boom",
        "",
        "plain text",
        "\r  0%|   | 0/36 [00:00<?, ?it/s]\rCapturing batches (bs=1):  3%|# | 1/36 [00:09<00:37, 9.64s/it][2026-01-02 12:00:03 TP0] Using default MoE config. x",
        "Loading safetensors checkpoint shards:  50% Completed | 8/16 [00:02<00:02,  3.33it/s]",
        "2026-01-02 12:00:04,678 - INFO - autotuner.py:12 - flashinfer.jit: [Autotuner]: Autotuning process starts ...",
        "Mar 11 22:14:14 node-a kernel: NVRM: Xid (PCI:0000:44:00): 79, pid=1",
        "Receive: obj=GenerateReqInput(text='KV cache pool is full. Retract requests. #retracted_reqs: 1')",
        '{"timestamp": "2026-01-02T12:00:00", "event": "request.received", "rid": "1", "obj": {"text": "Decode batch. #running-req: 1"}}',
        '\x1b[32mINFO\x1b[0m:     127.0.0.1:1 - "\x1b[1mGET /health HTTP/1.1\x1b[0m" \x1b[32m200 OK\x1b[0m',
        "\0\0\0[2026-01-02 12:00:05] The server is fired up and ready to roll!",
        "Global server args updated! global_server_args=ServerArgs(tp_size=4)",
        "2026-01-02 12:00:06 INFO 31220 [DP0 TP0 a.py:222] Decode batch. #running-req: 32, #token: 7, token usage: 0.21",
        "caf\xe9 \udcff",
    ]
)
LINES = st.tuples(STAMPS, BODIES, st.sampled_from(["\n", "\n", "\n", "\r\n"])).map("".join)
LOGS = st.lists(LINES, max_size=25).map(lambda lines: "".join(lines).encode("utf-8", "surrogateescape"))


@settings(max_examples=300, deadline=None)
@given(LOGS, st.lists(st.integers(0, 4000), max_size=8))
def test_results_do_not_depend_on_where_blocks_are_cut(log: bytes, cuts: list[int]) -> None:
    """Not even on cuts within a line."""
    assert settled(scan(log, cuts=cuts)) == settled(scan(log))


@settings(max_examples=60, deadline=None)
@given(LOGS, st.lists(st.integers(0, 20000), max_size=8), st.sampled_from(["docker", "cri", "journal"]), st.integers(5, 200))
def test_results_do_not_depend_on_cuts_in_framed_logs(log: bytes, cuts: list[int], form: str, part: int) -> None:
    framed = framed_as(form, log.replace(b"\0", b"").decode("utf-8", "replace"), part)

    assert settled(scan(framed, cuts=cuts)) == settled(scan(framed))


def framed_as(form: str, log: str, part: int) -> str:
    """Wrap a log as docker, Kubernetes or journald do; long lines are split into parts, except in the journal."""
    out = []
    for number, line in enumerate(log.split("\n")[:-1]):
        time = f"2026-01-02T12:00:{number % 60:02}.{number:06}Z"
        if form == "journal":
            out.append(json.dumps({"__REALTIME_TIMESTAMP": str(1767355200000000 + number), "MESSAGE": line}))
            continue
        parts = [line[at : at + part] for at in range(0, len(line), part)] or [""]
        for at, text in enumerate(parts):
            is_last = at == len(parts) - 1
            if form == "docker":
                out.append(json.dumps({"log": text + ("\n" if is_last else ""), "stream": "stderr", "time": time}, separators=(",", ":")))
            else:
                out.append(f"{time} stderr {'F' if is_last else 'P'} {text}")
    return "".join(line + "\n" for line in out)


@settings(max_examples=150, deadline=None)
@given(LOGS)
def test_all_engines_see_the_same(log: bytes) -> None:
    first, *others = (scan(log, engine=engine) for engine in ENGINES)

    assert all(other == first for other in others)


PIECES = st.sampled_from(
    [
        "error",
        " 500",
        "HTTP/",
        "Using",
        r"\d+",
        r"[A-Z]+",
        ".*",
        r"\S+",
        "(?:a|bc)",
        "(x y)?",
        "(?P<n>\\w+)",
        r"\.",
        "é",
        "(?:ab){2}",
        '[^"]+',
    ]
)
REGEXES = st.lists(PIECES, min_size=1, max_size=5, unique=True).map(
    lambda pieces: Pattern(id="any", regex="".join(pieces), undated=True, anywhere="test")
)
WORDS = st.lists(
    st.sampled_from(["error", " 500", "HTTP/", "Using", "7", "AB", "a", "bc", "x y", ".", "é", "abab", " ", "\x1b[1m", "\0", "K"]),
    max_size=8,
).map("".join)


@settings(max_examples=400, deadline=None)
@given(REGEXES, st.lists(WORDS, max_size=6), st.booleans())
def test_the_texts_searched_for_never_hide_a_match(pattern: Pattern, lines: list[str], any_case: bool) -> None:
    """The required texts are derived from the regex; a line that matches must hold one of them, whatever the regex."""
    pattern = Pattern(id="any", regex=pattern.regex, ignore_case=any_case, undated=True, anywhere="test")
    one = compile_pattern(pattern)
    clean = [line.replace("\x1b[1m", "").replace("\0", "") for line in lines]
    expected = [number for number, line in enumerate(clean, 1) if one.match(line) is not None]

    found = [hit.position.line for hit in hits(scan("".join(line + "\n" for line in lines), patterns=[pattern]))]

    assert found == expected


def test_the_rarest_text_is_searched_for() -> None:
    """` HTTP/` stands in every access line; the status does not. This is worth a factor of four on an access log."""
    found = required(Pattern(id="http-500", regex=r'"(?P<m>[A-Z]+) (?P<p>[^" ]+) HTTP/[\d.]+" 500', anywhere="test"))

    assert [literal.text for literal in found] == [b'" 500']


@pytest.mark.parametrize(
    ("regex", "anchored"),
    [
        ("^Killed$", True),
        (r"^(?:torch\.)?OutOfMemoryError: CUDA", True),
        (r"^\w+Error: a", True),
        (r"^(?:\w+Error: |ERROR: +)?(?:CUDA|Triton) error", True),
        (r"^ *what\(\): x", True),
        (r"^\[rank\d+\]:\[E.*\] Watchdog", True),
        ("(?:^a|^b)c", True),
        ("a|^b", False),
        ("Killed", False),
        (r'^(?:[^"{]{0,80}kernel: )?NVRM: Xid', False),
        (r"^\S[^:]{0,60}: error: ", False),
        (r"^.*error", False),
        (r"^(?:\w+Error: )?.{0,120}port", False),
    ],
)
def test_anchored_means_that_users_cannot_write_before_it(regex: str, anchored: bool) -> None:
    assert is_anchored(Pattern(id="x", regex=regex)) is anchored


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_find_each_text_once_a_line(engine: str) -> None:
    from sglang_watchdog.scan.literals import Literal

    search = build_search([Literal(b"ab"), Literal(b"err", any_case=True), Literal(b"b\x00")], engine)

    assert search.find(b"abab\nxx\nERR ab\n\nErr err") == [(0, 0), (8, 0), (8, 1), (16, 1)]
    assert search.find(b"") == []


HOSTILE = st.one_of(
    st.sampled_from(EXAMPLES),
    st.lists(
        st.one_of(st.sampled_from(EXAMPLES), st.sampled_from(["\n", "\r", "'", '"', "\\", "[2026-01-02 12:00:00] ", "it/s]", "obj="])),
        max_size=5,
    ).map("".join),
)


def forged_lines(text: str) -> list[str]:
    """Every place where a server prints what a user sent, with `text` as the user's."""
    path = "".join(f"%{byte:02X}" if byte <= 32 or byte in b'"%<>\\^`{|}' or byte > 126 else chr(byte) for byte in text.encode())
    query = text.replace(" ", "+").replace("\n", "%0A").replace("\r", "%0D").replace("\t", "%09")
    request = {"rid": text, "text": text, "messages": [{"role": "user", "content": text}], "model": text}
    stamp = "[2026-01-02 12:00:00] "
    return [
        f"Receive: obj=GenerateReqInput(rid={text!r}, text={text!r}, input_ids=None)",
        f"{stamp}Receive: obj=GenerateReqInput(rid='1', text={text!r})",
        f"{stamp}Finish: obj=GenerateReqInput(rid='1', text={text!r}), out={{'text': {text!r}}}",
        f"Receive OpenAI: obj={request!r}",
        f"{stamp}in=GenerateReqInput(text={text!r}), out={{'text': {text!r}}}",
        json.dumps({"timestamp": "2026-01-02T12:00:00", "event": "request.received", "rid": text, "obj": request}),
        json.dumps({"timestamp": "2026-01-02T12:00:00", "event": "request.finished", "rid": "1", "obj": request, "out": {"text": text}}),
        json.dumps({"timestamp": "2026-01-02T12:00:00", "event": "request.received.openai", "obj": request}),
        f'{stamp}INFO:     10.0.0.7:41870 - "GET /{path} HTTP/1.1" 404 Not Found',
        f'{stamp}INFO:     10.0.0.7:41870 - "GET /v1/models?q={query} HTTP/1.1" 404 Not Found',
        f'INFO:     10.0.0.7:41870 - "GET /v1/models?q={query} HTTP/1.1" 404 Not Found',
        f"{stamp}The model {text!r} does not exist.",
        f"{stamp}Abort request rid={text!r}",
    ]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(HOSTILE)
def test_users_cannot_forge_a_record(text: str) -> None:
    """A firing example in a prompt, request id, model name, path or query string raises nothing, in plain logs and in framed ones."""
    log = "[2026-01-02 12:00:00] ok\n" + "".join(line + "\n" for line in forged_lines(text))
    for form in ("plain", "docker", "cri", "journal"):
        seen = scan(log if form == "plain" else framed_as(form, log, 40))

        assert not [one for one in seen if isinstance(one, Batch | Dump | Progress)], text
        assert not hits(seen), text
        quoted = [hit.text for hit in hits(seen)]
        assert not quoted


@settings(max_examples=100, deadline=None)
@given(HOSTILE, st.sampled_from(["plain", "docker", "cri", "journal"]))
def test_users_cannot_forge_a_record_before_the_first_prefix_either(text: str, form: str) -> None:
    """Where the prefix was not seen yet, SGLang's messages are searched more freely; users' text still is not."""
    log = "".join(line + "\n" for line in forged_lines(text) if not line.startswith("["))

    seen = scan(log if form == "plain" else framed_as(form, log, 40))

    assert not hits(seen)
    assert not [one for one in seen if isinstance(one, Batch | Dump | Progress)]


SECRET = "s3cretValue-9f8e7d"
PLANTED = (
    f"[2026-01-02 12:00:00] server_args=ServerArgs(model_path='/m', api_key='{SECRET}', tp_size=2, model_loader_extra_config='{{\"k\": \"{SECRET}\"}}')",
    f"[2026-01-02 12:00:00] server_args={{'model_path': '/m', 'admin_api_key': '{SECRET}', 'ssl_keyfile_password': '{SECRET}', 'hicache_storage_backend_extra_config': {{'user': '{SECRET}'}}}}",
    f"[2026-01-02 12:00:00] server_args=ServerArgs(model_path='/m', tp_size=2, api_key='{SECRET}",
    f"[2026-01-02 12:00:01 TP0] Global server args updated! global_server_args=ServerArgs(api_key='{SECRET}')",
    f"sglang serve: error: unrecognized arguments: --enable-x --api-key {SECRET}",
    f"sglang serve: error: unrecognized arguments: --admin-api-key={SECRET} --enable-x",
    f"sglang serve: error: unrecognized arguments: ['--api-key', '{SECRET}', '--x']",
    f"[2026-01-02 12:00:02] Scheduler hit an exception: headers={{'authorization': 'Bearer {SECRET}'}}",
    f"[2026-01-02 12:00:02] Scheduler hit an exception: Authorization: Bearer {SECRET}",
    f"[2026-01-02 12:00:02] Scheduler hit an exception: x-api-key: {SECRET}",
    f"[2026-01-02 12:00:02] Scheduler hit an exception: token hf_{SECRET.replace('-', '')}",
    f"[2026-01-02 12:00:02] Scheduler hit an exception: https://user:{SECRET}@example.com/x",
    f'[2026-01-02 12:00:02] Scheduler hit an exception: "GET /v1/models?key={SECRET} HTTP/1.1"',
    f"[2026-01-02 12:00:02] Scheduler hit an exception: api_key={SECRET}, x",
    f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. api_key='{SECRET}'",
    f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. AWS_SECRET_ACCESS_KEY={SECRET} x",
    f"[2026-01-02 12:00:02] Scheduler hit an exception: prompt='{SECRET}' rid='{SECRET}' remaining_rids=['{SECRET}', '{SECRET}']",
    f"[2026-01-02 12:00:02] Scheduler hit an exception: input_value={{'messages': ['{SECRET}']}}, input_type=dict",
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(PLANTED), min_size=1, max_size=6),
    st.sampled_from(["plain", "docker", "cri", "journal"]),
    st.integers(20, 400),
)
def test_secrets_never_come_out(lines: list[str], form: str, part: int) -> None:
    log = "".join(line + "\n" for line in lines)

    seen = scan(log if form == "plain" else framed_as(form, log, part))

    told = json.dumps([asdict(one) for one in seen])
    assert SECRET not in told
    assert SECRET.replace("-", "") not in told
    assert hits(seen) or any(isinstance(one, Dump) for one in seen)


def test_a_secret_seen_in_a_dump_is_cut_wherever_it_turns_up_again() -> None:
    log = f"{PLANTED[0]}\n[2026-01-02 12:00:02] Scheduler hit an exception: strange({SECRET})\n"

    assert SECRET not in hits(scan(log))[-1].text


@pytest.mark.parametrize("name", ["40-dense-8b-tp2", "47-logreq-levels-json", "34-fail-mem-fraction-099", "30-fail-unknown-flag"])
def test_real_recordings_read_the_same_in_small_blocks_and_by_every_engine(name: str) -> None:
    log = (CAPTURES / name / "server.log").read_bytes()
    whole = settled(scan(log))

    assert settled(scan(log, cuts=range(1000, len(log), 4096))) == whole
    assert settled(scan(log, engine="re2")) == whole
    assert settled(scan(log, engine="plain")) == whole


def test_bounded_memory_on_a_line_without_end() -> None:
    """200 MB without a newline arrive in pieces; the last redraw counts, and what is glued to it."""
    import tracemalloc

    from scanning import library

    from sglang_watchdog.parse.zone import Zone
    from sglang_watchdog.scan.scanner import Scanner

    scanner = Scanner(library(), "server.log", zone=Zone.utc())
    piece = b"\r  1%|   | 1/999 [00:00<00:01, 9.9it/s]" * 25_000
    tail = b"\rCapturing batches (bs=1):  3%|# | 1/36 [00:09<00:37, 9.64s/it][2026-01-02 12:00:03 TP0] Using default MoE config.\n"
    tracemalloc.start()
    try:
        for number in range(200):
            assert not hits(scanner.feed(piece, offset=number * len(piece), line=1))
        seen = scanner.feed(tail + b"[2026-01-02 12:00:04] Scheduler hit an exception\n", offset=200 * len(piece), line=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert [(hit.pattern, hit.position.line) for hit in hits(seen)] == [("moe-default", 1), ("exception", 2)]
    assert peak < 16 << 20


def test_the_rest_of_a_line_that_was_given_up_is_nobodys_message() -> None:
    """A reader that gives up on an overlong request-log line must not make its second half look like a record."""
    from scanning import library

    from sglang_watchdog.parse.zone import Zone
    from sglang_watchdog.scan.scanner import Scanner

    scanner = Scanner(library(), "server.log", zone=Zone.utc())
    first = b"Receive: obj=GenerateReqInput(text='aaa"
    rest = b"[2026-01-02 12:00:00] Scheduler hit an exception')\n[2026-01-02 12:00:01] Scheduler hit an exception\n"

    seen = scanner.feed(first, offset=0, line=1) + scanner.finish() + scanner.feed(rest, offset=len(first), line=1)

    assert [hit.position.line for hit in hits(seen)] == [2]


def test_a_moving_bar_that_is_given_in_pieces_is_followed_to_the_record_at_its_end() -> None:
    """A live reader hands over the drawings so far; half an hour later the line ends with the record that matters."""
    from scanning import library

    from sglang_watchdog.parse.zone import Zone
    from sglang_watchdog.scan.scanner import Scanner

    scanner = Scanner(library(), "server.log", zone=Zone.utc())
    drawing = "Capturing batches (bs=9):  3%|# | {}/36 [00:09<00:37, 9.64s/it]"
    pieces = [
        "[2026-01-02 12:00:00] begin\n\r" + drawing.format(0),
        "\r" + drawing.format(1),
        "\r" + drawing.format(2) + "\r" + drawing.format(3),
        "\r" + drawing.format(4) + "[2026-01-02 12:00:03 TP0] Using default MoE config.\n[2026-01-02 12:00:04] Scheduler hit an exception\n",
    ]
    seen: list[Seen] = []
    at = 0
    for number, piece in enumerate(pieces):
        seen += scanner.feed(piece.encode(), offset=at, line=1 if number == 0 else 2)
        at += len(piece.encode())
        seen += scanner.finish() if number < 3 else []

    assert [one.done for one in seen if isinstance(one, Progress)] == [0, 1, 3, 4]
    assert [(hit.pattern, hit.position.line) for hit in hits(seen)] == [("moe-default", 2), ("exception", 3)]
    tallies = [one for one in seen if isinstance(one, Tally)]
    assert (sum(one.lines for one in tallies), sum(one.bytes for one in tallies)) == (3, at)


@pytest.mark.parametrize("atom", ["-", "--key", "'a", "\\\\'", "{'a': ", "api_key=", "rid=", "0%| | 0/1 [0<", "it/s][2026-", " ", "a.b: ", "=,"])
def test_long_lines_of_any_pattern_take_linear_time(atom: str) -> None:
    """A quadratic regex would take minutes here."""
    line = (atom * (1 << 18))[: 1 << 18]
    beginnings = (
        "[2026-01-02 12:00:00] Scheduler hit an exception ",
        "NVRM: Xid (PCI:0): 1",
        "[2026-01-02 12:00:00] server_args=ServerArgs(",
        "0%|",
    )

    scan("".join(f"{beginning}{line}\n" for beginning in beginnings))


def test_binary_rubbish_is_survived() -> None:
    assert not hits(scan(bytes(range(256)) * 500 + b"\n" * 100))


def test_every_pattern_of_the_tests_has_a_firing_example() -> None:
    """Else the tests of hostile text would prove nothing."""
    bare = ("[", "NVRM", "sglang", "torch")
    log = "".join(f"{'' if line.startswith(bare) else '[2026-01-02 12:00:00 TP0] '}{line}\n" for line in EXAMPLES)

    assert {hit.pattern for hit in hits(scan(log))} == {pattern.id for pattern in PATTERNS}
