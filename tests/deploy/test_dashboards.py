"""Dashboards: current, in the shape a dashboard linter asks for, and with data behind every query."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from .site import Site
from .test_rules import alerts, rules
from .tools import ROOT, RUNBOOKS

GRAFANA = ROOT / "grafana"
FILES = sorted((GRAFANA / "dashboards").glob("*.json"))
METRIC = re.compile(r"\b((?:server(?:_severity)?:)?sglang_watchdog_[a-z_]+(?::[a-z_]+)?|up|ALERTS|scrape_[a-z_]+)\b(\{[^}]*\})?")
# Values that Grafana would put in: everything, and the interval for a scrape each second.
VARIABLES = {"$job": ".+", "$instance": ".+", "$server": ".+", "$gpu": ".+", "$source": ".+", "$__rate_interval": "10s"}


@cache
def read(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text())  # type: ignore[no-any-return]


def panels(file: Path) -> Iterator[dict[str, Any]]:
    return (panel for panel in read(file)["panels"] if panel["type"] != "row")


def queries() -> Iterator[Any]:
    """Every expression of every panel, variable and annotation, by where it stands."""
    for file in FILES:
        for panel in panels(file):
            for target in panel["targets"]:
                yield pytest.param(target["expr"], id=f"{file.stem}/{panel['title']}/{target['refId']}")
        for note in read(file)["annotations"]["list"]:
            if "expr" in note:
                yield pytest.param(note["expr"], id=f"{file.stem}/annotation {note['name']}")


def filled(expression: str) -> str:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression, expression
    return expression


def test_the_committed_files_are_what_the_code_says() -> None:
    outcome = subprocess.run([sys.executable, GRAFANA / "build.py", "--check"], capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert len(FILES) == 4


@pytest.mark.parametrize("expression", queries())
def test_every_query_gives_data_after_the_replay(replayed: Site, expression: str) -> None:
    assert replayed.query(filled(expression)), expression


def test_a_query_without_data_would_be_noticed(replayed: Site) -> None:
    assert replayed.query('sglang_watchdog_finding_active{server="nobody"}') == []
    assert replayed.query("sglang_watchdog_no_such_metric") == []


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.get("alert") or rule["record"]) for rule in rules()])
def test_every_metric_of_a_rule_exists_after_the_replay(replayed: Site, rule: dict[str, Any]) -> None:
    """An alert that is quiet has no data by itself; what it selects must have."""
    selected = METRIC.findall(rule["expr"])
    assert selected or rule["expr"] == "vector(1)"
    for name, matchers in selected:
        assert replayed.query(f"{name}{matchers}"), f"{name}{matchers}"


def test_every_variable_has_values(replayed: Site) -> None:
    for file in FILES:
        for variable in read(file)["templating"]["list"]:
            if variable["type"] == "query":
                asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
                assert asked is not None
                assert any(row["metric"].get(asked[2]) for row in replayed.query(filled(asked[1]))), variable["query"]


# --- what a dashboard linter asks for ----------------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_data_source_is_a_variable_everywhere(file: Path) -> None:
    board = read(file)
    sources = [panel["datasource"] for panel in panels(file)]
    sources += [target["datasource"] for panel in panels(file) for target in panel["targets"]]
    sources += [variable["datasource"] for variable in board["templating"]["list"] if "datasource" in variable]
    sources += [note["datasource"] for note in board["annotations"]["list"] if not note.get("builtIn")]
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    for name in ("job", "instance"):
        assert variables[name]["multi"]
        assert variables[name]["includeAll"]
        assert variables[name]["allValue"] == ".+"


@pytest.mark.parametrize("expression", queries())
def test_every_selector_names_job_and_instance_and_rates_the_right_interval(expression: str) -> None:
    assert METRIC.search(expression)
    for name, matchers in METRIC.findall(expression):
        assert 'job=~"$job"' in matchers, f"{name}{matchers}"
        assert 'instance=~"$instance"' in matchers, f"{name}{matchers}"
    for window in re.findall(r"\[([^\]]+)\]", expression):
        # Annotations have no $__rate_interval.
        assert window == "$__rate_interval" or (window == "1m" and expression.endswith("> 0")), expression
    for name in re.findall(r"(?:rate|increase)\((\w+)\{", expression):
        assert name.endswith("_total"), f"{name} is no counter"
    assert " or vector(" not in expression


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_panel_has_title_words_and_unit_and_lies_in_the_grid(file: Path) -> None:
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in read(file)["panels"]]
    assert len(ids) == len(set(ids))
    for panel in panels(file):
        assert panel["title"]
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, f"{panel['title']} lies on another panel"
        taken |= cells


def test_the_boards_have_the_variables_and_links_a_person_needs() -> None:
    for file in FILES:
        board = read(file)
        assert board["uid"] == f"sglang-watchdog-{file.stem}"
        assert "sglang-watchdog" in board["tags"]
        assert {"SGLang Watchdog", "Status page", "Runbooks"} == {link["title"] for link in board["links"]}
    names = {file.stem: {variable["name"] for variable in read(file)["templating"]["list"]} for file in FILES}
    assert "server" in names["server"] & names["fleet"]
    assert "gpu" in names["gpu"]
    for stem in ("server", "fleet"):
        assert {note["name"] for note in read(GRAFANA / "dashboards" / f"{stem}.json")["annotations"]["list"]} >= {"Runs", "Findings"}


def test_the_runbook_links_lead_somewhere() -> None:
    """The variable's default is where install.sh puts the pages, and rules say the same place."""
    for file in FILES:
        (variable,) = [each for each in read(file)["templating"]["list"] if each["name"] == "runbooks"]
        assert all(rule["annotations"]["runbook_url"].startswith(variable["query"] + "/") for rule in alerts().values())
    assert (RUNBOOKS / "README.md").is_file()


def test_provisioning_reads_the_folder_it_is_mounted_at() -> None:
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/sglang-watchdog.yaml").read_text())["providers"]
    compose = yaml.safe_load((ROOT / "deploy/docker/compose.yaml").read_text())
    mounts = [volume.split(":") for volume in compose["services"]["grafana"]["volumes"] if isinstance(volume, str)]
    assert [provider["options"]["path"]] == [target for source, target, *_ in mounts if source == "../../grafana/dashboards"]


def test_the_generator_is_plain_python() -> None:
    """It needs nothing that `make test` does not install."""
    for name in ("build", "parts", "dashboards"):
        for line in (GRAFANA / f"{name}.py").read_text().splitlines():
            found = re.match(r"(?:import|from) (\w+)", line)
            assert found is None or found[1] in sys.stdlib_module_names | {"parts", "dashboards"}, line
