"""The load gates, and who still waits for an answer."""

from sglang_watchdog.engine.load import Load
from sglang_watchdog.model.observation import Access, Batch, Position
from sglang_watchdog.model.words import State

from .conftest import T0, low_power

AT = Position("server.log", 1, 0)


def batch(at: float, *, decode: bool, running: int, new: int = 0, tokens: int = 10) -> Batch:
    return Batch(at_s=at, position=AT, is_decode=decode, running_requests=running, new_sequences=new, new_tokens=tokens, queue_requests=0,
                 tokens_per_s=100.0)  # fmt: skip


def steady(seconds: int, running) -> Load:
    load = Load()
    for at in range(seconds + 1):
        load.on_batch(batch(float(at), decode=True, running=running(at)), float(at))
    return load


def test_fifteen_seconds_of_decode_lines_at_one_load_are_steady():
    window = steady(20, lambda at: 64).steady(20.0)

    assert window is not None
    assert window.running == 64


def test_a_swing_of_more_than_a_third_is_not_steady():
    assert steady(20, lambda at: 64 if at % 2 else 20).steady(20.0) is None


def test_slow_decode_lines_stretch_the_window_up_to_a_minute():
    load = Load()
    for at in (0.0, 11.0, 22.0, 33.0):
        load.on_batch(batch(at, decode=True, running=256), at)
    window = load.steady(33.0)

    assert window is not None
    assert window.until_s - window.from_s > 20


def test_a_silence_longer_than_two_intervals_is_not_steady():
    load = steady(20, lambda at: 64)

    assert load.steady(26.0) is None


def test_a_prefill_line_with_nothing_running_shows_that_everybody_was_answered():
    """Chunks and retractions are counted twice, so the estimate must find back to zero."""
    load = Load()
    load.on_batch(batch(0.0, decode=False, running=0, new=3), 0.0)
    load.on_access(Access(at_s=1.0, position=AT, status=200, kind="generate", count=1), 1.0)
    load.on_batch(batch(10.0, decode=False, running=0, new=1), 10.0)
    load.on_access(Access(at_s=11.0, position=AT, status=200, kind="generate", count=1), 11.0)

    assert load.unanswered() == 0


def test_a_prompt_in_chunks_counts_once():
    load = Load(chunk_size=8192)
    load.on_batch(batch(0.0, decode=False, running=0, new=1, tokens=8192), 0.0)
    load.on_batch(batch(1.0, decode=False, running=0, new=1, tokens=8192), 1.0)
    load.on_batch(batch(2.0, decode=False, running=0, new=1, tokens=500), 2.0)
    load.on_access(Access(at_s=3.0, position=AT, status=200, kind="generate", count=0), 3.0)
    load.on_access(Access(at_s=3.0, position=AT, status=200, kind="generate", count=1), 3.0)

    assert load.unanswered() == 0


def test_without_an_access_log_nobody_knows_who_waits():
    load = Load()
    load.on_batch(batch(0.0, decode=False, running=0, new=1), 0.0)

    assert load.unanswered() is None


def test_low_power_under_steady_load_fires_and_clears_when_power_rises(story):
    told = story(low_power()).start()
    for at in range(60, 90):
        told.decodes(at, 64).sample(at + 0.2, power_w=200.0, power_limit_w=700.0)
    assert [f.state for f in told.found()] == [State.FIRING]

    for at in range(90, 130):
        told.decodes(at, 64).sample(at + 0.2, power_w=600.0, power_limit_w=700.0)
    assert [f.state for f in told.end().found()] == [State.RESOLVED]


def test_the_same_power_with_one_request_says_nothing(story):
    told = story(low_power()).start()
    for at in range(60, 90):
        told.decodes(at, 1).sample(at + 0.2, power_w=200.0, power_limit_w=700.0)

    assert told.end().found() == []


def test_the_same_power_on_an_idle_server_is_unknown_not_wrong(story):
    told = story(low_power()).start()
    for at in range(60, 90):
        told.sample(at + 0.2, power_w=120.0, power_limit_w=700.0)

    verdict, because = told.end().verdict("low-power")
    assert (verdict, told.found()) == ("unknown", [])
    assert "steady" in because


def test_too_few_samples_are_unknown(story):
    told = story(low_power()).start()
    for at in range(60, 90):
        told.decodes(at, 64)
        if at % 5 == 0:
            told.sample(at + 0.2, power_w=200.0, power_limit_w=700.0)

    assert told.end().found() == []


def test_times_are_unix_seconds():
    assert T0 > 0
