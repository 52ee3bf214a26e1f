"""Results must not depend on when things arrive, only on when they happened."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_watchdog.engine.engine import Engine
from sglang_watchdog.engine.sequencer import Sequencer
from sglang_watchdog.model.observation import Batch, Position, Sample, Watermark

from .conftest import library, low_power


def batches(times: list[float]) -> list[Batch]:
    return [
        Batch(
            at_s=at, position=Position("log", n + 1, n), is_decode=True, running_requests=64, queue_requests=0, tokens_per_s=900.0
        )
        for n, at in enumerate(times)
    ]


def samples(times: list[float], power: float = 200.0) -> list[Sample]:
    return [Sample(at_s=at, gpu=0, power_w=power, power_limit_w=700.0) for at in times]


def test_a_source_that_has_not_spoken_holds_the_others_back():
    order = Sequencer()
    order.announce("log")
    order.announce("gpus")

    assert list(order.feed("gpus", 5.0, samples([5.0])[0])) == []
    assert len(list(order.feed("log", 7.0, batches([7.0])[0]))) == 1


def test_a_watermark_releases_what_it_has_passed():
    order = Sequencer()
    order.announce("log")
    order.feed("gpus", 5.0, samples([5.0])[0])
    list(order.feed("gpus", 5.0, samples([5.0])[0]))

    assert len(list(order.feed("log", 6.0, Watermark(source="log", at_s=6.0)))) >= 1


def test_a_stuck_source_can_be_withdrawn():
    order = Sequencer()
    order.announce("gpus")
    assert list(order.feed("log", 1.0, batches([1.0])[0])) == []

    assert len(list(order.withdraw("gpus"))) == 1


@settings(deadline=None)
@given(st.data())
def test_any_arrival_gives_the_same_findings(data):
    """Log and samples arrive in any interleaving that keeps each source's own order."""
    log, gpu = batches([float(at) for at in range(100, 150)]), samples([at + 0.25 for at in range(100, 150)])

    def findings(interleaving: list[bool]) -> list[object]:
        engine = Engine(library(low_power()))
        engine.announce("log")
        engine.announce("gpus")
        left, right = iter(log), iter(gpu)
        for take_log in interleaving:
            following = next(left if take_log else right, None)
            if following is not None:
                engine.feed(following)
        for rest in (*left, *right):
            engine.feed(rest)
        engine.finish()
        return engine.findings.all()

    expected = findings([True, False] * 50)
    assert expected
    assert findings(data.draw(st.lists(st.booleans(), min_size=100, max_size=100))) == expected
