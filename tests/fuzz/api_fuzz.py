"""Throws requests made from the OpenAPI document at the running HTTP surface, with every check schemathesis has.

Usage: api_fuzz.py [REQUESTS]        (5000 if left out)

Prints how many requests were sent, which operations were answered 2xx, the failures, and the memory before and after.
Ends with 1 if anything failed or an operation never succeeded.
"""

import re
import resource
import secrets
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema_rs
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.core.failures import AcceptedNegativeData, FailureGroup
from schemathesis.openapi.checks import RejectedPositiveData

from sglang_watchdog.model.words import State
from sglang_watchdog.sinks.ledger import Ledger
from sglang_watchdog.sinks.ledger_writes import Acknowledgement, Silence
from sglang_watchdog.sinks.metrics import BoardCollector
from sglang_watchdog.sinks.state import Board, Reload
from sglang_watchdog.sinks.web.broadcast import Broadcast
from sglang_watchdog.sinks.web.limits import Limits
from sglang_watchdog.sinks.web.parts import Parts, WebSettings
from sglang_watchdog.sinks.web.tokens import TokenScope, TokenStore, make
from sinks import material
from sinks.live import Raw, serving

# What the document cannot know: names of things that exist, so that each operation is also answered with success.
KNOWN = {
    "list_facts": {"id": "run-1"},
    "get_run_flags": {"id": "run-1"},
    "get_run": {"id": "run-1"},
    "compare_runs": {"a": "run-1", "b": "run-2"},
    "get_finding": {"id": "f1"},
    "get_gpu": {"uuid": "GPU-0000"},
    "list_samples": {"uuid": "0"},
    "get_signature": {"id": "moe-config-missing"},
    "acknowledge_finding": {"id": "f1"},
}


EXISTING = {  # what a silence can be for
    "server": {"chat"},
    "topic": set(material.TOPICS),
    "signature": set(material.LIBRARY.signatures),
    "severity": {"critical", "warning", "info"},
    "run": {"run-1", "run-2"},
    "finding": {f"f{n}" for n in range(300)},
    "gpu": {str(n) for n in range(1000)},
}

AGREEING = {"signature": material.SIGNATURE.id, "topic": material.SIGNATURE.topic}  # a signature is never of another topic


def filled(directory: Path, token: Any) -> Parts:
    """A daemon's sinks with something in every list."""
    board = Board(version="0", started_at_s=material.T0, servers=["chat"], topics=material.TOPICS, library_version="1")
    broadcast = Broadcast()
    ledger = Ledger(directory / "ledger.db", on_committed=lambda _: broadcast.notify())
    for change in (
        material.moved(),
        material.moved("run-2", started_at_s=material.T0 + 9),
        *(material.fired(f"f{n}") for n in range(300)),
        material.resolved("f7"),
        material.fired("f9", was=State.FIRING, count=3),
    ):
        board.apply(change)
        ledger.commit([change])
    board.add_sample(material.sample())
    board.set_sources([material.source()])
    board.set_coverage("chat", material.VERDICTS)
    board.set_load("chat", material.LOAD)
    board.set_ready()

    async def reload() -> Reload:
        return Reload(at_s=material.T0)

    return Parts(
        board=board,
        ledger=ledger,
        library=lambda: material.LIBRARY,
        collector=BoardCollector(board),
        broadcast=broadcast,
        tokens=TokenStore([token]),
        reload=reload,
        settings=WebSettings(limits=Limits(requests_per_s=1e6, burst=10**6, failures_per_s=1e6, failures_burst=10**6)),
    )


