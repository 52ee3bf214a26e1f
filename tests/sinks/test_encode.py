"""What the product says as JSON, byte for byte."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_watchdog.model.finding import FactEvidence
from sglang_watchdog.model.words import ScopeKind, Severity, State
from sglang_watchdog.sinks import decode, encode
from sinks import material


@pytest.mark.parametrize(
    ("at_s", "text"),
    [
        (material.T0, "2026-02-19T08:10:03Z"),
        (material.T0 + 0.25, "2026-02-19T08:10:03.250Z"),
        (0.0, "1970-01-01T00:00:00Z"),
        (-0.5, "1969-12-31T23:59:59.500Z"),
        (material.T0 + 0.9996, "2026-02-19T08:10:04Z"),
        (1e300, "9999-12-31T23:59:59.999Z"),
        (-6.2e10, "0005-04-19T09:46:40Z"),
        (None, None),
        (float("nan"), None),
    ],
)
def test_times_are_rfc3339_in_seconds_or_milliseconds_when_fractional(at_s, text):
    assert encode.time(at_s) == text


def test_a_finding_has_the_contracts_keys_in_its_order():
    document = encode.finding(material.finding())

    contract = [
        "id",
        "signature",
        "topic",
        "severity",
        "state",
        "server",
        "run",
        "scope",
        "title",
        "summary",
        "first_seen",
        "last_seen",
        "count",
        "evidence",
        "explains",
        "explained_by",
        "explanation",
        "remediation",
        "references",
    ]
    assert [key for key in document if key in contract] == contract
    assert document["evidence"][0] == {
        "kind": "line",
        "source": "server.log",
        "line": 28,
        "offset": 9123,
        "text": material.LINE.text,
        "at": "2026-02-19T08:10:03Z",
    }
    assert document["evidence"][1]["witness"]["line"] == 17
    assert document["evidence"][1]["until"] == "2026-02-19T08:11:20.250Z"
    assert document["evidence"][2] == {
        "kind": "samples",
        "metric": "power_ratio",
        "gpus": [0, 1],
        "from": "2026-02-19T08:10:03Z",
        "until": "2026-02-19T08:10:18Z",
        "median": 0.42,
        "n": 480,
    }


def test_the_report_of_check_has_the_contracts_top_level():
    report = encode.report(
        version="0.1.0",
        library="1",
        sources=[],
        runs=[material.run()],
        findings=[material.finding()],
        verdicts=material.VERDICTS,
    )

    assert list(report) == ["schema", "tool", "sources", "runs", "findings", "coverage"]
    assert report["coverage"][1] == {
        "signature": "moe-triton-silent",
        "topic": "moe.triton-inactive",
        "run": "run-1",
        "verdict": "unknown",
        "because": "the log was joined late",
        "do": "restart the server while the watchdog runs",
    }
    assert report["runs"][0]["facts"] == {"run.weights_gib": 60.1}


def test_the_order_in_which_facts_were_learned_does_not_show():
    """A probe that answers a moment later must not change the bytes."""
    first, second = (FactEvidence(name=name, value=1, source="s") for name in ("run.a", "run.b"))

    one = material.run(facts={"run.a": first, "run.b": second}, args={"x": 1, "y": {"b": 1, "a": 2}})
    other = material.run(facts={"run.b": second, "run.a": first}, args={"y": {"a": 2, "b": 1}, "x": 1})

    assert encode.dumps(encode.run(one)) == encode.dumps(encode.run(other))


def test_infinities_and_undecodable_text_never_make_invalid_json():
    document = encode.run(material.run(args={"a": float("inf"), "b": [float("nan")]}, load={"x": float("inf")}, model="\udc80"))

    read = json.loads(encode.dumps(document).encode("utf-8"))

    assert read["args"] == {"a": "inf", "b": ["nan"]}
    assert read["load"] == {"x": None}
    assert read["model"] == "?"


milliseconds = st.integers(-(10**13), 10**14).map(lambda at_ms: at_ms / 1000)


@given(
    first_s=st.none() | milliseconds,
    count=st.integers(0, 10**9),
    text=st.text(),
    severity=st.sampled_from(Severity),
    state=st.sampled_from(State),
    scope=st.sampled_from(ScopeKind),
    uuid=st.none() | st.text(),
)
def test_a_finding_read_back_from_the_ledger_is_the_same(*, first_s, count, text, severity, state, scope, uuid):
    written = material.finding(first_seen_s=first_s, count=count, summary=text, severity=severity, state=state, scope=scope, gpu_uuid=uuid)

    read = decode.finding(json.loads(encode.dumps(encode.finding(written))))

    assert encode.finding(read) == encode.finding(written)
    assert read.first_seen_s == pytest.approx(written.first_seen_s, abs=5e-4) if first_s is not None else read.first_seen_s is None


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(ValueError, match="no zone"):
        decode.time("2026-02-19T08:10:03")
