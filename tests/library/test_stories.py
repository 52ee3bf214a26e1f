"""Examples are told in a small language; each word becomes what the server, the GPU or the reader would deliver."""

import pytest

from sglang_watchdog.library.stories import START_S, BadStory, Text, read_story
from sglang_watchdog.model.observation import Gap, GpuEvent, Opened, Probe, ProcessSeen, Sample, Watermark


def test_messages_get_the_servers_prefix():
    opened, *lines = read_story("0s server_args=ServerArgs(tp_size=2)\n70s [TP0 EP1] Load weight end. type=X\n")

    assert opened == Opened(at_s=START_S, source="story", from_start=True)
    assert [line.text for line in lines] == [
        "[2025-10-09 08:53:20] server_args=ServerArgs(tp_size=2)",
        "[2025-10-09 08:54:30 TP0 EP1] Load weight end. type=X",
    ]


def test_bars_keep_text_as_it_is_and_lines_without_a_time_follow_the_one_before():
    _, head, tail, raw = read_story("12s [TP0] Scheduler hit an exception: Traceback\n| torch.OutOfMemoryError: x\n13s | INFO: 127.0.0.1\n")

    assert tail == Text(START_S + 12, "torch.OutOfMemoryError: x")
    assert head.at_s == tail.at_s
    assert raw.text == "INFO: 127.0.0.1"


def test_a_line_with_its_own_stamp_keeps_it():
    assert read_story("5s [2024-01-01 00:00:00 TP1] text")[1].text == "[2024-01-01 00:00:00 TP1] text"


def test_a_stretch_repeats_a_line_in_order_of_time():
    steps = read_story("10s..12s/1s [TP0] Decode batch.\n11s (watermark)\n")[1:]

    assert [step.at_s - START_S for step in steps] == [10, 11, 11, 12]


def test_samples_name_fields_and_gpus():
    steps = read_story("3s (sample gpu=0-1 power_w=250 power_limit_w=700 throttle=SwPowerCap,GpuIdle extra.remap=1)")[1:]

    assert [step.gpu for step in steps] == [0, 1]
    assert isinstance(steps[0], Sample)
    assert steps[0].power_w == 250
    assert steps[0].throttle_reasons == ("SwPowerCap", "GpuIdle")
    assert steps[0].extra == {"remap": 1.0}
    assert steps[0].sm_util is None


def test_gaps_events_probes_processes_and_watermarks():
    _, gap, xid, probe, process, mark = read_story(
        "1s (gap 0s..1s reason=truncated)\n2s (xid gpu=3 xid=79)\n3s (probe args.tp_size=2 origin='/server_info')\n"
        "4s (process pid=7 state=gone exit_code=-9)\n5s (watermark source=gpus)\n"
    )

    assert gap == Gap(source="story", from_s=START_S, to_s=START_S + 1, reason="truncated")
    assert xid == GpuEvent(at_s=START_S + 2, gpu=3, event="xid", xid=79)
    assert isinstance(probe, Probe)
    assert (probe.facts, probe.origin) == ({"args.tp_size": 2}, "/server_info")
    assert isinstance(process, ProcessSeen)
    assert process.exit_code == -9
    assert mark == Watermark(source="gpus", at_s=START_S + 5)


def test_a_log_joined_late_is_not_read_from_its_start():
    assert read_story("(joined-late)\n1s text")[0].from_start is False


@pytest.mark.parametrize(
    ("story", "words"),
    [
        ("1s (sampel gpu=0)", "`(sampel)` is none of"),
        ("1s (sample gpu=0 power=3)", "unknown field `power`"),
        ("1s (sample gpu=x)", "is not like 0, 0,2 or 0-7"),
        ("9s..1s/1s text", "goes nowhere"),
        ("1s (gap sometime)", "is not like (gap 10s..20s)"),
        ("0s..9h/1s text", "more than"),
    ],
)
def test_what_cannot_be_told_is_refused_with_its_line(story, words):
    with pytest.raises(BadStory, match="line 2 of the story") as caught:
        read_story("# a comment\n" + story)
    assert words in str(caught.value)
