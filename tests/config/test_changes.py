"""What differs between two configurations, and what of it a running daemon takes up."""

import re
from pathlib import Path

import pytest

from sglang_watchdog.config.changes import LIVE, changed, needing_restart
from sglang_watchdog.config.settings import HttpLimits, Settings
from sglang_watchdog.sinks.web.limits import Limits

TABLE = Path(__file__).parents[2] / "deploy" / "README.md"


def settings(**values: object) -> Settings:
    return Settings.model_validate(values)


@pytest.mark.parametrize(
    ("after", "names", "restart"),
    [
        ({}, (), ()),
        ({"listen": "127.0.0.1:9"}, ("listen",), ("listen",)),
        ({"tls": {"cert": "c", "key": "k"}}, ("tls",), ("tls",)),
        ({"auth": {"tokens": [{"name": "a", "file": "f"}]}}, ("auth.tokens",), ()),
        ({"limits": {"burst": 9}}, ("limits.burst",), ()),
        ({"signatures": {"disable": ["a-b"]}}, ("signatures.disable",), ()),
        ({"signatures": {"override": {"a-b": {"severity": "info"}}}}, ("signatures.override",), ()),
        ({"notify": [{"type": "alertmanager", "urls": ["http://x"]}]}, ("notify",), ()),
        ({"servers": [{"name": "b", "logs": ["/l"]}]}, ("servers.a", "servers.b"), ("servers.a", "servers.b")),
        ({"servers": [{"name": "a", "logs": ["/other"]}]}, ("servers.a.logs",), ("servers.a.logs",)),
        ({"servers": [{"name": "a", "logs": ["/l"], "thresholds": {"window_s": 20}}]}, ("servers.a.thresholds.window_s",), ()),
        ({"telemetry": "none", "retention": {"days": 1}}, ("retention.days", "telemetry.source"), ("telemetry.source",)),
    ],
)
def test_changes_are_named_and_sorted_by_whether_they_wait_for_a_restart(after, names, restart):
    server = {"servers": [{"name": "a", "logs": ["/l"]}]}
    found = changed(settings(**server), settings(**{**server, **after}))

    assert found == names
    assert needing_restart(found) == restart


def test_the_servers_place_in_the_list_is_no_change():
    one, two = {"name": "a", "logs": ["/a"]}, {"name": "b", "logs": ["/b"]}

    assert changed(settings(servers=[one, two]), settings(servers=[two, one])) == ()


def test_the_documented_table_is_the_one_in_force():
    text = TABLE.read_text().partition("## Changing the configuration")[2].partition("\n## ")[0]
    taken_up = next(line for line in text.splitlines() if line.startswith("| at once"))

    assert set(re.findall(r"`([a-z_.*<>]+)`", taken_up)) == {live.replace("servers.*", "servers.<name>") for live in LIVE}


def test_the_limits_that_can_be_set_are_those_in_force_with_the_same_defaults():
    assert Limits(**HttpLimits().model_dump()) == Limits()
