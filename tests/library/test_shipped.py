"""The library that is shipped holds to its own rules. Its examples are the largest specification of the engine there is."""

import re

import pytest

from sglang_watchdog.config.faults import render_all
from sglang_watchdog.library import matrix
from sglang_watchdog.library.catalogue import check_catalogue
from sglang_watchdog.library.examples import run_examples
from sglang_watchdog.library.files import default_root
from sglang_watchdog.library.lint import lint
from sglang_watchdog.library.load import load
from sglang_watchdog.library.lock import NAME, lock_text, read_lock
from sglang_watchdog.library.schema import SignatureBody
from sglang_watchdog.model.series import FUNCTIONS, GPU_SERIES, LOG_SERIES


@pytest.fixture(scope="module")
def loaded():
    return load(drafts=True)


@pytest.fixture(scope="module")
def readme():
    return (default_root() / "README.md").read_text()


def test_lint_finds_nothing(loaded):
    assert render_all(fault for fault in lint(loaded) if not fault.is_warning) == ""


@pytest.mark.slow
def test_every_example_ends_as_it_says(loaded):
    assert render_all(fault for fault in run_examples(loaded.library, loaded.files) if not fault.is_warning) == ""


def test_every_pattern_is_printed_wherever_its_range_says(loaded):
    assert render_all(fault for fault in matrix.check(loaded, default_root()) if not fault.is_warning) == ""


def test_the_lock_knows_every_revision(loaded):
    locked, faults = read_lock(default_root())

    assert faults == []
    assert lock_text(loaded.files, locked) == (default_root() / NAME).read_text()


def test_the_catalogue_is_what_the_files_say(loaded):
    assert render_all(check_catalogue(loaded, default_root())) == ""


def test_the_readme_explains_every_key(readme):
    keys = {field.alias or name for name, field in SignatureBody.model_fields.items()}

    assert {key for key in keys if f"`{key}`" not in readme and f"`{key}:" not in readme} <= {"flag"}


def test_the_readme_lists_every_series_and_function(readme):
    listed = set(re.findall(r"^\| `([\w.]+)` \|", readme, re.M))

    assert set(FUNCTIONS) | set(LOG_SERIES) | set(GPU_SERIES) <= listed


def test_no_two_signatures_look_for_the_same(loaded):
    """A clone would count one message twice."""
    seen = {}
    for file in loaded.files:
        for name in file.signature.match:
            pattern = file.patterns[name]
            when = tuple(condition.expression for condition in (*file.signature.applies_when, *file.signature.when))
            key = (pattern.starts, pattern.contains, pattern.regex, when, file.signature.during, file.signature.not_during)
            assert seen.setdefault(key, file.body.id) == file.body.id, f"{file.body.id} and {seen[key]} match the same"
