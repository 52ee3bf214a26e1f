"""Who may ask what, from where; what browsers are told; what never leaves."""

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_watchdog.sinks.web import html, tokens
from sglang_watchdog.sinks.web.limits import Buckets, Limits
from sglang_watchdog.sinks.web.security import OpenBindRefused
from sglang_watchdog.sinks.web.serving import ListenInvalid, PortTaken, address, are_loopback, bind
from sglang_watchdog.sinks.web.tokens import Token, TokenFileInvalid, TokenScope, TokenStore, digest, make, parse
from sinks import material
from sinks.conftest import HOST

READ, WRITE, METRICS = TokenScope.READ, TokenScope.WRITE, TokenScope.METRICS
WRITES = [
    ("POST", "/-/reload", None),
    ("POST", "/api/v1/findings/cause/acknowledgement", {}),
    ("DELETE", "/api/v1/findings/cause/acknowledgement", None),
    ("DELETE", "/api/v1/silences/x", None),
    ("POST", "/api/v1/silences", {"matchers": {"server": "chat"}, "reason": "r", "duration_s": 60}),
]
READS = ["/api/v1/findings", "/api/v1/status", "/api/v1/changes?duration_s=0", "/openapi.json"]
HEALTH = ["/healthz", "/readyz", "/livez", "/-/healthy", "/-/ready"]


# --- tokens -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
def test_every_write_needs_a_write_token_even_on_loopback(story, method, path, body):
    before = story.ledger.change_range()
    assert story.client().request(method, path, json=body).status_code == 401
    assert story.client(READ).request(method, path, json=body).status_code == 403
    assert story.client(METRICS).request(method, path, json=body).status_code == 403
    assert story.ledger.change_range() == before

    assert story.client(WRITE).request(method, path, json=body).status_code not in (401, 403)


@pytest.mark.parametrize("path", READS)
def test_reading_is_open_on_loopback_and_needs_a_token_beyond(story, path):
    assert story.client().get(path).status_code == 200

    for settings in ({"is_loopback": False}, {"reads_need_token": True}):
        stranger = story.client(**settings).get(path)
        assert stranger.status_code == 401
        assert stranger.headers["www-authenticate"].startswith("Bearer")
        assert story.client(METRICS, **settings).get(path).status_code == 403
        assert story.client(READ, **settings).get(path).status_code == 200
        assert story.client(WRITE, **settings).get(path).status_code == 200


@pytest.mark.parametrize("path", HEALTH)
def test_health_never_needs_a_token_nor_a_known_host(story, path):
    answer = story.client(is_loopback=False).get(path, headers={"host": "10-0-0-7.pod.cluster.local"})

    assert answer.status_code == 200


def test_metrics_have_their_own_switch(story):
    assert story.client(is_loopback=False).get("/metrics").status_code == 200
    assert story.client(metrics_need_token=True).get("/metrics").status_code == 401
    for scope in (METRICS, READ, WRITE):
        assert story.client(scope, metrics_need_token=True).get("/metrics").status_code == 200


@pytest.mark.parametrize("authorization", ["Bearer", "Bearer ", "Basic dXNlcjpwYXNz", "Bearer sgwd_wrong", "bearer\tx", "Bearer \xff"])
def test_a_wrong_token_is_refused_even_where_none_is_needed(story, authorization):
    """Otherwise a script with a mistyped token would work until somebody opens the port."""
    answer = story.client().get("/api/v1/findings", headers={"authorization": authorization.encode("latin-1")})

    assert answer.status_code == 401
    assert "sgwd_wrong" not in answer.text


def test_guessing_is_slowed_down(story):
    client = story.client(limits=Limits(failures_burst=3))
    answers = [client.get("/api/v1/status", headers={"authorization": "Bearer guess"}).status_code for _ in range(5)]

    assert answers == [401, 401, 401, 429, 429]


def test_requests_of_one_address_are_limited_and_told_when_to_come_back(story):
    client = story.client(limits=Limits(burst=3, requests_per_s=0.5))
    answers = [client.get("/api/v1/status") for _ in range(5)]

    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert answers[-1].headers["retry-after"] == "2"
    assert answers[-1].headers["content-type"] == "application/problem+json"


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 3)), max_size=60))
def test_a_bucket_never_gives_more_than_its_burst_and_rate(steps):
    clock = [0.0]
    buckets, given_out = Buckets(2.0, 5, now=lambda: clock[0]), 0
    for pause_s, asked in steps:
        clock[0] += pause_s
        given_out += sum(buckets.take("client") == 0.0 for _ in range(asked))
    assert given_out <= 5 + 2.0 * clock[0] + 1e-6


