"""Alertmanager's side: each alert reaches the right person, and causes hold back symptoms but never each other."""

import re
from typing import Any

import pytest
import yaml

from .test_rules import alerts
from .tools import PROMETHEUS, run, tool

FILE = PROMETHEUS / "alertmanager.yml"
RECEIVERS = {"critical": "page", "warning": "ticket", "none": "heartbeat"}


def test_the_configuration_is_well_formed() -> None:
    checked = run(tool("amtool"), "check-config", FILE)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("name", sorted(alerts()))
def test_the_alert_reaches_its_receiver(name: str) -> None:
    severity = alerts()[name]["labels"]["severity"]
    routed = run(tool("amtool"), "config", "routes", "test", f"--config.file={FILE}", f"alertname={name}", f"severity={severity}", "server=a")
    assert routed.stdout.strip() == RECEIVERS[severity]


def inhibitions() -> list[dict[str, Any]]:
    return yaml.safe_load(FILE.read_text())["inhibit_rules"]  # type: ignore[no-any-return]


def named(matchers: list[str]) -> set[str]:
    """The alerts that matchers on alertname select."""
    (matcher,) = [each for each in matchers if each.startswith("alertname")]
    operator, value = re.fullmatch(r'alertname (=~|=) "?(.+?)"?', matcher).groups()  # type: ignore[union-attr]
    return {name for name in alerts() if (re.fullmatch(value, name) if operator == "=~" else name == value)}


def test_inhibitions_name_alerts_that_exist_and_stay_on_their_machine() -> None:
    for rule in inhibitions():
        assert named(rule["source_matchers"]), rule
        assert named(rule["target_matchers"]), rule
        assert {"job", "instance"} <= set(rule["equal"])
        (matcher,) = [each for each in rule["target_matchers"] if each.startswith("alertname")]
        for part in re.findall(r"[A-Z]\w+", matcher.partition("(")[2]):
            assert f"SGLangWatchdog{part}" in alerts(), f"{part} is no alert"


def test_no_two_alerts_hold_each_other_back() -> None:
    """Then nobody would be told anything."""
    holds = {
        (source, target)
        for rule in inhibitions()
        for source in named(rule["source_matchers"])
        for target in named(rule["target_matchers"])
    }
    reached = set(holds)
    while more := {(first, last) for first, middle in reached for also, last in holds if middle == also} - reached:
        reached |= more
    assert not {pair for pair in reached if pair[0] == pair[1]}


def test_a_symptom_is_evaluated_before_its_cause() -> None:
    """Else Alertmanager hears first that the cause is over, and may tell the symptom for the moment until that is over too."""
    groups = yaml.safe_load((PROMETHEUS / "sglang-watchdog.rules.yaml").read_text())["groups"]
    (order,) = [[rule["alert"] for rule in group["rules"]] for group in groups if "alert" in group["rules"][0]]
    for rule in inhibitions():
        for source in named(rule["source_matchers"]) & set(order):
            for target in named(rule["target_matchers"]):
                assert order.index(target) < order.index(source), f"{target} after {source}"


def test_a_page_is_held_back_by_pages_only() -> None:
    for rule in inhibitions():
        if any(alerts()[name]["labels"]["severity"] == "critical" for name in named(rule["target_matchers"])):
            assert {alerts()[name]["labels"]["severity"] for name in named(rule["source_matchers"])} == {"critical"}
