"""Commands as people post them are understood whole, and the flags that their threads are about get the right verdict."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from sglang_watchdog.triage.verdicts import Judgement
from triage.conftest import DATA

COMMANDS: list[dict[str, Any]] = yaml.safe_load((DATA / "launch_commands.yaml").read_text())["commands"]
STOPPING = {"removed", "conflict", "unrecognised"}


@pytest.mark.parametrize("one", COMMANDS, ids=lambda one: one["name"])
def test_a_posted_command(judged: Callable[..., Judgement], one: dict[str, Any]):
    judgement = judged(one["command"], one["release"], one.get("gpu", ""), one.get("model"))
    verdicts = {flag.flag: flag.verdict for flag in judgement.flags}

    assert {name: verdicts.get(name) for name in one["verdicts"]} == one["verdicts"]
    assert judgement.starts is one["starts"]
    assert not judgement.notes  # no fault of a rule, nothing left unread


def test_many_commands_of_many_people_are_tried():
    assert len(COMMANDS) >= 20
    assert len({one["from"] for one in COMMANDS}) >= 20
    assert sum(bool(STOPPING & set(one["verdicts"].values())) for one in COMMANDS) >= 5


@pytest.mark.parametrize("one", COMMANDS, ids=lambda one: one["name"])
def test_no_secret_of_a_command_is_shown(judged: Callable[..., Judgement], one: dict[str, Any]):
    judgement = judged(one["command"] + " --api-key sk-EXAMPLE", one["release"])

    assert "sk-EXAMPLE" not in repr(judgement)