def test_buckets_of_many_addresses_stay_bounded():
    buckets = Buckets(1.0, 1, now=lambda: 0.0, clients=10)
    for n in range(1000):
        buckets.take(f"client-{n}")

    assert len(buckets._left) == 10


def test_a_token_is_kept_only_as_its_hash(tmp_path):
    text, token = make("ada", [WRITE])
    file = tmp_path / "tokens"
    file.write_text(f"# who\n{tokens.line(token)}\n")
    store = TokenStore(file=file)

    assert text not in file.read_text()
    assert text not in repr(store.tokens)
    assert store.find(text) == token
    assert store.find(text[:-1]) is None
    assert store.find("") is None


def test_every_token_is_compared_in_constant_time(monkeypatch):
    """Neither which token matched nor how much of one was right shows in the time."""
    compared = []
    monkeypatch.setattr(tokens.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or a == b)
    text, first = make("first", [READ])
    store = TokenStore([first, make("second", [READ])[1], make("third", [READ])[1]])

    assert store.find(text) == first
    assert len(compared) == 3


def test_a_token_file_that_is_replaced_is_in_force_at_the_next_request(story, tmp_path):
    file = tmp_path / "tokens"
    old, old_token = make("old", [WRITE])
    new, new_token = make("new", [WRITE])
    file.write_text(tokens.line(old_token))
    faults = []
    store = TokenStore(file=file, on_fault=faults.append)

    replacement = tmp_path / "next"
    replacement.write_text(tokens.line(new_token) + "\n# rotated\n")
    replacement.rename(file)

    assert (store.find(old), store.find(new)) == (None, new_token)
    assert faults == []


def test_a_broken_token_file_leaves_the_old_tokens_in_force_and_is_said_once(tmp_path):
    file = tmp_path / "tokens"
    text, token = make("ada", [READ])
    file.write_text(tokens.line(token))
    faults = []
    store = TokenStore(file=file, on_fault=faults.append)
    file.write_text(f"ada read {text}\n")

    assert store.find(text) == token
    assert store.find(text) == token

    assert len(faults) == 1
    assert f"{file}:1:1: not `name scope" in faults[0]
    assert text not in faults[0]
    file.write_text(tokens.line(token) + "\n")
    assert store.find(text) == token
    assert store.fault == ""
    file.unlink()
    assert store.find(text) == token
    assert "No such file" in store.fault


def test_every_fault_of_a_token_file_is_told_with_its_place():
    good = "a" * 64
    with pytest.raises(TokenFileInvalid) as refused:
        parse(f"ada read sha256:{good}\nada reed sha256:{good}\n\nsecret-itself\n", "tokens")

    assert str(refused.value).splitlines() == [
        "tokens:2:5: unknown scope 'reed': use read, write or metrics",
        "tokens:4:1: not `name scope[,scope] sha256:<64 hex digits>`; make a line with `sglang-watchdog config token NAME`",
    ]


# --- binding ------------------------------------------------------------------------------------------------------


def test_without_a_token_the_daemon_refuses_to_listen_beyond_loopback():
    with pytest.raises(OpenBindRefused, match=r"config token NAME"):
        bind("0.0.0.0:0", TokenStore())
    with pytest.raises(OpenBindRefused):
        bind("0.0.0.0:0", TokenStore([Token("m", frozenset({METRICS}), digest("x"))]))


def test_with_a_token_it_listens_where_it_is_told():
    sockets = bind("0.0.0.0:0", TokenStore([make("ada", [READ])[1]]))
    try:
        assert not are_loopback(sockets)
    finally:
        for sock in sockets:
            sock.close()


def test_loopback_needs_none():
    sockets = bind("localhost:0", TokenStore())
    try:
        assert are_loopback(sockets)
        assert len({sock.getsockname()[1] for sock in sockets}) == 1
    finally:
        for sock in sockets:
            sock.close()


def test_a_taken_port_is_said_or_the_next_one_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortTaken, match=str(port)):
            bind(f"127.0.0.1:{port}", TokenStore())
        (sock,) = bind(f"127.0.0.1:{port}", TokenStore(), tries=50)
        assert port < sock.getsockname()[1] < port + 50
        sock.close()


