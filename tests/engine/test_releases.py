"""What rests on a release's sources holds for that release alone; a line that was said needs no release."""

import pytest

from sglang_watchdog.model.signature import Condition
from sglang_watchdog.model.words import Kind, Severity

from .conftest import signature

NAME = "never-tuned"


def never_tuned():
    return signature(
        NAME, Kind.CORRELATION, "moe.autotune-missing", Severity.INFO,
        releases=">=0.5.8,<=0.5.9", when=(Condition(expression="args.backend == 'cutlass'"),),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("release", "answer"),
    [
        (("0.5.8", "0.5.9"), "yes"),
        (("0.5.11", "0.5.12.post1"), "not-applicable"),
        (("0.5.9", "0.5.11"), "unknown"),
        (None, "unknown"),
    ],
)
def test_a_conclusion_from_sources_waits_for_the_release(story, release, answer):
    told = story(never_tuned()).dump(0, release=release, backend="cutlass").quiet_until(30).end()

    assert told.verdict(NAME)[0] == answer
    assert bool(told.found()) == (answer == "yes")
