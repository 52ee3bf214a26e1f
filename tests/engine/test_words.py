"""Summaries: clauses that go where a value is not known, bytes for people, one GPU or several; and lint's view of what is known."""

import pytest

from sglang_watchdog.engine.words import fill, gpus_named
from sglang_watchdog.library.rules.summaries import always_captured, demanded
from sglang_watchdog.model.signature import Pattern


@pytest.mark.parametrize(
    ("template", "w", "said"),
    [
        ("Slow.[ Memory is {w.dram:.0%} active.]", {"dram": 0.5}, "Slow. Memory is 50% active."),
        ("Slow.[ Memory is {w.dram:.0%} active.]", {}, "Slow."),
        ("{w.dram:.0%}", {}, "?"),
        ("[{w.rx:B}/s in][ and {w.tx:B}/s out]", {"rx": 1.9e9, "tx": 53.2e9}, "1.9 GB/s in and 53 GB/s out"),
        ("{w.rx:B}", {"rx": 999.0}, "999 B"),
        ("{w.rx:B}", {"rx": 999_900.0}, "1.0 MB"),
    ],
)
def test_a_clause_goes_where_its_value_is_not_known(template: str, w: dict[str, float], said: str) -> None:
    assert fill(template, {"w": dict(w)}, {}) == said


def test_a_value_with_braces_or_brackets_is_no_template() -> None:
    assert fill("said[: {text}] {text}", {}, {"text": "{w.x} [0]"}) == "said: {w.x} [0] {w.x} [0]"


def test_one_gpu_is_no_plural() -> None:
    assert (gpus_named([3]), gpus_named([0, 1, 2, 5])) == ("GPU 3", "GPUs 0-2,5")


@pytest.mark.parametrize(
    ("expression", "known"),
    [
        ("w.a > 1.0 && w.b > 1.0", {"w.a", "w.b"}),
        ("w.a > 1.0 || w.b > 1.0", set()),
        ("(w.a > 1.0 || w.a < w.b) && run.x", {"w.a", "run.x"}),
        ("w.n > 0.0 ? w.a > 1.0 : w.b > 1.0", {"w.n"}),
    ],
)
def test_what_a_true_condition_has_read(expression: str, known: set[str]) -> None:
    assert demanded(expression) == known


def test_an_optional_group_may_capture_nothing() -> None:
    assert always_captured(Pattern(id="p", regex=r"^(?P<a>[(x]+)(?: (?P<b>y))?(?:(?P<c>1)|2)(?P<d>z|w)")) == {"a", "d"}
