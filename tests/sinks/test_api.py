"""The HTTP contract: every list under its noun, in pages, with filters; errors as problem details."""

import json
from typing import Any

import pytest

from sglang_watchdog.model.words import Phase, Severity, State
from sglang_watchdog.sinks.state import Reload
from sglang_watchdog.sinks.web import schema
from sglang_watchdog.sinks.web.tokens import TokenScope
from sinks import material

WRITE = TokenScope.WRITE


def ids(answer) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [each["id"] for each in answer.json()["findings"]]


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/api/v1/findings", schema.FindingPage),
        ("/api/v1/findings/cause", schema.Finding),
        ("/api/v1/runs", schema.RunPage),
        ("/api/v1/runs/run-1", schema.Run),
        ("/api/v1/runs/run-1/facts", schema.FactPage),
        ("/api/v1/runs/run-1/flags", schema.RunFlags),
        ("/api/v1/runs/run-1/compare/run-1", schema.Comparison),
        ("/api/v1/gpus", schema.GpuPage),
        ("/api/v1/gpus/GPU-0000", schema.Gpu),
        ("/api/v1/gpus/1", schema.Gpu),
        ("/api/v1/gpus/GPU-0001/samples", schema.SamplePage),
        ("/api/v1/signatures", schema.SignaturePage),
        ("/api/v1/signatures/moe-config-missing", schema.Signature),
        ("/api/v1/coverage", schema.CoveragePage),
        ("/api/v1/sources", schema.SourcePage),
        ("/api/v1/silences", schema.SilencePage),
        ("/api/v1/status", schema.DaemonStatus),
        ("/healthz", schema.Health),
        ("/readyz", schema.Health),
        ("/livez", schema.Health),
        ("/-/healthy", schema.Health),
        ("/-/ready", schema.Health),
    ],
)
def test_every_answer_has_the_shape_that_openapi_describes(story, path, shape):
    answer = story.client().get(path)

    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    shape.model_validate_json(answer.content, strict=False)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/findings/none",
        "/api/v1/runs/none",
        "/api/v1/runs/none/facts",
        "/api/v1/runs/none/flags",
        "/api/v1/runs/run-1/compare/none",
        "/api/v1/gpus/none",
        "/api/v1/gpus/none/samples",
        "/api/v1/signatures/none",
        "/nothing",
        "/api/v1/findings/..%2f..%2fetc%2fpasswd",
        "/api/v1/nothing",
    ],
)
def test_what_is_not_there_is_a_problem_document(story, path):
    answer = story.client().get(path)

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    problem = schema.ProblemDetails.model_validate(answer.json())
    assert problem.type == "urn:sglang-watchdog:problem:not-found"


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("", ["over", "effect", "cause"]),
        ("state=firing", ["effect", "cause"]),
        ("state=firing&state=resolved", ["over", "effect", "cause"]),
        (
            "server=chat&severity=warning&topic=moe.config-missing&signature=moe-config-missing&run=run-1",
            ["over", "effect", "cause"],
        ),
        ("server=other", []),
        ("severity=critical", []),
        ("since=2026-02-19T08:11:03Z", ["over"]),
        ("since=2026-02-19T09:11:03%2B01:00", ["over"]),
        ("run=%27%20OR%201=1--", []),
    ],
)
def test_findings_are_filtered_and_newest_first(story, query, wanted):
    assert ids(story.client().get(f"/api/v1/findings?{query}")) == wanted


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ("limit=0", "query.limit"),
        ("limit=1001", "query.limit"),
        ("cursor=x", "query.cursor"),
        ("state=fired", "query.state.0"),
        ("since=yesterday", "query.since"),
        ("since=2026-02-19T08:11:03", "query.since"),
        ("stat=firing", "query.stat"),
    ],
)
def test_a_query_that_is_not_understood_is_refused_and_says_where(story, query, where):
    """Ignoring a misspelt filter would answer another question than the one asked."""
    answer = story.client().get(f"/api/v1/findings?{query}")

    assert answer.status_code == 422
    assert answer.json()["type"] == "urn:sglang-watchdog:problem:invalid-request"
    assert [error["where"] for error in answer.json()["errors"]] == [where]


def test_pages_neither_repeat_nor_skip_while_findings_keep_coming(daemon):
    daemon.tell(*(material.fired(f"f{n}") for n in range(25)))
    client, seen, cursor = daemon.client(), [], None
    while True:
        page = client.get("/api/v1/findings", params={"limit": 10, **({"cursor": cursor} if cursor else {})}).json()
        seen += [each["id"] for each in page["findings"]]
        daemon.tell(material.fired(f"later{len(seen)}"), material.fired("f3", was=State.FIRING, count=len(seen)))
        cursor = page["next_cursor"]
        if cursor is None:
            break

    assert seen == [f"f{n}" for n in reversed(range(25))]