@pytest.mark.parametrize(
    ("listen", "wanted"),
    [
        ("127.0.0.1:17853", ("127.0.0.1", 17853)),
        ("[::1]:80", ("::1", 80)),
        (":9", ("127.0.0.1", 9)),
        ("host:0", ("host", 0)),
    ],
)
def test_addresses_to_listen_on(listen, wanted):
    assert address(listen) == wanted


@pytest.mark.parametrize("listen", ["17853", "host", "host:", "host:x", "host:70000", "::1:80", ""])
def test_what_is_no_address_is_refused_with_an_example(listen):
    with pytest.raises(ListenInvalid, match=r"127\.0\.0\.1:17853"):
        address(listen)


# --- browsers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:17853", 200),
        ("localhost:17853", 200),
        ("LOCALHOST", 200),
        ("[::1]:17853", 200),
        ("10.1.2.3:17853", 200),
        ("watch.example", 200),
        ("gpu-7.internal:17853", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("evil.example:17853", 421),
        ("", 421),
        ("127.0.0.1@evil.example", 421),
        ("localhost:x", 421),
        ("watch.example, evil.example", 421),
    ],
)
def test_only_hosts_of_ours_are_answered_so_that_names_cannot_be_rebound(story, host, status):
    client = story.client(external_url="https://watch.example/sgl", allowed_hosts=("gpu-7.internal",))

    assert client.get("/api/v1/status", headers={"host": host}).status_code == status


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
    ],
)
def test_pages_of_other_sites_are_refused_whatever_token_they_bring(story, headers):
    for method in ("GET", "POST"):
        answer = story.client(WRITE).request(
            method,
            "/api/v1/silences",
            headers=headers,
            json={"matchers": {"server": "chat"}, "reason": "r", "duration_s": 60},
        )
        assert answer.status_code == 403
    assert story.ledger.silences() == []


def test_a_click_on_a_link_from_elsewhere_opens_the_page(story):
    click = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}

    assert story.client().get("/", headers=click).status_code == 200
    assert story.client().get("/", headers={**click, "sec-fetch-dest": "iframe"}).status_code == 403


def test_our_own_page_may_ask(story):
    own = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "origin": HOST}

    assert story.client(WRITE).post("/api/v1/findings/cause/acknowledgement", json={}, headers=own).status_code == 200


def test_no_answer_opens_anything_to_other_origins(story):
    for path in ("/", "/docs", "/api/v1/findings", "/metrics", "/healthz", "/nothing"):
        headers = story.client().get(path, headers={"origin": HOST}).headers
        assert not [name for name in headers if name.startswith("access-control-")]
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe-inline" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "set-cookie" not in headers
        assert "server" not in headers


def test_a_preflight_is_not_answered_with_permission(story):
    answer = story.client().options("/api/v1/silences", headers={"origin": "https://evil.example", "access-control-request-method": "POST"})

    assert answer.status_code in (401, 403, 405)


def test_the_pages_nonce_is_used_once(story):
    nonces = {re.search(r"'nonce-([^']+)'", story.client().get("/").headers["content-security-policy"])[1] for _ in range(5)}

    assert len(nonces) == 5


# --- sizes --------------------------------------------------------------------------------------------------------


def test_a_body_beyond_the_limit_is_refused_with_or_without_its_length_announced(story):
    client = story.client(WRITE, limits=Limits(body_bytes=100))

    assert client.post("/api/v1/silences", content=b"x" * 101).status_code == 413
    assert client.post("/api/v1/silences", content=iter([b"x" * 60, b"x" * 60])).status_code == 413
    assert client.post("/api/v1/silences", headers={"content-length": "-5"}, content=b"").status_code == 413


@pytest.mark.parametrize("body", [b"[" * 60_000, b'{"matchers":' * 5000, b"\xff\xfe", b'{"matchers": {"server": "\\ud800"}}', b"NaN"])
def test_hostile_bodies_are_answered_with_a_problem(story, body):
    answer = story.client(WRITE).post("/api/v1/silences", content=body, headers={"content-type": "application/json"})

    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_header_that_comes_twice_is_refused(story):
    headers = [("authorization", "Bearer a"), ("authorization", f"Bearer {story.tokens[WRITE]}")]

    assert story.client().get("/api/v1/status", headers=headers).status_code == 400


# --- what never leaves --------------------------------------------------------------------------------------------


def test_no_answer_holds_a_token_and_no_error_quotes_what_was_sent(story):
    text = story.tokens[WRITE]
    client = story.client(WRITE)
    for path in (
        "/",
        "/docs",
        "/openapi.json",
        "/metrics",
        "/api/v1/status",
        f"/api/v1/findings?topic={text}&x={text}",
        "/nothing",
    ):
        answer = client.get(path)
        assert text not in answer.text
        assert digest(text) not in answer.text
    refused = client.post("/api/v1/silences", json={"reason": "password=hunter2", "matchers": {"x": "hunter2"}})
    assert refused.status_code == 422
    assert "hunter2" not in refused.text


