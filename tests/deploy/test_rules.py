"""Alert rules: each one proved by promtool to fire, to keep still and to resolve; none without a proof, no topic without an alert."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from sglang_watchdog.library.load import Loaded
from sglang_watchdog.model.words import Severity

from .tools import PROMETHEUS, RULES, RUNBOOKS, run, tool

ALERTS = Path(__file__).with_name("alerts.yaml")
TARGET = {"job": "sglang-watchdog", "instance": "node1:17853"}
PLACEHOLDER = re.compile(r"\{\{ \$labels\.(\w+) \}\}")


@cache
def rules() -> list[dict[str, Any]]:
    return [rule for file in RULES for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


@cache
def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


@cache
def stories() -> dict[str, dict[str, Any]]:
    return yaml.safe_load(ALERTS.read_text())  # type: ignore[no-any-return]


def series(given: dict[str, str]) -> list[dict[str, str]]:
    """Input series with the target's labels added. YAML reads a bare 0x20 as a number: such values need quotes."""
    assert all(isinstance(values, str) for values in given.values()), given
    target = ",".join(f'{name}="{value}"' for name, value in TARGET.items())
    return [
        {"series": name[:-1] + f",{target}}}" if name.endswith("}") else f"{name}{{{target}}}", "values": values}
        for name, values in given.items()
    ]


def labels_of(name: str, story: dict[str, Any]) -> dict[str, str]:
    """The labels of the alert that must fire."""
    target = {key: value for key, value in TARGET.items() if key not in story.get("without", ())}
    return {**target, **story["labels"], "severity": alerts()[name]["labels"]["severity"]}


def fired(name: str, minute: int, labels: dict[str, str] | None) -> dict[str, Any]:
    shown = ",".join(f'{key}="{value}"' for key, value in (labels or {}).items())
    samples = [{"labels": f'ALERTS{{alertname="{name}",alertstate="firing",{shown}}}', "value": 1}] if labels is not None else []
    return {"expr": f'ALERTS{{alertname="{name}",alertstate="firing"}}', "eval_time": f"{minute}m", "exp_samples": samples}


def promtool_tests(name: str, story: dict[str, Any]) -> list[dict[str, Any]]:
    labels = labels_of(name, story)
    said = {key: PLACEHOLDER.sub(lambda found: labels[found[1]], text) for key, text in alerts()[name]["annotations"].items()}
    told = [
        {
            "interval": "1m",
            "input_series": series(story["series"]),
            "promql_expr_test": [fired(name, minute, labels) for minute in story["firing"]]
            + [fired(name, minute, None) for minute in story["silent"]],
            "alert_rule_test": [
                {"alertname": name, "eval_time": f"{story['firing'][0]}m", "exp_alerts": [{"exp_labels": labels, "exp_annotations": said}]}
            ],
        }
    ]
    for quiet in story["quiet"]:
        told.append(
            {
                "interval": "1m",
                "input_series": series(quiet["series"]),
                "promql_expr_test": [fired(name, minute, None) for minute in range(0, 21, 2)],
            }
        )
    return told


@pytest.mark.parametrize("name", sorted(stories()))
def test_the_alert_fires_resolves_and_keeps_still(name: str, tmp_path: Path) -> None:
    promtool = tool("promtool")
    file = tmp_path / "test.yaml"
    told = {"rule_files": [str(rule) for rule in RULES], "evaluation_interval": "1m", "tests": promtool_tests(name, stories()[name])}
    file.write_text(yaml.safe_dump(told, sort_keys=False))
    outcome = run(promtool, "test", "rules", file)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_a_false_story_is_refused(tmp_path: Path) -> None:
    """The proofs above can fail: a minute at which nothing fires is claimed to fire."""
    promtool = tool("promtool")
    name = "SGLangWatchdogGpuFault"
    story = stories()[name] | {"firing": [3]}
    file = tmp_path / "test.yaml"
    told = {"rule_files": [str(rule) for rule in RULES], "evaluation_interval": "1m", "tests": promtool_tests(name, story)}
    file.write_text(yaml.safe_dump(told))
    assert run(promtool, "test", "rules", file).returncode != 0


def test_every_alert_has_a_story() -> None:
    assert set(stories()) == set(alerts())
    for name, story in stories().items():
        assert story["firing"], name
        if name != "SGLangWatchdogDeadMansSwitch":
            assert story["silent"], name
            assert max(story["silent"]) > max(story["firing"]), f"{name}: no minute after it resolved"
            assert story["quiet"], name


def test_rules_and_configuration_are_well_formed() -> None:
    checked = run(tool("promtool"), "check", "rules", "--lint=all", "--lint-fatal", *RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    checked = run(tool("promtool"), "check", "config", PROMETHEUS / "prometheus.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def matchers(expression: str) -> list[tuple[str, str, str]]:
    return re.findall(r'(\w+)(=~|!~|!=|=)"((?:[^"\\]|\\.)*)"', expression)


def selects(expression: str, topic: str, severity: str) -> bool:
    """Whether the selector of a finding alert takes this topic."""
    value = {"topic": topic, "severity": severity}
    verdicts = {
        "=": lambda have, want: have == want,
        "!=": lambda have, want: have != want,
        "=~": lambda have, want: re.fullmatch(want, have) is not None,
        "!~": lambda have, want: re.fullmatch(want, have) is None,
    }
    return all(verdicts[operator](value[label], want.replace("\\\\", "\\")) for label, operator, want in matchers(expression) if label in value)


def test_every_topic_that_asks_for_a_person_has_exactly_one_alert(loaded: Loaded) -> None:
    """A topic that is added without a rule, or that two rules tell, is found here."""
    about_findings = {name: rule for name, rule in alerts().items() if "sglang_watchdog_finding_active" in rule["expr"]}
    for topic, severity in loaded.library.topics.items():
        telling = [name for name, rule in about_findings.items() if selects(rule["expr"], topic, severity.value)]
        if severity is Severity.INFO:
            assert not telling, f"{topic}: {telling}"
        else:
            assert len(telling) == 1, f"{topic}: {telling}"
            assert about_findings[telling[0]]["labels"]["severity"] == severity.value


@pytest.mark.parametrize("name", sorted(alerts()))
def test_the_alert_says_what_a_person_needs(name: str) -> None:
    rule = alerts()[name]
    notes = rule["annotations"]
    assert name.startswith("SGLangWatchdog")
    assert rule["labels"]["severity"] in {"critical", "warning", "none"}
    assert notes["summary"].endswith(".")
    assert "{{" not in notes["summary"], "the summary is static, so that alerts can be grouped by it"
    assert notes["description"].endswith(".")
    assert notes["runbook_url"].endswith(f"/{name}.md")
    assert (RUNBOOKS / f"{name}.md").is_file()


def test_no_expression_hides_missing_data() -> None:
    for rule in rules():
        assert not re.search(r"\bor\s+(vector|on\s*\(\s*\)\s*vector)", rule["expr"]), rule


def test_recorded_names_follow_level_metric_operation() -> None:
    for rule in rules():
        if "record" in rule:
            assert re.fullmatch(r"[a-z_]+:sglang_watchdog_[a-z_]+:[a-z0-9_]+", rule["record"])
