"""A file named by --config is merged as SGLang merges it: before the command line's own words, keys as they are written."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sglang_watchdog.triage.verdicts import Judgement

START = "sglang serve --model-path m --config server.yaml"


def judge(judged: Callable[..., Judgement], folder: Path, text: str, command: str = START) -> Judgement:
    (folder / "server.yaml").write_text(text)
    return judged(command, "0.5.12", "H200", folder=folder)


def test_its_options_are_judged_with_the_others(judged: Callable[..., Judgement], tmp_path: Path):
    judgement = judge(judged, tmp_path, "tp-size: 4\nenable-metrics: true\ncuda-graph-bs: [1, 2, 4]\ndisable-radix-cache: false\n")
    values = {flag.flag: flag.value for flag in judgement.flags}

    assert values == {"--tp-size": 4, "--enable-metrics": True, "--cuda-graph-bs": [1, 2, 4], "--model-path": "m"}
    assert judgement.starts


def test_the_command_line_wins(judged: Callable[..., Judgement], tmp_path: Path):
    judgement = judge(judged, tmp_path, "tp-size: 4\n", START + " --tp 8")
    first, *_, last = (flag for flag in judgement.flags if flag.field == "tp_size")

    assert (first.verdict, first.resolved) == ("overridden", 8)
    assert last.verdict == "acts"


def test_an_underscore_in_it_ends_the_start(judged: Callable[..., Judgement], tmp_path: Path):
    judgement = judge(judged, tmp_path, "tp_size: 4\n")

    assert not judgement.starts
    assert [flag.verdict for flag in judgement.flags if flag.flag == "--tp_size"] == ["unrecognised"]


@pytest.mark.parametrize("text", ["a: [", "- a\n- b\n", "text"])
def test_what_is_no_mapping_ends_the_start(judged: Callable[..., Judgement], tmp_path: Path, text: str):
    judgement = judge(judged, tmp_path, text)

    assert not judgement.starts
    assert "server.yaml" in judgement.notes[0]


def test_a_file_that_is_elsewhere_leaves_its_flags_unknown(judged: Callable[..., Judgement], tmp_path: Path):
    """It may stand on the server's machine: that is no reason to say the start fails."""
    judgement = judged("sglang serve --config server.yaml", "0.5.12", "H200", folder=tmp_path)

    assert judgement.starts
    assert "is not here" in judgement.notes[0]


def test_two_of_them_and_other_kinds_of_file_are_refused(judged: Callable[..., Judgement], tmp_path: Path):
    assert not judge(judged, tmp_path, "tp-size: 4\n", START + " --config server.yaml").starts
    assert not judged("sglang serve --model-path m --config server.json", "0.5.12", folder=tmp_path).starts
