"""The launch command of a run: whoever tells it and whenever, the findings are the same, and no other run gets it."""

import re
from pathlib import Path
from typing import Any

import pytest

from sglang_watchdog.engine.engine import Engine
from sglang_watchdog.engine.settings import EngineSettings
from sglang_watchdog.model.flags import Launch
from sglang_watchdog.model.observation import COMMAND_LINE, Observation, Probe, Watermark
from sglang_watchdog.parse.redact import redact_words
from sglang_watchdog.parse.zone import Zone
from sglang_watchdog.scan.scanner import Scanner
from sglang_watchdog.sinks import encode
from sglang_watchdog.triage.findings import flag_judge

LOG = Path(__file__).parents[1] / "captures" / "05-moe-seed-flags" / "server.log"
ASKED = redact_words(["--model-path", "/models/moe-small", "--attention-backend", "flashinfer", "--cuda-graph-max-bs", "512", "--api-key", "sk-planted"])
NEXT_DAY = 86_400.0


@pytest.fixture(scope="module")
def judge(library):
    return flag_judge(library)


@pytest.fixture(scope="module")
def told(library) -> list[Observation]:
    """What the recorded log says until 15 s after it was ready, and a second later nothing more."""
    lines = LOG.read_bytes().splitlines(keepends=True)
    scanner = Scanner(library, "server.log", zone=Zone.utc())
    block = b"".join(line for line in lines if not re.match(rb"\[2026-11-30 15:(?:58:3[4-9]|58:[45]|59|[6-9])", line))
    found = [*scanner.feed(block, offset=0, line=1), *scanner.finish()]
    newest = max(one.at_s for one in found if one.at_s is not None)
    return [*found, Watermark(source="server.log", at_s=newest + 1)]


def start_s(told: list[Observation]) -> float:
    return next(one.at_s for one in told if one.at_s is not None)


def probe(at_s: float, *, began_s: float | None = None, words: tuple[str, ...] | None = ASKED) -> Probe:
    return Probe(at_s=at_s, source="processes", origin=COMMAND_LINE, facts={}, command=words, started_s=began_s)


def flags_of(engine: Engine) -> list[str]:
    return [encode.dumps(encode.finding(one)) for one in engine.findings.all() if one.topic.startswith("flag.")]


def live(library, judge, observations: list[Any]) -> Engine:
    engine = Engine(library, settings=EngineSettings(flag_judge=judge, awaits_launch=True))
    for one in observations:
        engine.feed(one)
        if isinstance(one, Probe):
            engine.withdraw("processes")
    engine.settle()
    return engine


def checked(library, judge, told: list[Observation], launch: Launch | None) -> Engine:
    engine = Engine(library, settings=EngineSettings(flag_judge=judge, awaits_launch=launch is not None, launch=launch))
    for one in told:
        engine.feed(one)
    engine.finish()
    return engine


def test_what_was_asked_and_is_not_run_is_a_warning_with_both_values(library, judge, told):
    engine = checked(library, judge, told, Launch(words=ASKED, source="--command"))
    overridden = {one.signature: one for one in engine.findings.all() if one.topic == "flag.overridden"}

    found = overridden["flag-attention-backend"]
    assert found.severity.value == "warning"
    assert "asked flashinfer, runs with triton" in found.summary
    assert {("asked.attention_backend", "flashinfer"), ("args.attention_backend", "triton")} <= {
        (one.name, one.value) for one in found.evidence if hasattr(one, "name")
    }
    assert "asked 512, runs with 256" in overridden["flag-cuda-graph-max-bs"].summary
    assert "sk-planted" not in repr(engine.snapshot())


