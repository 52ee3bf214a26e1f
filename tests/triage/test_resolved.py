"""What we predict of a launch is what each release's own argument resolution made of it.

data/resolved.json was written by running `ServerArgs.from_cli_args` of twelve releases with the probes of GPU and model
answered from these facts. We may not know a value; where we do, it must be theirs.
"""

import json
from collections import Counter
from typing import Any

import pytest

from sglang_watchdog.triage.gpu_facts import gpu_facts
from sglang_watchdog.triage.judge import judge
from sglang_watchdog.triage.knowledge import Knowledge
from sglang_watchdog.triage.options import read_options
from sglang_watchdog.triage.resolution import Known, Resolution, same
from triage.conftest import DATA

CASES: list[dict[str, Any]] = json.loads((DATA / "resolved.json").read_text())["cases"]
RELEASES = sorted({release for case in CASES for release in case["resolved"]}, key=lambda text: [int(part) for part in text.split(".")[:3]])


@pytest.mark.parametrize("release", RELEASES)
def test_values_and_refusals_are_the_servers_own(knowledge: Knowledge, release: str):
    wrong: list[str] = []
    seen: Counter[str] = Counter()
    for case in CASES:
        theirs = case["resolved"].get(release)
        if theirs is None:
            continue
        words = ["--model-path", "m", *case["command"].split()]
        facts = gpu_facts(case["gpu"], knowledge.gpus) | {f"model.{name}": value for name, value in case["model"].items()}
        flags = read_options(words, knowledge.table.options_at(release))
        judgement = judge(knowledge, release, flags, facts)
        where = f"{case['gpu']}, {case['model']['architecture']}, {case['command'] or 'no flag'}"
        assert not judgement.notes, where
        if "refused" in theirs:
            seen["refused"] += 1
            if judgement.starts:
                wrong.append(f"{where}: it refuses ({theirs['refused']}), we let it start")
            continue
        if not judgement.starts:
            wrong.append(f"{where}: it starts, we refuse")
            continue
        resolution = Resolution(knowledge, release, {flag.field: flag.value for flag in flags}, facts)
        for name, value in {**case["everywhere"], **theirs}.items():
            ours = resolution.value(name if name.startswith("run.") else f"args.{name}")
            seen["known" if isinstance(ours, Known) else "unknown"] += 1
            if isinstance(ours, Known) and not same(ours.value, value):
                wrong.append(f"{where}: {name} is {value!r}, we say {ours.value!r}")

    assert not wrong, "\n".join(wrong)
    assert seen["known"] > 500
    assert seen["unknown"] < 0.02 * seen["known"]


def test_enough_releases_are_compared():
    assert len(RELEASES) >= 12
    assert any("refused" in values for case in CASES for values in case["resolved"].values())