def test_process_names_of_the_machine_are_not_shown(daemon):
    from sglang_watchdog.model.observation import GpuProcess

    daemon.board.add_sample(material.sample(processes=(GpuProcess(pid=1, name="python secret.py --key hunter2"),)))

    for path in ("/", "/api/v1/gpus", "/api/v1/gpus/0/samples", "/metrics"):
        assert "hunter2" not in daemon.client().get(path).text


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</pre></main><script>x</script>",
    "javascript:alert(1)",
    "\u202egnol\u202c",
    "\x1b[31mred\x1b[0m",
    "'; DROP TABLE findings;--",
    "{{7*7}}${7*7}",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_log_text_stays_text_on_the_page(daemon, text):
    from dataclasses import replace

    line = replace(material.LINE, text=text, source=text)
    daemon.tell(
        material.moved(model=text),
        material.fired(
            text,
            title=text,
            summary=text,
            remediation=text,
            explanation=text,
            references=(text,),
            ranks=(text,),
            evidence=(
                line,
                replace(material.EVIDENCE[1], awaited=text, witness=line),
                replace(material.EVIDENCE[2], metric=text),
                replace(material.EVIDENCE[3], name=text, value={text: text}, source=text),
            ),
        ),
    )
    daemon.board.add_sample(material.sample(name=text, uuid=text))
    daemon.board.add_sample(material.sample(1, error=text))
    daemon.board.set_sources([material.source(text, why=text, do=text)])

    page = daemon.client().get("/").text

    without_ours = re.sub(r"<(script|style) nonce=\"[^\"]+\">.*?</\1>", "", page, flags=re.S)
    assert "<script" not in without_ours
    assert "<img" not in without_ours
    assert not [each for each in re.findall(r'(?:href|src)="([^"]*)"', without_ours) if not each.startswith(("data:image/svg", "./"))]
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e]", without_ours)
    assert not re.search(r"\son\w+=", "".join(re.findall(r"<[^>]*>", re.sub(r'"[^"]*"', '""', without_ours))))


@given(st.text())
def test_escaped_text_holds_no_markup_and_reads_back(text):
    escaped = html.text(text)

    assert not set(escaped) & set("<>\"'")


def test_the_daemons_own_log_holds_no_token(story, tmp_path):
    """Everything a request can make uvicorn and us write, at level DEBUG, into a file that is then searched."""
    script = tmp_path / "shout.py"
    script.write_text(f"""
import logging, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
sys.path[:0] = {sys.path!r}
from sglang_watchdog.sinks.ledger import Ledger
from sglang_watchdog.sinks.metrics import BoardCollector
from sglang_watchdog.sinks.state import Board
from sglang_watchdog.sinks.web.broadcast import Broadcast
from sglang_watchdog.sinks.web.parts import Parts
from sglang_watchdog.sinks.web.tokens import TokenStore, TokenScope, make
from sinks import material
from sinks.live import Raw, serving
token, kept = make("ada", [TokenScope.WRITE])
board = Board(version="1", started_at_s=0.0, servers=["chat"])
async def broken():
    raise RuntimeError("a fault of ours")
parts = Parts(board=board, ledger=Ledger(None), library=lambda: material.LIBRARY, collector=BoardCollector(board),
              broadcast=Broadcast(), tokens=TokenStore([kept]), reload=broken)
with serving(parts) as address:
    for path, method in (("/api/v1/findings?x=" + token, "GET"), ("/-/reload", "POST"), ("/" + token, "GET")):
        with Raw(address) as client:
            client.send(f"{{method}} {{path}} HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nAuthorization: Bearer {{token}}\\r\\n"
                        f"Content-Length: 0\\r\\nConnection: close\\r\\n\\r\\n")
            client.is_cut()
    with Raw(address) as client:
        client.send("NONSENSE " + token + "\\r\\n\\r\\n")
        client.is_cut()
parts.ledger.close()
print("done")
open({str(tmp_path / "token")!r}, "w").write(token)
""")
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)

    assert ran.stdout.endswith("done\n"), ran.stderr
    assert "a fault of ours" in ran.stdout + ran.stderr
    assert Path(tmp_path / "token").read_text() not in ran.stdout + ran.stderr
