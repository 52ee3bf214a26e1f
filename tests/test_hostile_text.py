"""Text from users raises nothing, and secrets leave the process in no format."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labels import FOLDERS
from planted import SECRETS, planted_log
from sglang_watchdog.library.load import load
from sglang_watchdog.library.stories import lines_of
from sglang_watchdog.model.signature import Library
from sglang_watchdog.offline.pipeline import judge
from sglang_watchdog.parse.zone import Zone
from sglang_watchdog.scan.patterns import compile_patterns
from sglang_watchdog.scan.scanner import Scanner

PREFIX = re.compile(r"^\[[^\]]*\] ")
HEALTHY = (
    "[2026-02-06 05:00:00] server_args=ServerArgs(model_path='/models/m', tp_size=1, log_level='info')\n"
    "[2026-02-06 05:00:12] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=63.30 GB, mem usage=15.30 GB.\n"
    "[2026-02-06 05:00:23] The server is fired up and ready to roll!\n"
)


def firing_lines() -> list[str]:
    """The lines of every example that fires: what a person could paste into a prompt."""
    lines: set[str] = set()
    for file in load().files:
        for example in file.body.examples:
            if example.then.verdict == "firing":
                lines |= {line for line in lines_of(example, file.path.parent) if len(line.strip()) > 8}
    return sorted(lines)


LINES = firing_lines()


def wrapped(text: str) -> list[str]:
    """A user's text in every place where SGLang's log can hold it."""
    escaped = repr(text)[1:-1]
    quoted = json.dumps(text)[1:-1]
    word = re.sub(r"[\s\"]+", "%20", text)[:400]
    stamp = "[2026-02-06 05:01:00] "
    return [
        f"Receive: obj=GenerateReqInput(rid='{escaped}', text='{escaped}', sampling_params={{}})",
        f"Receive: obj=GenerateReqInput(rid='a', text=\"{escaped}\")",
        f"Receive OpenAI: obj=ChatCompletionRequest(messages=[{{'role': 'user', 'content': '{escaped}'}}])",
        f"Finish: obj=GenerateReqInput(rid='a', text='x'), out={{'text': '{escaped}'}}",
        f"{stamp}Receive: obj=GenerateReqInput(rid='a', text='{escaped}')",
        f"{stamp}Finish: obj=GenerateReqInput(text='{escaped}'), out={{'text': '{escaped}'}}",
        f'{{"timestamp": "2026-02-06T05:01:00", "event": "request.received", "rid": "{quoted}", "obj": {{"text": "{quoted}"}}}}',
        f'{stamp}INFO:     10.0.0.7:4242 - "POST /v1/{word} HTTP/1.1" 404 Not Found',
        f'{stamp}INFO:     10.0.0.7:4242 - "GET /health?q={word} HTTP/1.1" 200 OK',
        f"{stamp}Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=['{escaped}'].",
        f"{stamp}Abort request rid={escaped}",
    ]


def topics_of(library: Library, patterns, lines: list[str]) -> set[str]:
    from sglang_watchdog.engine.engine import Engine

    engine, scanner = Engine(library), Scanner(library, "server.log", zone=Zone.utc(), patterns=patterns)
    data = (HEALTHY + "\n".join(lines) + "\n").encode("utf-8", "replace")
    for observation in [*scanner.feed(data, offset=0, line=1), *scanner.finish()]:
        engine.feed(observation)
    engine.finish()
    return {f"{finding.topic} ({finding.signature})" for finding in engine.findings.all()}


@pytest.fixture(scope="module")
def patterns(library: Library):
    return compile_patterns(library)


@pytest.fixture(scope="module")
def usual(library: Library, patterns) -> set[str]:
    """What the healthy beginning gives by itself."""
    return topics_of(library, patterns, wrapped("hello"))


def test_there_is_something_to_forge():
    assert len(LINES) > 300


def test_no_firing_line_fires_from_within_a_users_text(library, patterns, usual):
    raised = {}
    for start in range(0, len(LINES), 40):
        chunk = LINES[start : start + 40]
        found = topics_of(library, patterns, [line for text in chunk for line in wrapped(text)]) - usual
        if found:
            for text in chunk:
                one = topics_of(library, patterns, wrapped(text)) - usual
                if one:
                    raised[text[:100]] = one
    assert raised == {}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=4), st.sampled_from(["\n", "\r", "\r\n", " ", "\x00", "\u2028"]), st.text(max_size=20))
def test_lines_glued_together_raise_nothing(library, patterns, usual, texts, glue, noise):
    assert topics_of(library, patterns, wrapped(noise + glue.join(texts) + noise)) <= usual


@pytest.mark.parametrize("form", ["text", "json", "markdown", "junit", "sarif"])
def test_planted_secrets_and_prompts_appear_in_no_format(form: str, tmp_path: Path):
    log = tmp_path / "server.log"
    log.write_text(planted_log())
    done = subprocess.run(
        [sys.executable, "-m", "sglang_watchdog", "check", str(log), "--format", form, "--timezone", "UTC"], capture_output=True, text=True
    )

    assert done.returncode == 1, done.stderr
    assert [secret for secret in SECRETS if secret in done.stdout + done.stderr] == []


@pytest.mark.parametrize("name", ["21-dense-logreq-apikey-metrics", "47-logreq-levels-json"])
def test_the_planted_data_of_real_recordings_stays_inside(name: str, library):
    folder = FOLDERS[1] / name
    from sglang_watchdog.offline.inputs import open_inputs
    from sglang_watchdog.sinks import encode

    log = next(path for path in (folder / "server.log", folder / "server.log.gz") if path.is_file())
    inputs, _ = open_inputs([str(log)])
    judged = judge(inputs, library, zone=Zone.utc())
    snapshot = judged.engine.snapshot()
    said = encode.dumps([encode.run(run) for run in snapshot.runs] + [encode.finding(f) for f in snapshot.findings])
    data = gzip.decompress(log.read_bytes()) if log.suffix == ".gz" else log.read_bytes()
    keys = re.findall(r"api_key='([^']+)'", data.decode("utf-8", "replace"))

    assert keys
    assert [key for key in keys if key in said] == []
