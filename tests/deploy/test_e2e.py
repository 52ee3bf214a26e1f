"""From a line in a log to a person and back, with Debian's Prometheus and Alertmanager."""

from dataclasses import dataclass
from typing import Any, Final

import pytest

from .site import Site, get

CAUSE: Final = {"alertname": "SGLangWatchdogSlowPath", "topic": "cuda-graph.disabled", "server": "moe"}


@dataclass(frozen=True, slots=True)
class Story:
    """What happened on the site."""

    site: Site
    ended_s: float
    finding: dict[str, Any]
    paged: tuple[float, dict[str, Any]]  # when the message came, the alert in it
    held_back: list[dict[str, Any]]
    resolved: tuple[float, dict[str, Any]]


def test_a_replayed_incident_reaches_a_person_and_is_closed(story: Story, capsys: pytest.CaptureFixture[str]) -> None:
    line = next(part for part in story.finding["evidence"] if part["kind"] == "line")
    written_s = story.site.growth.written_at(line["offset"])
    seconds = story.paged[0] - written_s
    with capsys.disabled():
        print(f"\nfrom log line {line['line']} to the person on duty: {seconds:.1f} s (scrape, for, group_wait 1, 2, 1 s, not 15, 300, 15 s)")
    assert 0 < seconds < 30
    alert = story.paged[1]
    assert alert["labels"]["severity"] == "warning"
    assert alert["annotations"]["runbook_url"].endswith("/SGLangWatchdogSlowPath.md")
    assert alert["annotations"]["status_page"] == story.site.daemon.url + "/"
    assert "moe" in alert["annotations"]["description"]
    assert story.resolved[0] > story.paged[0]
    assert "{{" not in str(alert["annotations"])


def test_the_symptom_is_held_back_by_its_cause(story: Story) -> None:
    """Low power and a waiting host are what graphs that are off look like; nobody is told them apart."""
    topics = {alert["labels"]["topic"] for alert in story.held_back}
    assert "gpu.power-underused" in topics
    assert {alert["labels"]["alertname"] for alert in story.held_back} == {"SGLangWatchdogUnderperforming"}
    for topic in topics:
        assert story.site.duty.heard("ticket", "firing", topic=topic) is None, story.site.duty.messages


def test_the_heartbeat_comes_and_nothing_pages(story: Story) -> None:
    assert story.site.duty.heard("heartbeat", "firing", alertname="SGLangWatchdogDeadMansSwitch") is not None
    assert [message for _, receiver, message in story.site.duty.messages if receiver == "page"] == []


def test_the_watchdog_finds_nothing_wrong_with_itself(story: Story) -> None:
    names = {alert["labels"]["alertname"] for alert in get(f"{story.site.prometheus}/api/v1/alerts")["data"]["alerts"]}
    assert names <= {"SGLangWatchdogSlowPath", "SGLangWatchdogUnderperforming", "SGLangWatchdogDeadMansSwitch"}, names


def test_every_rule_is_evaluated_without_an_error(replayed: Site) -> None:
    groups = get(f"{replayed.prometheus}/api/v1/rules")["data"]["groups"]
    faults = {rule["name"]: rule.get("lastError") for group in groups for rule in group["rules"] if rule["health"] != "ok"}
    assert sum(len(group["rules"]) for group in groups) > 30
    assert faults == {}


def test_the_daemon_told_its_own_channel_too(replayed: Site) -> None:
    assert any(receiver == "direct" for _, receiver, _ in replayed.duty.messages)


def test_it_did_not_take_long(story: Story) -> None:
    assert story.ended_s - story.site.began_s < 90
