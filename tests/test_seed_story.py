"""The story that the project comes from, as a specification: what the silence of the Triton MoE lines proves, and when it proves nothing."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from labels import FOLDERS

CASE = FOLDERS[0] / "perf-flashinfer-cutlass-autotune-never-ran"
LINES = (CASE / "server.log").read_text().splitlines(keepends=True)


def check(log: Path, *more: object) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "sglang_watchdog", "check", log, "--timezone", "UTC", "--format", "json", "--fail-on", "never", *map(str, more)],
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)


def by_topic(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {finding["topic"]: finding for finding in document["findings"] if finding["state"] == "firing"}


def kinds(finding: dict[str, Any]) -> set[str]:
    return {evidence["kind"] for evidence in finding["evidence"]}


def test_the_whole_log_proves_the_path_the_cause_and_the_symptom_as_one():
    document = check(CASE / "server.log", "--telemetry", CASE / "nvml.jsonl")
    found = by_topic(document)

    assert "absence" in kinds(found["moe.triton-inactive"])
    missing, power = found["moe.autotune-missing"], found["gpu.power-underused"]
    assert {"absence", "fact", "line"} <= kinds(missing)
    silence = next(evidence for evidence in missing["evidence"] if evidence["kind"] == "absence")
    assert silence["witness"], "an absence names a line that proves such lines reach this log"
    assert power["explained_by"] == missing["id"]
    assert "samples" in kinds(power)


def test_without_the_first_lines_the_silence_proves_nothing(tmp_path: Path):
    log = tmp_path / "server.log"
    log.write_text("".join(LINES[20:]))
    document = check(log)

    assert not [topic for topic in by_topic(document) if topic.startswith("moe.")]
    coverage = {verdict["signature"]: verdict for verdict in document["coverage"]}
    for signature in ("moe-triton-config-silent", "moe-flashinfer-autotune-missing"):
        assert coverage[signature]["verdict"] == "unknown"
        assert "does not show the start" in coverage[signature]["because"]
        assert coverage[signature]["do"] == "give the log from the server's start"


def test_without_a_witness_the_arguments_say_it_and_not_the_silence(tmp_path: Path):
    log = tmp_path / "server.log.gz"
    kept = [line for index, line in enumerate(LINES) if index == 0 or " batch, #" in line]
    log.write_bytes(gzip.compress("".join(kept).encode()))
    found = by_topic(check(log))

    inactive = found["moe.triton-inactive"]
    assert inactive["signature"] == "moe-triton-inactive-by-argument"
    assert kinds(inactive) == {"fact"}
    assert any(evidence.get("name") == "args.moe_runner_backend" for evidence in inactive["evidence"])
    # 0.5.8 leaves this backend out of the list that it tunes: its source proves it, not the silence.
    assert found["moe.autotune-missing"]["signature"] == "moe-autotune-not-in-release"
    assert "absence" not in kinds(found["moe.autotune-missing"])