def fuzz(address: tuple[str, int], token: str, wanted: int, parts: Parts) -> tuple[int, Counter[str], list[str]]:
    """Returns the requests sent, the 2xx answers of each operation, and the failures."""
    schema = schemathesis.openapi.from_url(f"http://{address[0]}:{address[1]}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    sent, good, failures = Counter[str](), Counter[str](), []
    by_id = {operation.definition.raw["operationId"]: operation.definition.raw for operation in operations}
    with_input = [each for each in by_id.values() if each.get("parameters") or each.get("requestBody")]
    examples = max(1, wanted // len(with_input))  # those without input are asked a few times only

    def call(case: Any, name: str) -> None:
        if name == "stream_changes":  # else it would, rightly, not end
            case.query = {**(case.query or {}), "duration_s": 0}
        sent[name] += 1
        try:
            answer = case.call(headers={"Authorization": f"Bearer {token}"}, timeout=20)
            good[name] += 200 <= answer.status_code < 300
            case.validate_response(answer)
        except FailureGroup as group:
            failures.extend(
                f"{name}: {failure.title}: {failure.message} [{case.as_curl_command()}]"[:600]
                for failure in group.exceptions
                if not (isinstance(failure, AcceptedNegativeData) and fits_as_sent(failure, answer.request.url, by_id[name], schema.raw_schema))
                and not (isinstance(failure, RejectedPositiveData) and name == "create_silence" and is_for_nothing(case.body["matchers"], answer))
            )

    for operation in operations:
        run_one(operation, examples, call, parts)
    return sum(sent.values()), good, failures


def fits_as_sent(failure: AcceptedNegativeData, url: str, operation: Any, document: Any) -> bool:
    """Whether a query that was broken on purpose is whole again as sent: `server: 0.0` where a list belongs is `server=0.0` in an
    address, and so is the list with the text "0.0"; a null is not sent at all."""
    if not re.search(r"in query$", failure.message, re.MULTILINE) or re.search(r"in (path|header|cookie)|body", failure.message):
        return False
    schemas = {each["name"]: each["schema"] for each in operation.get("parameters", ()) if each["in"] == "query"}
    for name, values in parse_qs(urlsplit(url).query, keep_blank_values=True).items():
        options = schemas[name].get("anyOf", [schemas[name]]) if name in schemas else []
        read = {"array": values, "string": values[0], "integer": int(values[0]) if re.fullmatch(r"-?\d+", values[0]) else None}
        if not any(
            option.get("type") in read
            and (option["type"] == "array" or len(values) == 1)
            and jsonschema_rs.is_valid({**option, "components": document["components"]}, read[option["type"]])
            for option in options
        ):
            return False
    return True


def is_for_nothing(matchers: dict[str, str], answer: Any) -> bool:
    """Whether a silence was refused rightly: the document cannot list the words there are, and the refusal names only those there are not."""
    if answer.json()["type"] != "urn:sglang-watchdog:problem:matches-nothing":
        return False
    refused = {each["where"].removeprefix("body.matchers.") for each in answer.json()["errors"]}
    return all(matchers[name] not in EXISTING[name] for name in refused) and all(matchers[name] in EXISTING[name] for name in matchers.keys() - refused)


def existing(name: str, parts: Parts) -> dict[str, str] | None:
    """Path parameters of something there is, made first where the operation takes it away."""
    if name == "withdraw_acknowledgement":
        parts.ledger.acknowledge(Acknowledgement(finding="f2", author="fuzz", note="", at_s=parts.now())).result(10)
        return {"id": "f2"}
    if name == "end_silence":
        silence = Silence(
            id=secrets.token_hex(8),
            matchers={"server": "none"},
            author="fuzz",
            reason="r",
            starts_s=parts.now(),
            ends_s=parts.now() + 3600,
        )
        parts.ledger.silence(silence).result(10)
        return {"id": silence.id}
    return KNOWN.get(name)


def run_one(operation: Any, examples: int, call: Callable[[Any, str], None], parts: Parts) -> None:
    """Half of the requests fit the document, half break it somewhere."""
    name = operation.definition.raw["operationId"]
    fitting = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    has_input = operation.body or any(True for _ in operation.iter_parameters())
    breaking = operation.as_strategy(generation_mode=GenerationMode.NEGATIVE) if has_input else fitting

    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(made=st.tuples(fitting, st.booleans()) | st.tuples(breaking, st.just(False)))
    def run(made: tuple[Any, bool]) -> None:
        case, is_known = made
        if is_known and case.path_parameters:
            case.path_parameters = existing(name, parts) or case.path_parameters
        if is_known and name == "create_silence":  # half of the fitting ones are for something there is
            case.body = {**case.body, "matchers": {each: AGREEING.get(each) or min(EXISTING[each]) for each in case.body["matchers"]}}
        call(case, name)

    run()


def main(wanted: int) -> int:
    text, token = make("fuzz", [TokenScope.WRITE])
    with tempfile.TemporaryDirectory() as directory:
        parts = filled(Path(directory), token)
        with serving(parts) as address:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            sent, good, failures = fuzz(address, text, wanted, parts)
            with Raw(address) as client:
                client.get("/healthz")
                healthy = client.head()[0] == 200
            threads = threading.active_count()
        parts.ledger.close()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    silent = [name for name, count in good.items() if not count]
    for failure in list(dict.fromkeys(failures))[:20]:
        print("FAILED", failure)
    print(f"{sent} requests, {len(good)} operations, 2xx: {dict(sorted(good.items()))}")
    print(
        f"never 2xx: {silent or 'none'}; failures: {len(failures)}; healthy afterwards: {healthy}; threads: {threads};"
        f" peak memory {before // 1024} -> {after // 1024} MiB (with the fuzzer in the same process)"
    )
    return 1 if failures or silent or not healthy else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000))