def test_lists_in_memory_come_in_pages_too(story):
    client = story.client()
    first = client.get("/api/v1/gpus?limit=1").json()
    second = client.get(f"/api/v1/gpus?limit=1&cursor={first['next_cursor']}").json()

    assert [first["gpus"][0]["gpu"], second["gpus"][0]["gpu"], second["next_cursor"]] == [0, 1, None]


def test_a_finding_in_the_api_is_the_finding_of_check_with_what_people_said(story):
    from sglang_watchdog.sinks import encode

    document = story.client().get("/api/v1/findings/cause").json()

    overlay = {name: document.pop(name) for name in ("acknowledgement", "silenced", "display_state")}
    assert document == json.loads(encode.dumps(encode.finding(material.finding("cause", explains=("effect",)))))
    assert overlay == {"acknowledgement": None, "silenced": None, "display_state": "firing"}


def test_an_acknowledgement_is_shown_and_ends_with_the_finding(story):
    client = story.client(WRITE)
    answer = client.post("/api/v1/findings/cause/acknowledgement", json={"note": "restart tonight"})
    assert answer.json() == {
        "by": "write-token",
        "note": "restart tonight",
        "at": "2026-02-19T08:11:43Z",
        "until": None,
    }
    assert client.get("/api/v1/findings/cause").json()["display_state"] == "acknowledged"

    story.tell(material.resolved("cause"), material.fired("cause", at_s=material.T0 + 120, reopened=1))

    assert client.get("/api/v1/findings/cause").json()["display_state"] == "firing"
    assert [(command.action, command.target) for command in story.commands] == [("acknowledge", "cause")]


def test_an_acknowledgement_lapses_at_its_time(story):
    client = story.client(WRITE)
    client.post("/api/v1/findings/cause/acknowledgement", json={"by": "ada", "until": "2026-02-19T08:20:00Z"})
    assert client.get("/api/v1/findings/cause").json()["acknowledgement"]["by"] == "ada"

    story.now_s += 600

    assert client.get("/api/v1/findings/cause").json()["acknowledgement"] is None


def test_only_what_is_open_can_be_acknowledged(story):
    client = story.client(WRITE)

    assert client.post("/api/v1/findings/over/acknowledgement", json={}).status_code == 409
    assert client.post("/api/v1/findings/none/acknowledgement", json={}).status_code == 404
    assert client.delete("/api/v1/findings/cause/acknowledgement").status_code == 404
    client.post("/api/v1/findings/cause/acknowledgement", json={})
    assert client.delete("/api/v1/findings/cause/acknowledgement").status_code == 204
    assert client.get("/api/v1/findings/cause").json()["display_state"] == "firing"


def test_a_silence_covers_what_matches_from_its_start_to_its_end_and_stays_on_record(story):
    client = story.client(WRITE)
    made = client.post("/api/v1/silences", json={"matchers": {"server": "chat", "gpu": "1"}, "reason": "tuning", "duration_s": 600})
    assert made.status_code == 201
    schema.Silence.model_validate(made.json())
    assert client.get("/api/v1/findings/cause").json()["display_state"] == "silenced"
    assert client.get("/api/v1/findings/over").json()["display_state"] == "resolved"

    story.now_s += 600

    assert client.get("/api/v1/findings/cause").json()["display_state"] == "firing"
    assert [each["state"] for each in client.get("/api/v1/silences").json()["silences"]] == ["expired"]
    assert client.delete(f"/api/v1/silences/{made.json()['id']}").status_code == 404


def test_a_silence_that_does_not_match_in_every_point_silences_nothing(story):
    client = story.client(WRITE)
    client.post(
        "/api/v1/silences",
        json={"matchers": {"server": "chat", "severity": "critical"}, "reason": "r", "duration_s": 60},
    )
    client.post("/api/v1/silences", json={"matchers": {"gpu": "7"}, "reason": "r", "duration_s": 60})

    assert client.get("/api/v1/findings/cause").json()["silenced"] is None


def test_a_silence_can_be_ended_early(story):
    client = story.client(WRITE)
    id = client.post("/api/v1/silences", json={"matchers": {"finding": "cause"}, "reason": "r", "duration_s": 600}).json()["id"]
    assert client.delete(f"/api/v1/silences/{id}").status_code == 204

    assert client.get("/api/v1/findings/cause").json()["silenced"] is None
    assert [command.action for command in story.commands] == ["silence", "unsilence"]


