"""Skips a test whose outside program is missing, and names the package; under CI=true that is a failure."""

import os
import shutil

import pytest

PACKAGES = {
    "promtool": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "wrk": "wrk",
    "mount": "mount",
}


def needs(program: str) -> pytest.MarkDecorator:
    missing = shutil.which(program) is None and not os.environ.get("CI")
    return pytest.mark.skipif(missing, reason=f"{program} is missing: apt-get install {PACKAGES[program]}")
