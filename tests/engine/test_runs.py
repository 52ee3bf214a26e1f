"""A run's life: what begins it, what moves it on, and how an orderly stop differs from a crash."""

from sglang_watchdog.engine.runs import NEXT_PHASE
from sglang_watchdog.model.words import Kind, Phase, Severity, State

from .conftest import signature

CRASH = signature("crash", Kind.FORBIDDEN, "crash.scheduler", Severity.CRITICAL, match=("child-died",),
                  not_during=frozenset({Phase.STOPPING, Phase.STOPPED}))  # fmt: skip


def test_a_run_goes_from_its_dump_through_loading_and_capturing_to_serving(story):
    """The phases that people ask about at 3 a.m., each from its own line."""
    told = story()
    phases = [told.dump(0).phase]
    for at, name in ((5, "load-begin"), (20, "capture-begin"), (40, "ready")):
        phases.append(told.says(at, name).phase)
    phases.append(told.decodes(45).phase)

    assert phases == [Phase.STARTING, Phase.LOADING, Phase.CAPTURING, Phase.READY, Phase.SERVING]


def test_during_the_start_the_run_is_where_its_slowest_rank_is(story):
    """A straggler must show."""
    told = story().dump(0).says(5, "load-begin", "TP0").says(5, "load-begin", "TP1").says(9, "capture-begin", "TP0")

    assert told.phase is Phase.LOADING
    assert told.says(12, "capture-begin", "TP1").phase is Phase.CAPTURING


def test_an_orderly_stop_prints_crash_lines_and_is_no_crash(story):
    """SIGTERM kills the children, so the watchdog of sub-processes says "crashed" in every clean stop."""
    told = story(CRASH).start().decodes(60).says(100, "sigterm").says(101, "child-died").says(101, "sigquit")

    assert told.phase is Phase.STOPPING
    assert told.end().found() == []


def test_the_same_lines_without_a_stop_are_a_crash(story):
    told = story(CRASH).start().decodes(60).says(100, "child-died")

    assert told.phase is Phase.CRASHED
    assert [(f.topic, f.state) for f in told.end().found()] == [("crash.scheduler", State.FIRING)]


def test_a_second_dump_begins_another_run_and_expires_what_fired_in_the_first(story):
    told = story(CRASH).start().says(60, "child-died").dump(100, digest="other")

    assert len(told.engine.runs) == 2
    assert [f.state for f in told.found()] == [State.EXPIRED]


def test_a_second_dump_of_another_node_joins_the_run(story):
    """A merged log of two nodes holds two dumps of one server."""
    node = {"nnodes": 2, "model_path": "m", "dist_init_addr": "10.0.0.1:5000", "tp_size": 16}
    told = story().dump(0, node_rank=0, **node).dump(3, node_rank=1, digest="node 1", **node)

    assert len(told.engine.runs) == 1


def test_the_run_id_survives_being_read_again(story):
    """Rotation, restart and replay must not make a new run of an old one."""
    assert story().start().engine.run.id == story().start().engine.run.id
    assert story().start().engine.run.id != story().start(5).engine.run.id


def test_launcher_lines_before_the_dump_belong_to_the_run_that_it_begins(story):
    """Overrides are logged before the dump; after a stop they must not count for the run that is gone."""
    warned = signature("fallback", Kind.FORBIDDEN, "attention.backend-overridden", match=("override",))
    told = story(warned).start().says(50, "sigterm").says(52, "shutdown-complete")
    told.says(60, "prelude").says(61, "override").dump(62, digest="next").end()

    first, second = told.engine.runs
    assert [f.run for f in told.found()] == [second.id]
    assert first.phase is Phase.STOPPED


def test_a_log_joined_late_serves_without_ever_having_been_seen_to_start(story):
    assert story().decodes(0).phase is Phase.SERVING


def test_every_state_of_the_table_names_known_phases():
    assert set(NEXT_PHASE.values()) <= set(Phase)
    assert all(to is not Phase.CRASHED for (phase, _), to in NEXT_PHASE.items() if phase is Phase.STOPPING)


def test_the_same_start_in_two_files_is_one_run(story):
    """A rotated part beside a copy of the whole: the dump stands in both, and no start ended without a word."""
    told = story(CRASH).dump(0).dump(0).says(5, "load-begin").says(5, "load-begin").says(40, "ready").decodes(60)

    assert len(told.engine.runs) == 1
    assert told.end().found() == []
