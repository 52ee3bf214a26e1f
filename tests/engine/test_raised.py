"""A finding that rests on a traceback names what was raised."""

import pytest

from sglang_watchdog.engine.words import fill
from sglang_watchdog.library.examples import Player
from sglang_watchdog.library.load import load
from sglang_watchdog.library.stories import read_story
from sglang_watchdog.model.finding import LineEvidence


@pytest.fixture(scope="module")
def player():
    return Player(load().library)


DIED = """
    0s  The server is fired up and ready to roll!
    2s  [TP0] Scheduler hit an exception: Traceback (most recent call last):
        |   File "/usr/lib/python3/dist-packages/sglang/srt/managers/scheduler.py", line 3000, in run_scheduler_process
        | KeyError: 'abc'
"""


def finding(player, story, signature):
    return next(one for one in player.play(read_story(story)).findings if one.signature == signature)


def quoted(one):
    return [line.text for line in one.evidence if isinstance(line, LineEvidence)]


def test_the_last_line_of_the_traceback_is_evidence_and_stands_in_the_summary(player):
    died = finding(player, DIED + "9s (watermark)", "crash-scheduler-exception")

    assert "died of KeyError: 'abc'; the server" in died.summary
    assert quoted(died)[-1] == "KeyError: 'abc'"
    assert died.count == 1


def test_the_rank_that_raised_first_names_the_crash(player):
    second = """
    3s  [TP1] Scheduler hit an exception: Traceback (most recent call last):
        |   File "/usr/lib/python3/dist-packages/torch/distributed/c10d.py", line 30, in all_reduce
        | RuntimeError: Connection closed by peer
    9s  (watermark)
    """
    died = finding(player, DIED + second, "crash-scheduler-exception")

    assert "KeyError: 'abc'" in died.summary
    assert "RuntimeError: Connection closed by peer" in quoted(died)
    assert died.ranks == ("TP0", "TP1")


def test_of_a_chain_the_exception_that_ended_the_process_is_named(player):
    chain = """
        | During handling of the above exception, another exception occurred:
        | Traceback (most recent call last):
        |   File "/usr/lib/python3/dist-packages/sglang/srt/managers/scheduler.py", line 3001, in run
        | RuntimeError: no such weight
    9s  (watermark)
    """
    died = finding(player, DIED + chain, "crash-scheduler-exception")

    assert "RuntimeError: no such weight" in died.summary
    assert {"KeyError: 'abc'", "RuntimeError: no such weight"} <= set(quoted(died))


def test_without_its_last_line_the_summary_says_so(player):
    cut = DIED.replace("        | KeyError: 'abc'\n", "")

    assert "does not hold" in finding(player, cut + "9s (watermark)", "crash-scheduler-exception").summary


def test_secrets_and_sentences_of_users_stay_out_of_the_summary(player):
    story = DIED.replace("KeyError: 'abc'", "ValueError: cannot parse 'tell me a story' with api_key=topsecret1")
    died = finding(player, story + "9s (watermark)", "crash-scheduler-exception")

    assert "ValueError: cannot parse '' with api_key=***" in died.summary
    assert "topsecret1" not in " ".join(quoted(died))


@pytest.mark.parametrize(
    ("template", "values", "said"),
    [
        ("{n:~start/starts}", {"n": 1}, "1 start"),
        ("{n:.0f~start/starts}", {"n": 3.0}, "3 starts"),
        ("{what:|nothing}", {"what": None}, "nothing"),
        ("{what:.0%|unknown}", {}, "unknown"),
        ("{what}", {}, "?"),
        ("It said: {what}.", {"what": "it joined."}, "It said: it joined."),
        ("It said: {what}, twice.", {"what": "gone."}, "It said: gone, twice."),
        ("under {what}.", {"what": "../models"}, "under ../models."),
    ],
)
def test_a_field_brings_its_noun_or_a_word_for_what_is_unknown(template, values, said):
    assert fill(template, {}, values) == said
