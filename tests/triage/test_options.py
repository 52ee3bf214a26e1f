"""Words mean here what argparse makes of them in that release; argparse itself, built from the table, is the judge."""

import argparse
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_watchdog.library.files import default_root
from sglang_watchdog.library.flag_declarations import DeclaredOption
from sglang_watchdog.library.flag_table import load_table
from sglang_watchdog.triage.options import GivenFlag, read_options

TABLE = load_table(default_root() / "flag_fields.json")
SIMPLE = {"int": int, "float": float, "str": str}


def read(command: str, release: str = "0.5.12.post1") -> list[GivenFlag]:
    return read_options(command.split(), TABLE.options_at(release))


@pytest.mark.parametrize(
    ("command", "field", "value"),
    [
        ("--tp 4", "tp_size", 4),
        ("--tp=4", "tp_size", 4),
        ("--tensor-parallel-size 4", "tp_size", 4),
        ("--mem-frac 0.8", "mem_fraction_static", 0.8),
        ("--trust-remote", "trust_remote_code", True),
        ("--chunked-prefill-size -1", "chunked_prefill_size", -1),
        ("--cuda-graph-bs 1 2 4", "cuda_graph_bs", [1, 2, 4]),
        ("--enable-metrics", "enable_metrics", True),
        ("--api-key secret", "api_key", "***"),
    ],
)
def test_a_word_is_read_as(command: str, field: str, value: Any):
    (flag,) = read(command)

    assert (flag.field, flag.value, flag.error) == (field, value, "")


@pytest.mark.parametrize(
    ("command", "release", "kind", "says"),
    [
        ("--cuda-graph-max-bs 64", "0.5.20", "ambiguous", "--cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill"),
        ("--enable_metrics", "0.5.12.post1", "unrecognised", "no such option"),
        ("--tp four", "0.5.12.post1", "value", "no whole number"),
        ("--sampling-backend magic", "0.5.12.post1", "value", "not one of"),
        ("--tp --dp 2", "0.5.12.post1", "missing", "missing"),
        ("--enable-metrics=yes", "0.5.12.post1", "value", "takes no value"),
        ("--tp 4 8", "0.5.12.post1", "unrecognised", "'8' belongs to no option"),
    ],
)
def test_argparse_would_stop_at(command: str, release: str, kind: str, says: str):
    (bad,) = (flag for flag in read(command, release) if flag.error)

    assert bad.kind == kind
    assert says in bad.error


@pytest.mark.parametrize("value", ["$TP", "${TP:-4}", "<tp>", "{{tp}}"])
def test_a_gap_that_is_filled_elsewhere_has_no_value(value: str):
    (flag,) = read_options(["--tp", value], TABLE.options_at("0.5.12.post1"))

    assert not flag.is_value_known
    assert not flag.error


# --- argparse as the judge -----------------------------------------------------------------------------------------------


class Refused(Exception):
    """argparse ended the start."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise Refused(message)


def argparse_of(options: dict[str, DeclaredOption]) -> Parser:
    parser = Parser(argument_default=argparse.SUPPRESS, add_help=False)
    for text, one in options.items():
        if one.action in ("flag", "alias-flag"):
            parser.add_argument(text, dest=one.field, action="store_true")
        else:
            parser.add_argument(text, dest=one.field, type=SIMPLE[one.type], nargs=one.nargs, choices=one.choices)
    return parser


def parsed_by_argparse(words: list[str], options: dict[str, DeclaredOption]) -> tuple[dict[str, Any], str]:
    """(what argparse stores, why it stops): one of the two is empty."""
    try:
        return vars(argparse_of(options).parse_args(words)), ""
    except Refused as refused:
        return {}, str(refused)


def is_simple(one: DeclaredOption) -> bool:
    """Whether argparse alone, without the release's own types and actions, can read the option."""
    if one.action in ("flag", "alias-flag"):
        return True
    return one.action in ("store", "alias") and one.type in SIMPLE and one.nargs in (None, "+", "*") and (one.choices is None or one.type == "str")


OPTIONS = {
    release: {
        text: one
        for text, one in TABLE.options_at(release).items()
        if text.startswith("--") and is_simple(one) and "key" not in text and "token" not in text and "password" not in text and "config" not in text
    }
    for release in ("0.5.9", "0.5.12.post1", "0.5.20")
}
VALUES = ("4", "-1", "0.5", "-0.5", "x", "fa3", "triton", "auto", "a b", "-", "1e3", "-x y")


@st.composite
def commands(draw: st.DrawFn) -> tuple[str, list[str]]:
    release = draw(st.sampled_from(sorted(OPTIONS)))
    words: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        text = draw(st.sampled_from(sorted(OPTIONS[release])))
        text = text[: draw(st.integers(max(4, len(text) - 6), len(text)))]
        values = draw(st.lists(st.sampled_from(VALUES), max_size=2))
        if values and draw(st.booleans()):
            words += [f"{text}={values[0]}", *values[1:]]
        else:
            words += [text, *values]
    return release, words


@settings(max_examples=150, deadline=None)
@given(commands())
def test_argparse_agrees(command: tuple[str, list[str]]):
    release, words = command
    options = OPTIONS[release]
    flags = read_options(words, options)
    stops = [flag.error for flag in flags if flag.error]
    expected, refusal = parsed_by_argparse(words, options)

    assert bool(stops) == bool(refusal), (stops, refusal)
    assert refusal or {flag.field: flag.value for flag in flags} == expected
