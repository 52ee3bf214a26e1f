"""Runbooks: one for each alert, in one shape, and every command of ours in them exists with the options shown."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from sglang_watchdog.cli.main import COMMANDS, main

from .test_rules import alerts
from .tools import RUNBOOKS

PAGES = sorted(RUNBOOKS.glob("SGLangWatchdog*.md"))
COMMAND = re.compile(r"(?:^|`)sglang-watchdog ([^`#\n]+)", re.MULTILINE)


def test_each_alert_has_its_page_and_each_page_its_alert() -> None:
    assert {page.stem for page in PAGES} == set(alerts())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_has_its_four_parts_and_the_severity_of_its_alert(page: Path) -> None:
    text = page.read_text()
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    assert parts[1::2] == ["Meaning", "Impact", "Diagnosis", "Mitigation"]
    assert all(part.strip() for part in parts)
    severity = re.search(r"^Severity: (\w+)", text, re.MULTILINE)
    assert severity is not None
    assert severity[1] == alerts()[page.stem]["labels"]["severity"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_our_commands_in_it_exist(page: Path) -> None:
    for command in COMMAND.findall(page.read_text()):
        words = shlex.split(command.partition(" -- ")[0])
        assert words[0] in COMMANDS, command
        for option in (word for word in words if word.startswith("--")):
            assert option in _help(words), f"{command}: no {option}"


def _help(words: list[str]) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        main([words[0], "--help"])
    return said.getvalue()
