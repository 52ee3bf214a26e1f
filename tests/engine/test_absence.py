"""Absence is evidence only if nothing was lost, the level lets the line through, the path had its chance and it is time."""

import pytest

from sglang_watchdog.model.words import State

from .conftest import silent_moe

SILENT = "moe-silent"


def test_silence_after_a_complete_start_is_an_answer(story):
    told = story(silent_moe()).start(moe=True).quiet_until(55).end()

    (finding,) = told.found()
    absence = next(e for e in finding.evidence if hasattr(e, "awaited"))
    assert finding.topic == "moe.triton-inactive"
    assert absence.witness is not None
    assert absence.witness.text == "load-end"
    assert any(getattr(e, "name", "") == "args.moe" and e.line == 1 for e in finding.evidence)


def test_any_member_of_the_family_proves_the_path_active(story):
    """A tuned table is as good a proof as the warning about a missing one."""
    told = (
        story(silent_moe())
        .dump(0, moe=True)
        .says(12, "load-end")
        .says(25, "tuned config")
        .says(30, "capture-end")
        .says(40, "ready")
    )

    assert told.quiet_until(60).end().verdict(SILENT)[0] == "no"
    assert told.found() == []


def test_silence_proves_nothing_in_a_log_joined_late(story):
    """Without the run's first line we cannot know that the awaited line was never printed."""
    told = story(silent_moe()).says(12, "load-end").says(30, "capture-end").says(40, "ready").quiet_until(90).end()

    assert told.verdict(SILENT) == ("unknown", "the log does not show the start of this run")


def test_silence_proves_nothing_when_the_log_level_hides_the_line(story):
    told = story(silent_moe()).start(moe=True, log_level="warning").quiet_until(60).end()

    assert told.verdict(SILENT) == ("unknown", "--log-level warning hides it")


def test_silence_proves_nothing_over_a_gap(story):
    told = story(silent_moe()).dump(0, moe=True).gap(5, 15)
    for at, name in ((16, "load-end"), (30, "capture-end"), (40, "ready")):
        told.says(at, name)

    assert told.quiet_until(60).end().verdict(SILENT)[0] == "unknown"


def test_silence_proves_nothing_without_a_witness_of_that_kind(story):
    told = story(silent_moe()).dump(0, moe=True).says(30, "capture-end").says(40, "ready").quiet_until(60).end()

    assert told.verdict(SILENT)[1].startswith("no line of this level and process was seen")


def test_silence_proves_nothing_if_the_path_had_no_chance_to_speak(story):
    told = story(silent_moe()).dump(0, moe=True).says(12, "load-end").says(40, "ready").quiet_until(60).end()

    assert told.verdict(SILENT) == ("unknown", "nothing shows that this code path had its chance to speak")


def test_silence_proves_nothing_before_the_phase_is_over(story):
    told = story(silent_moe()).dump(0, moe=True).says(12, "load-end").says(30, "capture-end").quiet_until(60).end()

    assert told.verdict(SILENT)[1].startswith("the run has not reached ready")


def test_the_log_must_go_on_for_the_grace_time(story):
    told = story(silent_moe()).start(moe=True).quiet_until(45).end()

    assert told.verdict(SILENT) == ("unknown", "the log ends within 10 s of ready")


@pytest.mark.parametrize(
    ("low", "high", "word"), [("0.5.13", "0.5.14", "outside"), ("0.5.12.post1", "0.5.13", "only"), (None, None, "not known")]
)
def test_silence_proves_nothing_in_a_release_whose_sources_were_not_read(story, low, high, word):
    """Messages are reworded; a literal that is gone proves nothing by its silence."""
    told = story(silent_moe()).start(moe=True, release=(low, high) if low else None).quiet_until(60).end()

    verdict, because = told.verdict(SILENT)
    assert verdict == "unknown"
    assert word in because


def test_a_custom_logging_configuration_proves_nothing(story):
    from sglang_watchdog.model.observation import Tally

    told = story(silent_moe()).start(moe=True)
    told.engine.feed(Tally(at_s=None, source="server.log", lines=3, bytes=10, sglang_lines=3, odd_lines=3))

    assert told.quiet_until(60).end().verdict(SILENT)[0] == "unknown"


def test_what_does_not_apply_is_neither_yes_nor_unknown(story):
    assert story(silent_moe()).start(moe=False).quiet_until(60).end().verdict(SILENT)[0] == "not-applicable"


def test_a_line_that_comes_after_all_resolves_the_finding(story):
    told = story(silent_moe()).start(moe=True).quiet_until(60).says(70, "default config").end()

    assert [f.state for f in told.found()] == [State.RESOLVED]


def test_per_rank_silence_names_nobody_while_every_rank_spoke(story):
    told = story(silent_moe(per_rank=True)).dump(0, moe=True)
    for rank in ("TP0", "TP1"):
        told.says(12, "load-end", rank).says(25, "default config", rank).says(30, "capture-end", rank)
    told.says(40, "ready", "TP0").says(40, "ready", "TP1").quiet_until(60).end()

    assert told.verdict(SILENT)[0] == "no"
