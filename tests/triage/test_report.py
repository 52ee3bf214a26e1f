"""The same judgement as a table for people, as JSON and as markdown; without a release, one for each range that differs."""

import json
from itertools import pairwise

import pytest

from sglang_watchdog.triage.knowledge import Knowledge
from sglang_watchdog.triage.report import to_json, to_markdown, to_text
from sglang_watchdog.triage.run import Request, triage


def told(knowledge: Knowledge, words: str, release: str = "", gpu: str = "H200"):
    return triage(knowledge, Request(words=[words], release=release, gpu=gpu))


def test_without_a_release_every_range_that_differs_is_shown_once(knowledge: Knowledge):
    report = told(knowledge, "--cuda-graph-max-bs 512 --tp 4")
    spans = [(one.first, one.last) for one in report.ranges]
    releases = knowledge.table.releases

    assert spans[0][0] == releases[0]
    assert spans[-1][1] == releases[-1]
    assert all(releases.index(one[1]) + 1 == releases.index(two[0]) for one, two in pairwise(spans))
    verdicts = [([flag.verdict for flag in one.judgement.flags], one.judgement.starts) for one in report.ranges]
    assert all(one != two for one, two in pairwise(verdicts))
    assert spans[-1][0] == "0.5.20"  # the flag is gone since


def test_json_of_several_ranges_lists_them(knowledge: Knowledge):
    document = json.loads(to_json(told(knowledge, "--enable-fused-moe-sum-all-reduce")))

    assert document["schema"] == 1
    assert len(document["releases"]) >= 2
    first = document["releases"][0]
    assert ".." in first["sglang"]
    assert first["flags"][0]["verdict"] == "unrecognised"
    assert first["starts"] is False


def test_a_release_between_two_that_were_read_gets_what_both_say(knowledge: Knowledge):
    """0.4.6.post1 was not read, and lies between two of one number that agree on tp; of 0.4.6 a later post-release was."""
    report = told(knowledge, "--tp 4", release="0.4.6.post1")

    assert report.ranges[0].judgement.release == "0.4.6.post1"
    assert report.ranges[0].judgement.read_at == "0.4.6.post5"


def test_the_table_says_verdict_reason_and_cure(knowledge: Knowledge):
    text = to_text(told(knowledge, "--num-continuous-decode-steps 4 --cuda-graph-max-bs 64", "0.5.20"))

    assert "does NOT start" in text
    assert "dead            --num-continuous-decode-steps 4" in text
    assert "read by nothing since 0.3.6" in text
    assert "--cuda-graph-max-bs-decode" in text
    assert "known by declaration only" in text
    assert "\033[" not in text
    assert max(map(len, text.splitlines())) <= 160


def test_colour_is_only_on_request(knowledge: Knowledge):
    assert "\033[33mdead" in to_text(told(knowledge, "--num-continuous-decode-steps 4", "0.5.12"), colour=True)


def test_markdown_is_a_table_whose_cells_hold_no_bar(knowledge: Knowledge):
    text = to_markdown(told(knowledge, "--tp 4 --served-model-name 'a|b'", "0.5.12"))
    rows = [line for line in text.splitlines() if line.startswith("| `--")]

    assert len(rows) == 2
    assert {row.replace("\\|", "").count("|") for row in rows} == {10}


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("--tp 4", 0),
        ("--tp 4 --num-continuous-decode-steps 4", 1),
        ("--tp 1", 1),
        ("--no-such-flag", 1),
    ],
)
def test_the_exit_code_is_1_where_a_flag_does_nothing_or_the_start_fails(knowledge: Knowledge, command: str, code: int):
    assert told(knowledge, command, "0.5.12").exit_code == code


def test_a_whole_command_without_a_model_does_not_start(knowledge: Knowledge):
    report = told(knowledge, "sglang serve --tp 4", "0.5.12")

    assert not report.ranges[0].judgement.starts
    assert "--model-path is missing" in report.ranges[0].judgement.notes[0]


def test_a_flag_given_twice_counts_once(knowledge: Knowledge):
    first, second = told(knowledge, "--tp 4 --tp 8", "0.5.12").ranges[0].judgement.flags

    assert (first.verdict, first.resolved) == ("overridden", 8)
    assert second.verdict == "acts"
