"""The whole library against text that users control: its own firing examples in every place where a server prints what it was sent."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from scanning import hits
from test_properties import forged_lines, framed_as

from sglang_watchdog.library.load import load
from sglang_watchdog.model.observation import Batch, Dump, Opened, Progress
from sglang_watchdog.model.signature import Library
from sglang_watchdog.parse.zone import Zone
from sglang_watchdog.scan.scanner import Scanner

SIGNATURES = Path(__file__).parents[2] / "signatures"


@pytest.fixture(scope="module")
def library() -> Library:
    return load([SIGNATURES]).library


@pytest.fixture(scope="module")
def examples() -> list[str]:
    """Every line of every example of the library."""
    lines: set[str] = set()
    for path in SIGNATURES.glob("*/*.yaml"):
        for example in (yaml.safe_load(path.read_text()) or {}).get("examples", ()):
            for line in (str(example.get("line", "")), *_story(path, example)):
                lines.add(line.rstrip("\n"))
    return sorted(line for line in lines if line.strip())


def _story(path: Path, example: dict[str, Any]) -> Iterator[str]:
    story = str(example.get("replay", ""))
    if "\n" not in story and (path.parent / "replays" / story).is_file():
        story = (path.parent / "replays" / story).read_text()
    for line in story.split("\n"):
        yield re.sub(r"^\s*\d+(?:\.\d+)?s\s+(?:\[[A-Z0-9 ]+\] )?", "", line)


def scan(library: Library, log: str) -> list[Any]:
    scanner = Scanner(library, "server.log", zone=Zone.utc())
    seen = scanner.feed(log.encode(), offset=0, line=1) + scanner.finish()
    return [one for one in seen if not isinstance(one, Opened)]


def test_the_examples_fire_where_the_server_itself_speaks(library: Library, examples: list[str]) -> None:
    """Else the other test would prove nothing."""
    log = "".join(f"[2026-01-02 12:00:00 TP0] {line}\n{line}\n" for line in examples)

    fired = {hit.pattern for hit in hits(scan(library, log))}

    assert len(examples) > 300
    assert len(fired) > 0.8 * len(library.patterns)


@pytest.mark.parametrize("form", ["plain", "docker", "cri", "journal"])
def test_no_example_fires_where_users_speak(library: Library, examples: list[str], form: str) -> None:
    forged = [line for example in examples for line in forged_lines(example)]
    log = "[2026-01-02 12:00:00] server ready\n" + "".join(line + "\n" for line in forged)

    seen = scan(library, log if form == "plain" else framed_as(form, log, 200))

    raised = [(hit.pattern, forged[hit.position.line - 2] if form == "plain" else hit.text) for hit in hits(seen)]
    assert not raised, json.dumps(raised[:5], indent=1)
    assert not [one for one in seen if isinstance(one, Batch | Dump | Progress)]
