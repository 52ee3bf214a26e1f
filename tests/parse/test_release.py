"""Which release wrote a log."""

import pytest

from sglang_watchdog.model.finding import Release
from sglang_watchdog.parse.release import inferred_release, stated_release

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


@pytest.mark.parametrize(
    ("line", "release"),
    [
        ("sglang==0.5.8", "0.5.8"),
        ("SGLang version: 0.5.12.post1", "0.5.12.post1"),
        ("sglang 0.4.6.post5 on Linux", "0.4.6.post5"),
        ("/site-packages/sglang-0.5.11.dist-info/x", "0.5.11"),
        ("Successfully installed sglang-0.5.9 torch-2.9", "0.5.9"),
        ("sglang is using nccl==2.27.3", None),
        ("sglang_router-0.2.3", None),
        ("sgl-kernel==0.3.1", None),
    ],
)
def test_a_release_is_stated_only_for_sglang_itself(line: str, release: str | None) -> None:
    assert stated_release(line) == release
