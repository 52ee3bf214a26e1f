"""The metrics contract: names, labels, units, and that every series is there from the first scrape."""

import math
import subprocess

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sglang_watchdog.model.finding import Roofline
from sglang_watchdog.model.words import Phase, Severity, State
from sglang_watchdog.sinks.metrics import BoardCollector, registry
from sglang_watchdog.sinks.state import Board
from sinks import material
from sinks.needs import needs

CONTRACT = {
    "finding_active": {"server", "topic", "severity"},
    "findings": {"server", "severity", "state"},
    "finding_transitions_total": {"server", "topic", "to"},
    "signature_verdicts": {"server", "verdict"},
    "server_phase": {"server", "phase"},
    "server_info": {"server", "run", "sglang_version", "model"},
    "server_start_timestamp_seconds": {"server"},
    "server_ready_seconds": {"server"},
    "server_running_requests": {"server", "rank"},
    "server_queue_requests": {"server", "rank"},
    "server_decode_tokens_per_second": {"server", "rank"},
    "server_kv_used_ratio": {"server", "rank"},
    "server_decode_ceiling_tokens_per_second": {"server", "bound"},
    "server_decode_ceiling_ratio": {"server", "bound"},
    **{
        f"gpu_{name}": {"gpu"}
        for name in (
            "power_watts",
            "power_limit_watts",
            "power_ratio",
            "energy_joules_total",
            "sm_utilization_ratio",
            "sm_active_ratio",
            "dram_active_ratio",
            "tensor_active_ratio",
            "pcie_receive_bytes_per_second",
            "pcie_transmit_bytes_per_second",
            "pcie_link_generation",
            "pcie_link_width",
            "temperature_celsius",
            "sm_clock_hertz",
            "memory_used_bytes",
        )
    },
    "gpu_throttle_active": {"gpu", "reason"},
    "gpu_info": {"gpu", "uuid", "name"},
    "gpu_server": {"gpu", "server", "rank"},
    **{f"source_{name}": {"source"} for name in ("read_bytes_total", "lines_total", "lag_bytes", "gaps_total", "last_line_timestamp_seconds")},
    "build_info": {"version", "revision", "library", "python"},
    "config_last_reload_successful": set(),
    "engine_errors_total": set(),
    "nvml_up": set(),
}


