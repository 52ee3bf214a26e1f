"""The operators' own tools, from Debian packages: present, or the test says which package to install (and fails in CI)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = sorted(PROMETHEUS.glob("*.rules.yaml"))
RUNBOOKS = ROOT / "deploy" / "runbooks"
PACKAGES = {
    "promtool": "prometheus",
    "prometheus": "prometheus",
    "amtool": "prometheus-alertmanager",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "systemd-analyze": "systemd",
    "bwrap": "bubblewrap",
    "openssl": "openssl",
}


def tool(name: str) -> str:
    """Path of a command; without it the test is skipped, or failed where CI=true."""
    found = shutil.which(name)
    if found is None:
        said = f"{name} is missing: apt-get install {PACKAGES[name]}"
        if os.environ.get("CI") == "true":
            pytest.fail(said)
        pytest.skip(said)
    return found


def run(*command: str | Path, **options: object) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, output as text."""
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60, check=False, **options)  # type: ignore[call-overload,no-any-return]