@pytest.mark.parametrize(
    "body",
    [
        {"matchers": {}, "reason": "r", "duration_s": 60},
        {"matchers": {"color": "red"}, "reason": "r", "duration_s": 60},
        {"matchers": {"server": "chat"}, "duration_s": 60},
        {"matchers": {"server": "chat"}, "reason": "r", "duration_s": 0},
        [],
        "x",
        None,
    ],
)
def test_a_silence_that_would_cover_everything_or_nothing_is_refused(story, body):
    assert story.client(WRITE).post("/api/v1/silences", json=body).status_code == 422


@pytest.mark.parametrize("path", ["/api/v1/", "/api/v1"])
def test_the_root_of_the_api_lists_what_there_is(story, path):
    index = story.client().get(path).json()

    known = {each["path"]: each["methods"] for each in index["resources"]}
    assert known["/api/v1/silences"] == ["GET", "POST"]
    assert set(known) == {each for each in story.client().get("/openapi.json").json()["paths"] if each.startswith("/api/v1/")} - {"/api/v1/"}
    assert all(each["summary"] for each in index["resources"])
    prefixed = story.client(root_path="/gpu-7").get("/gpu-7" + path).json()
    assert {each["path"] for each in prefixed["resources"]} == {f"/gpu-7{each}" for each in known}


def test_reload_answers_with_what_was_wrong(story):
    client = story.client(WRITE)
    assert client.post("/-/reload").json() == {
        "successful": True,
        "at": "2026-02-19T08:10:03Z",
        "error": "",
        "changed": [],
        "needs_restart": [],
    }

    story.outcome = Reload(
        was_successful=False,
        at_s=material.T0,
        error="watchdog.yaml:3:1: unknown key `serverz`: did you mean `servers`?",
    )
    refused = client.post("/-/reload")

    assert refused.status_code == 422
    assert "serverz" in refused.json()["detail"]


def test_ready_says_what_is_awaited_and_alive_does_not_depend_on_it(story):
    story.board.set_ready("the log of chat cannot be opened")

    assert story.client().get("/readyz").status_code == 503
    assert story.client().get("/readyz").json()["because"] == "the log of chat cannot be opened"
    assert story.client().get("/healthz").status_code == 200
    assert story.client().head("/-/ready").status_code == 503


def test_samples_can_be_asked_since_a_time(story):
    answer = story.client().get("/api/v1/gpus/0/samples?since=2026-02-19T08:10:04Z").json()

    assert [(each["at"], each["power_w"]) for each in answer["samples"]] == [("2026-02-19T08:10:04Z", 200.0)]


def test_two_runs_are_compared_by_what_differs(daemon):
    graphs_off = {"args": {"disable_cuda_graph": True, "tp_size": 1}, "load": {"decode_tokens_per_s": 4905.0}}
    graphs_on = {"args": {"disable_cuda_graph": False, "tp_size": 1}, "load": {"decode_tokens_per_s": 20_990.0}}
    daemon.tell(
        material.moved("a", **graphs_off),
        material.fired("x", run="a", signature="graphs-off"),
        material.moved("b", started_at_s=material.T0 + 9, **graphs_on),
    )

    answer = daemon.client().get("/api/v1/runs/a/compare/b").json()

    assert answer["args"] == [{"name": "disable_cuda_graph", "a": True, "b": False, "ratio": None}]
    assert answer["load"] == [{"name": "decode_tokens_per_s", "a": 4905.0, "b": 20990.0, "ratio": 4.2793}]
    assert [each["signature"] for each in answer["findings_only_a"]] == ["graphs-off"]
    assert answer["findings_only_b"] == []


def test_the_flags_of_a_run_stay_on_record(daemon):
    """A daemon that began anew tells of the run before it has judged its flags again."""
    daemon.tell(material.moved())
    before = daemon.client().get("/api/v1/runs/run-1/flags").json()
    daemon.tell(material.moved(at_s=material.T0 + 20, flags=material.FLAGS), material.moved(at_s=material.T0 + 30, phase=Phase.IDLE))
    answer = daemon.client().get("/api/v1/runs/run-1/flags")

    assert (before["flags"], "not judged yet" in before["because"]) == ([], True)
    schema.RunFlags.model_validate_json(answer.content, strict=False)
    (flag,) = answer.json()["flags"]
    assert (flag["asked"], flag["runs_with"], flag["verdict"]) == ("flashinfer", "triton", "overridden")
    assert answer.json()["decisions"][0]["evidence"][0]["line"] == 28


