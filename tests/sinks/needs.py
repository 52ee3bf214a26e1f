"""Skips a test whose outside program is missing, and names the package; under CI=true that is a failure."""

import os
import shutil
import subprocess
import tempfile

import pytest

PACKAGES = {"promtool": "prometheus", "prometheus-alertmanager": "prometheus-alertmanager", "wrk": "wrk"}


def needs(program: str) -> pytest.MarkDecorator:
    missing = shutil.which(program) is None and not os.environ.get("CI")
    return pytest.mark.skipif(missing, reason=f"{program} is missing: apt-get install {PACKAGES[program]}")


def can_mount() -> bool:
    """Whether a small file system can be mounted here: root in a container that allows it, or a machine of one's
    own."""
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True, check=False)
        if done.returncode == 0:
            subprocess.run(["umount", place], check=True)
        return done.returncode == 0
