"""The bill of materials and the stated review of what it lists."""

import json
import re
import sys
import tomllib
from typing import Any

import pytest

from .tools import ROOT

sys.path.insert(0, str(ROOT / "deploy"))
import sbom

COMMITTED = ROOT / "deploy" / "sbom.cdx.json"
REVIEW = (ROOT / "deploy" / "SECURITY.md").read_text()
PERMISSIVE = {"MIT", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "ISC", "PSF-2.0"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return json.loads(COMMITTED.read_text())  # type: ignore[no-any-return]


def test_it_lists_what_is_installed(document: dict[str, Any]) -> None:
    """If requirements.txt changed: `make sbom`, and say in SECURITY.md what is new."""
    licences = {one["name"]: one["licenses"][0]["expression"] for one in document["components"]}
    pinned = set(re.findall(r"^([A-Za-z0-9._-]+)==", (ROOT / "deploy" / "requirements.txt").read_text(), re.MULTILINE))

    assert set(licences) == pinned
    assert COMMITTED.read_text() == sbom.written(licences)


def test_everything_in_it_is_needed_by_something_we_ask_for(document: dict[str, Any]) -> None:
    needs = {one["ref"]: one["dependsOn"] for one in document["dependencies"]}
    reached, waiting = set(), [document["metadata"]["component"]["bom-ref"]]
    while waiting:
        each = waiting.pop()
        if each not in reached:
            reached.add(each)
            waiting += needs[each]

    assert reached == {one["bom-ref"] for one in document["components"]} | {document["metadata"]["component"]["bom-ref"]}


def test_every_licence_is_permissive(document: dict[str, Any]) -> None:
    words = {one["name"]: set(re.split(r" (?:OR|AND) ", one["licenses"][0]["expression"])) for one in document["components"]}

    assert {name: said for name, said in words.items() if not said <= PERMISSIVE} == {}


def test_each_dependency_is_reviewed_and_each_review_is_of_a_dependency(document: dict[str, Any]) -> None:
    asked = {re.split(r"[<>=;\[ ]", one)[0].lower() for one in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]}
    table = REVIEW.partition("## Dependencies")[2].partition("\n## ")[0]
    rows = {row.split("|")[1].strip().strip("`"): row for row in table.splitlines() if row.startswith("| `")}
    brought = set(re.findall(r"`([a-z0-9-]+)`", table.partition("Brought along:")[2].partition("\n\n")[0]))

    assert set(rows) == asked
    assert all(len([cell for cell in row.strip("|").split("|") if cell.strip()]) == 5 for row in rows.values()), "name, why, licence, touches, instead"
    licences = {one["name"]: one["licenses"][0]["expression"] for one in document["components"]}
    assert [name for name, row in rows.items() if licences[name] not in row] == []
    assert brought == set(licences) - asked
