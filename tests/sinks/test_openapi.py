"""The API document that others generate clients from: committed, so that a change of it is seen and meant."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglang_watchdog.sinks.web import app, examples, schema

COMMITTED = Path(__file__).parents[2] / "deploy" / "api" / "openapi.json"
SHAPES = {
    "list_findings": schema.FindingPage,
    "get_finding": schema.Finding,
    "acknowledge_finding": schema.Acknowledgement,
    "list_silences": schema.SilencePage,
    "create_silence": schema.Silence,
    "list_runs": schema.RunPage,
    "get_run": schema.Run,
    "list_facts": schema.FactPage,
    "get_run_flags": schema.RunFlags,
    "compare_runs": schema.Comparison,
    "list_gpus": schema.GpuPage,
    "get_gpu": schema.Gpu,
    "list_samples": schema.SamplePage,
    "list_signatures": schema.SignaturePage,
    "get_signature": schema.Signature,
    "list_coverage": schema.CoveragePage,
    "list_sources": schema.SourcePage,
    "reload": schema.ReloadStatus,
    "get_status": schema.DaemonStatus,
    "list_resources": schema.Index,
    "healthz": schema.Health,
    "livez": schema.Health,
    "healthy": schema.Health,
    "readyz": schema.Health,
    "ready": schema.Health,
}


def written(daemon) -> str:
    return json.dumps(app.create(daemon.parts()).openapi(), indent=1, ensure_ascii=False) + "\n"


def test_the_committed_document_is_what_the_daemon_serves(daemon):
    """If the change is meant: `python tests/sinks/test_openapi.py` writes it anew; say in CHANGELOG.md what clients
    will notice."""
    assert json.loads(COMMITTED.read_text()) == json.loads(written(daemon))


@pytest.mark.parametrize("operation", SHAPES)
def test_every_example_has_the_shape_it_is_an_example_of(operation):
    SHAPES[operation].model_validate(examples.answers()[operation])


def test_every_json_answer_has_an_example(daemon):
    document = json.loads(written(daemon))
    without = [
        operation["operationId"]
        for methods in document["paths"].values()
        for operation in methods.values()
        for status, answer in operation["responses"].items()
        if status in ("200", "201")
        and "application/json" in answer.get("content", {})
        and "example" not in answer["content"]["application/json"]
    ]

    assert without == []


def test_every_reference_in_the_document_leads_somewhere(daemon):
    text = written(daemon)
    names = set(json.loads(text)["components"]["schemas"])
    referenced = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}

    assert referenced <= names


def test_every_topic_and_signature_in_an_example_exists(daemon, library):
    """Somebody copies it."""
    named = {key: found for key, known in (("topic", library.topics), ("signature", library.signatures)) if (found := set(_values(json.loads(written(daemon)), key)) - set(known))}

    assert named == {}


def _values(node: object, key: str) -> Iterator[str]:
    """Every text under `key` anywhere in the document; descriptions of fields are no texts."""
    if isinstance(node, dict):
        yield from [node[key]] if isinstance(node.get(key), str) else []
        for each in node.values():
            yield from _values(each, key)
    elif isinstance(node, list):
        for each in node:
            yield from _values(each, key)


def test_the_documentation_names_the_address_under_which_it_was_asked_or_the_configured_one(daemon):
    assert "curl http://127.0.0.1:17999/api/v1/findings" in daemon.client().get("/docs", headers={"host": "127.0.0.1:17999"}).text
    assert "curl https://dog.example/w/api/v1/runs" in daemon.client(external_url="https://dog.example/w/", root_path="/w").get("/docs").text
    assert "curl http://localhost:80/w/api/v1/runs" in daemon.client(root_path="/w").get("/w/docs", headers={"host": "localhost:80"}).text


def test_the_documentation_page_shows_every_operation_and_loads_nothing(daemon):
    page = daemon.client().get("/docs").text

    for methods in json.loads(written(daemon))["paths"].values():
        for operation in methods.values():
            assert operation["operationId"] in page
    assert "src=" not in page
    assert "http://" not in page.replace("http://127.0.0.1:17853", "").replace("http://www.w3.org/2000/svg", "")


if __name__ == "__main__":
    from sglang_watchdog.sinks.ledger import Ledger
    from sglang_watchdog.sinks.state import Board
    from sglang_watchdog.sinks.web.broadcast import Broadcast
    from sinks.conftest import Daemon

    board, ledger = Board(version="", started_at_s=0.0), Ledger(None)
    COMMITTED.parent.mkdir(parents=True, exist_ok=True)
    COMMITTED.write_text(written(Daemon(board, ledger, Broadcast(), {}, ())))
    ledger.close()
