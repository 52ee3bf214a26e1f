"""Which release wrote a log."""

import pytest

from sglang_watchdog.model.finding import Release
from sglang_watchdog.parse.release import inferred_release

RELEASES = ("0.4.1", "0.4.2", "0.5.18", "0.5.19", "0.5.20")
TABLE = {"a": ("0.4.1", "0.5.20"), "old": ("0.4.1", "0.4.2"), "mid": ("0.4.2", "0.5.18"), "new": ("0.5.19", "0.5.20")}


@pytest.mark.parametrize(
    ("fields", "form", "expected"),
    [
        ("a old", "repr", ("0.4.1", "0.4.1")),
        ("a old mid", "repr", ("0.4.2", "0.4.2")),
        ("a mid", "repr", ("0.5.18", "0.5.18")),
        ("a new", "dict", ("0.5.19", "0.5.20")),
        ("a new fork_field", "", ("0.5.19", "0.5.20")),
    ],
)
def test_the_fields_of_the_dump_bound_the_release(fields: str, form: str, expected: tuple[str, str]) -> None:
    found = inferred_release(fields.split(), TABLE, RELEASES, form=form)

    assert found == Release(min=expected[0], max=expected[1], source="inferred")


def test_unknown_fields_alone_tell_nothing() -> None:
    assert inferred_release(["x", "y"], TABLE, RELEASES) == Release()
    assert inferred_release(["a"], {}, ()) == Release()