@pytest.mark.parametrize("when", ["before the log", "after the dump", "when all was read"])
def test_live_and_check_find_the_same_whenever_the_command_becomes_known(library, judge, told, when: str):
    wanted = flags_of(checked(library, judge, told, Launch(words=ASKED, source="--command")))
    began_s = start_s(told)
    place = {"before the log": 1, "after the dump": len(told) // 2, "when all was read": len(told)}[when]
    known = [probe(began_s + 1, began_s=began_s - 20)]
    engine = live(library, judge, [*told[:place], *known, *told[place:], *known])

    assert flags_of(engine) == wanted
    assert wanted


def test_flags_wait_for_the_command_and_no_longer(library, judge, told):
    assert live(library, judge, told).runs[-1].flag_table is None

    none = live(library, judge, [*told, probe(start_s(told) + 1, words=None)])
    assert none.runs[-1].flag_table.launch is None
    assert flags_of(none) == flags_of(checked(library, judge, told, None))


def test_a_process_that_began_later_launched_another_life(library, judge, told):
    later = start_s(told) + NEXT_DAY
    engine = live(library, judge, [*told, probe(later, began_s=later)])

    assert engine.runs[-1].launch is None
    assert "began after this run" in engine.runs[-1].flag_table.because
    assert "flag.overridden" not in {one.topic for one in engine.findings.all()}


def test_a_process_that_has_run_for_hours_did_not_begin_this_run(library, judge, told):
    """A neighbour with the same port and model in another container, or a recording that is played beside a real server."""
    began_s = start_s(told)
    engine = live(library, judge, [*told, probe(began_s + 60, began_s=began_s - 4 * 3600)])

    assert engine.runs[-1].launch is None
    assert "240 minutes before this run's first line" in engine.runs[-1].flag_table.because


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--model-path", "/models/moe-small", "--port", "30001", "--attention-backend", "fa3"), "it listens on port 30001, this run on 30000"),
        (("--model-path", "/models/other", "--attention-backend", "fa3"), "it loads other, this run moe-small"),
        (("--model-path", "/models/moe-small", "--served-model-name", "other"), "served_model_name is other there"),
        (("--model-path", "/models/moe-small", "--tp", "4"), "tp_size is 4 there and 1 in this run's dump"),
    ],
)
def test_the_command_of_another_server_is_not_held_against_this_one(library, judge, told, words, says):
    engine = checked(library, judge, told, Launch(words=words, source="--command"))

    assert says in engine.runs[-1].flag_table.because
    assert engine.runs[-1].flag_table.launch is None  # and it is not shown as what was asked
    assert flags_of(engine) == flags_of(checked(library, judge, told, None))


def test_only_the_newest_run_is_held_against_the_command(library, judge):
    """The file holds two lives; the first was launched with other flags, as far as anybody knows."""
    text = LOG.read_text()
    again = text.replace("2026-11-30 15:", "2026-11-30 19:")
    scanner = Scanner(library, "server.log", zone=Zone.utc())
    both = (text + again).encode()
    engine = checked(library, judge, [*scanner.feed(both, offset=0, line=1), *scanner.finish()], Launch(words=ASKED, source="--command"))
    first, second = engine.runs

    assert (first.flag_table.launch, second.flag_table.launch.words) == (None, ASKED)
    assert {one.run for one in engine.findings.all() if one.topic == "flag.overridden"} == {second.id}


def test_what_the_server_decided_by_itself_is_told_with_its_line(library, judge, told):
    table = checked(library, judge, told, None).runs[-1].flag_table
    decided = {one.name: one for one in table.decisions}

    runner = decided["moe_runner"]
    assert (runner.in_dump, runner.value, runner.how) == ("auto", "triton", "seen")
    assert "MoE kernel config" in runner.evidence[0].text
    assert (decided["decode_graph"].value, decided["decode_graph"].how) == (True, "seen")
    assert "Capture cuda graph begin" in decided["decode_graph"].evidence[0].text
    assert (decided["graph_max_bs"].value, decided["graph_max_bs"].evidence[0].text[-14:-1]) == (256, "240, 248, 256")
    assert (decided["allreduce_fusion"].value, decided["allreduce_fusion"].how) == (False, "derived")
    assert decided["allreduce_fusion"].source.startswith("0.5.")
    assert table.described + table.undescribed > 300
