"""A server that starts again and again is one finding, with its starts as evidence and the failures before the newest folded."""

import pytest

from sglang_watchdog.library.examples import Player
from sglang_watchdog.library.load import load
from sglang_watchdog.library.stories import read_story
from sglang_watchdog.model.finding import LineEvidence

START = "server_args=ServerArgs(model_path='/models/a', tp_size=1, log_level='info')"
MISSING = "OSError: /models/a does not appear to have a file named config.json."


@pytest.fixture(scope="module")
def played():
    story = "".join(f"{at}s {START}\n{at + 9}s | {MISSING}\n" for at in range(0, 240, 60))
    return Player(load().library).play(read_story(story + "240s (watermark)"))


def test_a_loop_is_one_finding_whose_evidence_is_its_starts(played):
    (loop,) = [one for one in played.findings if one.signature == "startup-restart-loop"]

    assert loop.run is None
    assert [one.text.count("server_args=") for one in loop.evidence if isinstance(one, LineEvidence)] == [1, 1, 1, 1]
    assert loop.summary.startswith("4 starts within half an hour, one every 60 seconds")
    assert loop.summary.endswith("No complete model stands at /models/a.")


def test_the_failures_before_the_newest_are_folded_and_the_newest_stands(played):
    (loop,) = [one for one in played.findings if one.signature == "startup-restart-loop"]
    failures = [one for one in played.findings if one.signature == "startup-model-path-not-found"]

    assert [one.explained_by for one in failures] == [loop.id] * 3 + [None]
    assert {one.id for one in failures[:3]} <= set(loop.explains)
