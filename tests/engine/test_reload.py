"""Signatures that go and come back while a run is watched: what they concluded stands again, and nothing is concluded from lines
that nobody searched."""

from dataclasses import replace

from sglang_watchdog.model.finding import FindingChanged
from sglang_watchdog.model.signature import Condition, Pattern
from sglang_watchdog.model.words import Kind, State

from .conftest import Story, library, low_power, signature, silent_moe

CRASH = signature("crash-said", Kind.FORBIDDEN, "crash.scheduler", match=("boom",))
NONE = library()


def reload(story: Story, lib: object) -> list[FindingChanged]:
    changes = story.engine.reload(lib)  # type: ignore[arg-type]
    return [change for change in changes if isinstance(change, FindingChanged)]


def moves(changes: list[FindingChanged]) -> list[tuple[State | None, State]]:
    return [(change.was, change.finding.state) for change in changes]


def boomed() -> Story:
    return Story(library(CRASH)).start().says(50, "boom").quiet_until(60)


def test_a_line_that_was_said_fires_again_as_the_same_finding_when_its_signature_comes_back():
    story = boomed()
    (before,) = story.found()
    assert moves(reload(story, NONE)) == [(State.FIRING, State.EXPIRED)]
    story.quiet_until(70)

    assert moves(reload(story, library(CRASH))) == [(State.EXPIRED, State.FIRING)]

    (after,) = story.found()
    assert (after.id, after.reopened, after.count, after.evidence) == (before.id, 1, 1, before.evidence)
    assert story.verdict("crash-said")[0] == "yes"
    story.says(80, "boom").quiet_until(81)
    assert story.found()[0].count == 2


def test_it_comes_back_with_its_new_severity():
    story = boomed()
    reload(story, NONE)
    (change,) = reload(story, library(replace(CRASH, severity=low_power().severity.CRITICAL)))

    assert change.finding.severity.value == "critical"


def test_it_stays_expired_if_it_was_mended_meanwhile_and_coverage_does_not_say_yes():
    lib = library(CRASH)
    other_words = replace(lib, patterns={**lib.patterns, "boom": Pattern(id="boom", starts=("boom now",))})
    for mended in (library(replace(CRASH, revision=2)), library(replace(CRASH, when=(Condition(expression="args.moe"),))), other_words):
        story = boomed()
        reload(story, NONE)

        assert reload(story, mended) == []
        assert [one.state for one in story.found()] == [State.EXPIRED]
        assert story.verdict("crash-said")[0] == "unknown"


def test_it_stays_expired_if_its_run_has_ended_meanwhile():
    story = boomed()
    reload(story, NONE)
    story.start(100, digest="second")

    assert reload(story, library(CRASH)) == []


def test_what_was_resolved_before_is_not_reopened():
    lib = library(replace(CRASH, resolve=("fine",)))
    story = Story(lib).start().says(50, "boom").says(52, "fine").quiet_until(60)
    reload(story, NONE)

    assert reload(story, lib) == []
    assert [one.state for one in story.found()] == [State.RESOLVED]


def test_a_silence_that_was_concluded_stands_again():
    lib = library(silent_moe())
    story = Story(lib).start(moe=True).quiet_until(60)
    assert [one.state for one in story.found()] == [State.FIRING]
    reload(story, NONE)

    assert moves(reload(story, lib)) == [(State.EXPIRED, State.FIRING)]
    story.quiet_until(300)
    assert story.verdict("moe-silent")[0] == "yes"


def test_a_signature_that_came_after_the_start_concludes_nothing_from_lines_that_were_not_searched():
    story = Story(NONE).start(moe=True).quiet_until(60)
    reload(story, library(silent_moe(), CRASH))
    story.quiet_until(300)

    assert story.found() == []
    verdicts = {name: story.verdict(name) for name in ("moe-silent", "crash-said")}
    assert {verdict for verdict, _ in verdicts.values()} == {"unknown"}
    assert all("came with a reload" in because for _, because in verdicts.values())

    story.start(400, digest="second", moe=True).quiet_until(500)
    assert [one.signature for one in story.found()] == ["moe-silent"]


def test_a_signature_that_did_not_change_is_judged_as_before():
    story = Story(library(CRASH)).start(moe=True).quiet_until(60)
    reload(story, library(CRASH, low_power()))

    assert story.verdict("crash-said") == ("no", "it was not said in what was read")


def test_a_window_fires_again_once_its_condition_holds_again():
    lib = library(low_power())
    story = Story(lib).start()
    for second in range(50, 90):
        story.decodes(second).sample(second, power_w=100.0, power_limit_w=700.0).quiet_until(second)
    assert [one.state for one in story.found()] == [State.FIRING]
    reload(story, NONE)
    reload(story, lib)
    for second in range(90, 95):
        story.decodes(second).sample(second, power_w=100.0, power_limit_w=700.0).quiet_until(second)

    assert [(one.state, one.reopened) for one in story.found()] == [(State.FIRING, 1)]
