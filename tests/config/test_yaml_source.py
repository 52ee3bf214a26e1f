"""YAML is read with positions, and nothing in it is taken for what its author did not write."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sglang_watchdog.config.faults import Fault, nearest
from sglang_watchdog.config.yaml_source import read_yaml, read_yaml_file


@pytest.mark.parametrize("text", ["yes", "on", "no", "0.5.12", "12:30", "2026-01-01", "0.5.12.post1", "1_000", "9" * 5000])
def test_text_stays_text(text):
    """YAML 1.1 turns these into booleans, times, dates and numbers; a release or a time must stay what it is."""
    assert read_yaml(f"key: {text}", "f.yaml").value == {"key": text}


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("null", None), ("~", None), ("", None), ("12", 12), ("-3", -3), ("0x10", 16), ("0.45", 0.45),
     ("1e3", 1000.0), ('"12"', "12"), ("'true'", "true"), (".inf", float("inf"))],
)  # fmt: skip
def test_plain_values_have_the_types_of_yaml_1_2(text, value):
    assert read_yaml(f"key: {text}", "f.yaml").value == {"key": value}


def test_every_key_and_value_knows_its_place():
    document = read_yaml("id: a\nmatch:\n  any_of:\n    - {starts: Using default}\n", "f.yaml")

    place = document.at(("match", "any_of", 0, "starts"))
    assert (place.line, place.column, place.width) == (4, 16, 13)
    assert document.at(("match", "any_of", 0, "starts"), key=True).column == 8


def test_a_list_of_one_written_without_its_list_is_still_found():
    """Shorthands leave out steps that the checked form has."""
    document = read_yaml("match:\n  starts: abc\n", "f.yaml")

    assert document.at(("match", "any_of", 0, "starts")).line == 2


def test_a_fault_points_at_the_text_like_a_compiler():
    document = read_yaml("a: 1\nregex: '.*not found.*'\n", "moe/x.yaml")

    assert document.fault(("regex",), "pattern has no literal", code="SIG012", note="every line", help="Add.").render() == (
        "moe/x.yaml:2:8: SIG012 pattern has no literal\n    2 | regex: '.*not found.*'\n               ^^^^^^^^^^^^^^^ every line\n      Add."
    )


def test_a_key_given_twice_is_refused():
    (fault,) = read_yaml("title: a\nid: b\ntitle: c\n", "f.yaml").faults

    assert fault.where == "f.yaml:3:1"
    assert "`title` is given twice" in fault.message
    assert "line 1" in fault.help


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: [1, 2\nb: 3\n", 2, "not valid YAML"),
        ("a:\n\t- b\n", 2, "not valid YAML"),
        ("a: !!python/object:os.system x\n", 1, "unknown tag"),
        ("a: &x [*x]\n", 1, "an alias points at what it stands in"),
        ("a: &x {b: 1}\nc: {<<: *x}\n", 2, "merge keys"),
        ("? [a]\n: b\n", 1, "a key must be a word"),
    ],
)
def test_what_cannot_be_read_is_a_fault_with_its_line(text, line, words):
    (fault, *_) = read_yaml(text, "f.yaml").faults

    assert fault.line == line
    assert words in fault.message


def test_aliases_that_multiply_are_stopped():
    """Ten lines of aliases can ask for ten billion values."""
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))

    assert any("too many values" in fault.message for fault in read_yaml(text, "f.yaml").faults)


def test_nesting_without_end_is_a_fault_and_no_crash():
    assert read_yaml("[" * 50_000, "f.yaml").faults


@pytest.mark.parametrize(("data", "words"), [(b"a: \xff\n", "not UTF-8"), (b"a: \x00\n", "not valid YAML")])
def test_a_file_that_is_no_text_is_a_fault(tmp_path, data, words):
    path = tmp_path / "f.yaml"
    path.write_bytes(data)

    (fault,) = read_yaml_file(path).faults
    assert words in fault.message


def test_a_missing_file_and_a_folder_are_faults(tmp_path):
    assert "No such file" in read_yaml_file(tmp_path / "none.yaml").faults[0].message
    assert "cannot be read" in read_yaml_file(tmp_path).faults[0].message


def test_a_long_line_is_shown_around_the_fault():
    fault = Fault(path="f", line=1, column=300, width=4, message="m", excerpt="x" * 299 + "HERE" + "y" * 300)

    shown, caret = fault.render().splitlines()[1:]
    assert len(shown) < 130
    assert shown[caret.index("^") : caret.rindex("^") + 1] == "HERE"


def test_the_nearest_word_is_named():
    assert nearest("remedation", ["remediation", "explanation"]) == "Did you mean `remediation`?"
    assert nearest("zzz", ["b", "a"]) == "Valid here: a, b."


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20)


class Quoting(yaml.SafeDumper):
    """Writes all text in quotes: what YAML 1.1 takes for plain text, YAML 1.2 may take for a number (`0E0`)."""


Quoting.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


@given(VALUES)
def test_what_was_written_is_what_is_read(value):
    """Whatever a YAML writer makes of plain values comes back, each with a place that lies in the text."""
    text = yaml.dump(value, Dumper=Quoting)

    document = read_yaml(text, "f.yaml")

    assert document.faults == ()
    assert document.value == value
    assert all(1 <= place.line <= text.count("\n") + 1 for place in document.values.values())


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_and_never_raises(text):
    document = read_yaml(text, "f.yaml")

    for fault in document.faults:
        assert fault.message
        assert fault.render().startswith("f.yaml")
        assert fault.line <= text.count("\n") + 2