def scrape(board):
    """Every series of one scrape: (name without prefix, labels) to value."""
    text = BoardCollector(board).exposition().decode()
    return {
        (sample.name.removeprefix("sglang_watchdog_"), frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(board, name, **labels):
    return scrape(board)[name, frozenset(labels.items())]


def test_every_metric_of_the_contract_is_there_with_its_labels(story):
    found = {}
    for name, labels in scrape(story.board):
        found.setdefault(name, set()).add(frozenset(key for key, _ in labels))

    assert {name: found.get(name) for name in CONTRACT} == {name: {frozenset(labels)} for name, labels in CONTRACT.items()}


def test_every_series_of_a_server_exists_before_anything_happened():
    """A series that appears at its first increase hides that increase from rate() and absent()."""
    board = Board(version="1", started_at_s=0.0, servers=["chat", "code"], topics=material.TOPICS)
    board.set_sources([material.source()])
    before = scrape(board)

    for change in (material.moved(), material.fired(), material.resolved()):
        board.apply(change)
    board.set_coverage("chat", material.VERDICTS)

    named = {key for key in scrape(board) if key[0] != "server_info"}
    assert named - set(before) == set()
    assert before["finding_active", frozenset({("server", "code"), ("topic", "crash.scheduler"), ("severity", "critical")})] == 0.0
    assert math.isnan(before["server_ready_seconds", frozenset({("server", "chat")})])


def test_the_values_are_in_base_units(story):
    assert value(story.board, "gpu_power_ratio", gpu="0") == pytest.approx(200 / 700)
    assert value(story.board, "gpu_sm_utilization_ratio", gpu="1") == pytest.approx(0.93)
    assert value(story.board, "gpu_sm_clock_hertz", gpu="0") == 1.98e9
    assert value(story.board, "gpu_pcie_receive_bytes_per_second", gpu="0") == 800_000.0
    assert value(story.board, "gpu_memory_used_bytes", gpu="0") == 120_000 * 1024 * 1024
    assert value(story.board, "gpu_throttle_active", gpu="0", reason="SwPowerCap") == 1.0
    assert value(story.board, "gpu_throttle_active", gpu="0", reason="HwSlowdown") == 0.0
    assert value(story.board, "gpu_server", gpu="1", server="chat", rank="TP1") == 1.0
    assert value(story.board, "server_phase", server="chat", phase="serving") == 1.0
    assert value(story.board, "server_ready_seconds", server="chat") == 77.0


def test_a_topic_is_active_at_the_severity_of_what_fires(daemon):
    """An info finding in a topic that is a warning by default must raise no warning."""
    labels = {"server": "chat", "topic": "moe.config-missing"}
    daemon.tell(material.fired(severity=Severity.INFO))
    assert value(daemon.board, "finding_active", **labels, severity="info") == 1.0
    assert value(daemon.board, "finding_active", **labels, severity="warning") == 0.0

    daemon.tell(material.fired("other", severity=Severity.WARNING))
    assert value(daemon.board, "finding_active", **labels, severity="warning") == 1.0

    daemon.tell(material.resolved("other"), material.resolved())

    assert value(daemon.board, "finding_active", **labels, severity="warning") == 0.0
    assert value(daemon.board, "finding_transitions_total", server="chat", topic="moe.config-missing", to="firing") == 2.0
    assert value(daemon.board, "finding_transitions_total", server="chat", topic="moe.config-missing", to="resolved") == 2.0


def test_more_evidence_for_the_same_finding_is_no_transition(daemon):
    daemon.tell(material.fired(), material.fired(was=State.FIRING, count=2))

    assert value(daemon.board, "finding_transitions_total", server="chat", topic="moe.config-missing", to="firing") == 1.0


def test_a_new_run_takes_the_old_runs_closed_findings_out_of_the_gauges(daemon):
    daemon.tell(material.moved(), material.fired(), material.resolved())
    daemon.tell(material.moved("run-2", started_at_s=material.T0 + 500, phase=Phase.STARTING))

    assert value(daemon.board, "findings", server="chat", severity="warning", state="resolved") == 0.0
    assert value(daemon.board, "server_info", server="chat", run="run-2", sglang_version="0.5.8", model="Qwen3-30B") == 1.0


def test_what_was_not_read_is_nan_and_never_zero(daemon):
    daemon.board.add_sample(material.sample(0, power_w=None, throttle_reasons=None, sm_active=None))

    for name in ("gpu_power_watts", "gpu_power_ratio", "gpu_sm_active_ratio"):
        assert math.isnan(value(daemon.board, name, gpu="0"))
    assert math.isnan(value(daemon.board, "gpu_throttle_active", gpu="0", reason="SwPowerCap"))


def test_a_gpu_that_is_gone_leaves_no_series(story):
    story.board.set_gpus([1])

    assert not any(("gpu", "0") in labels for _, labels in scrape(story.board))


def test_labels_survive_hostile_names(daemon):
    daemon.tell(material.moved(model='a"b\\c\nd'))

    assert value(daemon.board, "server_info", server="chat", run="run-1", sglang_version="0.5.8", model='a"b\\c\nd') == 1.0


def test_our_fast_text_is_the_clients_text(story):
    """The exposition is written by hand for speed; the client library is the reference."""
    collector = BoardCollector(story.board, signature_verdicts=[each.signature for each in material.VERDICTS])

    assert of_text(collector.exposition()) == of_text(generate_latest(registry(collector)))


def of_text(exposition: bytes) -> list[bytes]:
    """Without the values of process_*, which move between two scrapes."""
    return [line.split(b" ")[0] if line.startswith(b"process_") else line for line in exposition.splitlines()]


def of_board(collector: BoardCollector) -> list[str]:
    """A scrape without what it costs the process."""
    return [line for line in collector.exposition().decode().splitlines() if "process_" not in line]


def test_a_scrape_is_the_same_as_one_made_anew_whatever_moved_since_the_last(daemon):
    """Nine tenths of a scrape are written once and kept until a finding moves: nothing may be kept too long."""
    kept = BoardCollector(daemon.board)
    for move in (
        lambda: daemon.board.apply(material.moved()),
        lambda: daemon.board.apply(material.fired()),
        lambda: daemon.board.apply(material.resolved()),
        lambda: daemon.board.set_servers(["chat", "code"]),
        lambda: daemon.board.set_coverage("embed", material.VERDICTS),
        lambda: daemon.board.set_library({**material.TOPICS, "gpu.lost": Severity.CRITICAL}, "2"),
        lambda: daemon.board.add_sample(material.sample(0)),
        lambda: daemon.board.set_load("chat", material.LOAD),
        lambda: daemon.board.set_servers(["code"]),
    ):
        assert of_board(kept) == of_board(BoardCollector(daemon.board))
        move()
        assert of_board(kept) == of_board(BoardCollector(daemon.board))


def test_a_server_has_at_most_about_a_thousand_series(story):
    board = Board(version="1", started_at_s=0.0, servers=["chat"], topics={f"area.topic-{n}": Severity.INFO for n in range(130)})
    for gpu in range(8):
        board.add_sample(material.sample(gpu))

    assert len(scrape(board)) < 1_100


@needs("promtool")
def test_promtool_finds_nothing_to_complain_about(story):
    told = subprocess.run(
        ["promtool", "check", "metrics"],
        input=BoardCollector(story.board, signature_verdicts=[each.signature for each in material.VERDICTS]).exposition(),
        capture_output=True,
        timeout=30,
        check=False,
    )

    assert (told.returncode, told.stdout, told.stderr) == (0, b"", b"")


def test_a_server_that_is_gone_has_no_load(story):
    """What it said last is not what it does now; the series stay, so that nothing appears or vanishes."""
    series = {key for key in scrape(story.board) if key[0] == "server_running_requests"}
    story.board.apply(material.moved(phase=Phase.CRASHED, ended_at_s=material.T0 + 60))

    after = scrape(story.board)
    assert {key for key in after if key[0] == "server_running_requests"} == series
    assert all(math.isnan(after[key]) for key in series if ("server", "chat") in key[1])


def test_the_process_itself_is_measured(story):
    """Memory, CPU time and open files under the names that every dashboard knows."""
    found = {name: value for (name, _), value in scrape(story.board).items() if name.startswith("process_")}

    assert found["process_resident_memory_bytes"] > 1e7
    assert found["process_cpu_seconds_total"] > 0
    assert found["process_open_fds"] > 2


def test_what_the_memory_allows_is_told_by_its_two_ends(daemon):
    known = Roofline(at_s=material.T0, running=64.0, tokens_per_s=880.0, ceiling_low=5200.0, ceiling_high=7600.0, share_low=0.115, share_high=0.17)
    daemon.tell(material.moved(roofline=known))

    assert value(daemon.board, "server_decode_ceiling_tokens_per_second", server="chat", bound="high") == 7600.0
    assert value(daemon.board, "server_decode_ceiling_ratio", server="chat", bound="low") == 0.115

    daemon.tell(material.moved(roofline=Roofline(at_s=material.T0, running=64.0, tokens_per_s=880.0, missing=("the arguments",))))

    assert math.isnan(value(daemon.board, "server_decode_ceiling_ratio", server="chat", bound="low"))