def test_the_status_counts_what_fires_on_each_server(story):
    status = story.client().get("/api/v1/status").json()

    assert status["servers"] == [
        {
            "name": "chat",
            "phase": "serving",
            "run": "run-1",
            "model": "Qwen3-30B",
            "sglang_version": {"min": "0.5.8", "max": "0.5.8", "source": "stated"},
            "firing": {"critical": 0, "warning": 2, "info": 0},
        }
    ]
    assert status["ledger"]["durable"] is True


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, operation) for path, methods in document["paths"].items() for method, operation in methods.items()]


def test_the_openapi_document_covers_the_contract(story):
    document = story.client().get("/openapi.json").json()

    assert document["openapi"].startswith("3.1")
    assert {path for path, _, _ in operations(document)} >= {
        "/metrics",
        "/healthz",
        "/readyz",
        "/livez",
        "/-/healthy",
        "/-/ready",
        "/-/reload",
        "/api/v1/findings",
        "/api/v1/findings/{id}",
        "/api/v1/findings/{id}/acknowledgement",
        "/api/v1/silences",
        "/api/v1/silences/{id}",
        "/api/v1/runs",
        "/api/v1/runs/{id}",
        "/api/v1/runs/{id}/facts",
        "/api/v1/runs/{a}/compare/{b}",
        "/api/v1/gpus",
        "/api/v1/gpus/{uuid}",
        "/api/v1/gpus/{uuid}/samples",
        "/api/v1/signatures",
        "/api/v1/signatures/{id}",
        "/api/v1/coverage",
        "/api/v1/sources",
        "/api/v1/changes",
        "/api/v1/status",
    }
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))
    assert all("-" not in name and "__" not in name for name in names)


def test_severities_in_the_schema_are_the_words_of_the_model(story):
    document = story.client().get("/openapi.json").json()

    assert document["components"]["schemas"]["Severity"]["enum"] == [each.value for each in Severity]


@pytest.mark.parametrize(
    ("matchers", "where", "hint"),
    [
        ({"server": "chatt"}, "body.matchers.server", "Did you mean `chat`?"),
        ({"topic": "moe.config-mising"}, "body.matchers.topic", "Did you mean `moe.config-missing`?"),
        ({"signature": "moe-confg-missing"}, "body.matchers.signature", "Did you mean `moe-config-missing`?"),
        ({"severity": "error"}, "body.matchers.severity", "critical, info, warning"),
        ({"gpu": "GPU-0000"}, "body.matchers.gpu", "index"),
        ({"finding": "none"}, "body.matchers.finding", "/api/v1/findings"),
        ({"run": "none"}, "body.matchers.run", "/api/v1/runs"),
        ({"signature": "moe-config-missing", "topic": "crash.scheduler"}, "body.matchers.topic", "moe.config-missing"),
    ],
)
def test_a_silence_for_what_cannot_exist_is_refused_with_the_nearest_word(story, matchers, where, hint):
    """Else somebody relies on it and is called at night all the same."""
    client = story.client(WRITE)
    answer = client.post("/api/v1/silences", json={"matchers": matchers, "reason": "r", "duration_s": 60})

    assert (answer.status_code, answer.json()["type"]) == (422, "urn:sglang-watchdog:problem:matches-nothing")
    assert [each["where"] for each in answer.json()["errors"]] == [where]
    assert hint in answer.json()["errors"][0]["message"]
    assert client.get("/api/v1/silences").json()["silences"] == []


def test_what_has_no_finding_yet_or_a_finding_of_a_signature_that_is_gone_can_be_silenced(story):
    story.tell(material.fired("old", topic="own.topic-of-yesterday"))
    for matchers in ({"topic": "crash.scheduler"}, {"topic": "own.topic-of-yesterday"}, {"gpu": "7"}):
        body = {"matchers": matchers, "reason": "r", "duration_s": 60}
        assert story.client(WRITE).post("/api/v1/silences", json=body).status_code == 201


def test_head_is_get_without_the_body_and_what_is_not_possible_names_what_is(story):
    client = story.client(WRITE)
    for path in ("/", "/docs", "/openapi.json", "/api/v1", "/api/v1/findings", "/api/v1/runs/run-1", "/metrics", "/readyz"):
        got, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (got.status_code, b""), path
        assert int(head.headers["content-length"]) > 0, path
    assert client.head("/api/v1/findings/none").status_code == 404
    for method, path, allowed in (
        ("PUT", "/api/v1/findings", "GET, HEAD"),
        ("PATCH", "/api/v1/silences", "GET, HEAD, POST"),
        ("GET", "/api/v1/findings/cause/acknowledgement", "POST, DELETE"),
        ("GET", "/-/reload", "POST"),
        ("HEAD", "/api/v1/changes", "GET"),
    ):
        answer = client.request(method, path)
        assert (answer.status_code, answer.headers.get("allow")) == (405, allowed), (method, path)
        assert answer.headers["content-type"] == "application/problem+json"
