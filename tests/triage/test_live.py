"""A running server's dump tells which flags do nothing, and never makes a warning of a healthy server."""

import gzip
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sglang_watchdog.engine.args import flattened
from sglang_watchdog.model.finding import Release
from sglang_watchdog.model.observation import Json
from sglang_watchdog.parse.server_args import read_server_args
from sglang_watchdog.triage.gpu_facts import gpu_facts
from sglang_watchdog.triage.knowledge import Knowledge
from sglang_watchdog.triage.live import RunJudgement, judge_run

CAPTURES = Path(__file__).parents[1] / "captures"
SEEDS_FLAGS = CAPTURES / "05-moe-seed-flags"
RELEASE = Release(min="0.5.11", max="0.5.11", source="stated")
SMALL_MOE = {
    "model.is_moe": True,
    "model.architecture": "Qwen3MoeForCausalLM",
    "model.num_experts": 64,
    "model.top_k": 8,
    "model.is_mla": False,
    "model.is_hybrid_linear": False,
    "model.is_multimodal": False,
    "model.quantization": "none",
}
WARNINGS = {"flag.overridden", "flag.conflict"}


def dump_of(capture: Path) -> Mapping[str, Json]:
    path = next(one for one in (capture / "server.log", capture / "server.log.gz") if one.exists())
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    line = next((line for line in text.splitlines() if "server_args=ServerArgs(" in line), "")
    read = read_server_args(line[line.index("server_args=") :]) if line else None
    return flattened(read.args) if read is not None else {}


def judge(knowledge: Knowledge, dump: Mapping[str, Json], command: str | None = None, **facts: Json) -> RunJudgement:
    gpu = gpu_facts("H200", knowledge.gpus, count=2)
    return judge_run(knowledge, dump, command=command, release=RELEASE, facts={**gpu, **facts})


@pytest.mark.parametrize("with_command", [True, False], ids=["command known", "dump alone"])
def test_the_seeds_flags_of_a_recorded_server(knowledge: Knowledge, with_command: bool):
    """Recorded: five flags; two act at most, the all-reduce fusion needs more than one GPU and leaves no line."""
    command = (SEEDS_FLAGS / "cmd.txt").read_text() if with_command else None
    run = judge(knowledge, dump_of(SEEDS_FLAGS), command, **SMALL_MOE)
    verdicts = {one.flag: one.verdict for one in run.verdicts}

    assert verdicts["--num-continuous-decode-steps"] == "dead"
    assert verdicts["--triton-attention-reduce-in-fp32"] == "dead"
    assert verdicts["--enable-flashinfer-allreduce-fusion"] == "condition-unmet"
    assert verdicts["--enable-fused-moe-sum-all-reduce"] == "acts"
    assert verdicts["--attention-backend"] == "acts"
    told = {one.field: one.topic for one in run.records}
    assert told["num_continuous_decode_steps"] == told["triton_attention_reduce_in_fp32"] == "flag.dead"
    assert told["enable_flashinfer_allreduce_fusion"] == "flag.condition-unmet"
    assert not WARNINGS & set(told.values())


@pytest.mark.parametrize("capture", sorted(one.parent.name for one in CAPTURES.glob("*/case.yaml")))
@pytest.mark.parametrize("with_command", [True, False], ids=["command known", "dump alone"])
def test_no_capture_gets_a_warning_for_a_flag(knowledge: Knowledge, capture: str, with_command: bool):
    command = CAPTURES / capture / "cmd.txt"
    if with_command and not command.exists():
        pytest.skip("this recording keeps no command line")
    run = judge(knowledge, dump_of(CAPTURES / capture), command.read_text() if with_command else None)

    assert [one.summary for one in run.records if one.topic in WARNINGS] == []


def test_the_engine_tells_the_dead_flags_of_the_recorded_server(judge_files: Any):
    judged = judge_files(SEEDS_FLAGS / "server.log", telemetry=SEEDS_FLAGS / "nvml.jsonl.gz")
    summaries = {one.signature: one.summary for one in judged.engine.snapshot().findings if one.topic.startswith("flag.")}

    assert "read by nothing since 0.3.6" in summaries["flag-num-continuous-decode-steps"]
    assert "flag-enable-flashinfer-allreduce-fusion" in summaries
    assert {one.severity.value for one in judged.engine.snapshot().findings if one.topic.startswith("flag.")} == {"info"}


# --- dump against command ------------------------------------------------------------------------------------------------

DEFAULT = dump_of(CAPTURES / "01-moe-default")
SERVE = f"sglang serve --model-path {DEFAULT['model_path']} --port {DEFAULT['port']}"


def test_a_silent_change_is_found_by_comparing(knowledge: Knowledge):
    """The server says nothing where it lowers a value; the two sources side by side do."""
    run = judge(knowledge, {**DEFAULT, "chunked_prefill_size": 2048}, f"{SERVE} --chunked-prefill-size 8192")
    (one,) = (one for one in run.verdicts if one.flag == "--chunked-prefill-size")

    assert (one.verdict, one.resolved) == ("overridden", 2048)
    assert "8192" in one.because
    assert "2048" in one.because
    assert [record.topic for record in run.records if record.field == "chunked_prefill_size"] == ["flag.overridden"]


def test_what_the_dump_confirms_is_not_called_overridden(knowledge: Knowledge):
    """A rule of ours that predicts a change gives way to the dump that shows none."""
    command = f"{SERVE} --enable-dp-attention"
    run = judge(knowledge, {**DEFAULT, "enable_dp_attention": True}, command)
    (one,) = (one for one in run.verdicts if one.flag == "--enable-dp-attention")

    assert one.verdict != "overridden"


@pytest.mark.parametrize(
    ("asked", "dump"),
    [
        ("--speculative-algorithm NEXTN", {"speculative_algorithm": "EAGLE"}),
        ("--kv-cache-dtype bf16", {"kv_cache_dtype": "bfloat16"}),
        ("--tool-call-parser qwen25", {"tool_call_parser": "qwen"}),
        ("--quantization modelopt", {"quantization": "modelopt_fp8"}),
        ("--moe-runner-backend auto", {"moe_runner_backend": "flashinfer_trtllm"}),
    ],
)
def test_another_name_for_the_same_is_no_change(knowledge: Knowledge, asked: str, dump: Mapping[str, Json]):
    run = judge(knowledge, {**DEFAULT, **dump}, f"{SERVE} {asked}", **SMALL_MOE)

    assert not [record.summary for record in run.records if record.topic == "flag.overridden"]


@pytest.mark.parametrize(
    ("release", "asked", "dump"),
    [
        ("0.5.23", "--dp-size 4 --enable-dp-attention --tp-size 4", {"dp_size": 1, "attn_dp_size": 4, "enable_dp_attention": True, "tp_size": 4}),
        ("0.5.14", "--enable-flashinfer-allreduce-fusion", {"flashinfer_allreduce_fusion_backend": "auto"}),
    ],
)
def test_what_stands_in_the_dump_under_its_new_field_is_no_change(knowledge: Knowledge, release: str, asked: str, dump: Mapping[str, Json]):
    stated = Release(min=release, max=release, source="stated")
    run = judge_run(knowledge, {**DEFAULT, **dump}, command=f"{SERVE} {asked}", release=stated, facts=dict(SMALL_MOE))

    assert not [record.summary for record in run.records if record.topic == "flag.overridden"]


def test_a_word_that_became_another_word_is_a_change_even_where_no_rule_is_known(knowledge: Knowledge):
    run = judge(knowledge, {**DEFAULT, "moe_runner_backend": "triton"}, f"{SERVE} --moe-runner-backend flashinfer_cutlass", **SMALL_MOE)
    (one,) = (record for record in run.records if record.topic == "flag.overridden")

    assert "asked flashinfer_cutlass, runs with triton, and no rule of this release that we know says why" in one.summary
    assert (one.asked, one.was_asked) == ("flashinfer_cutlass", True)


def test_names_and_hosts_are_not_compared(knowledge: Knowledge):
    command = f"{SERVE} --served-model-name other --host 0.0.0.0 --api-key sk-EXAMPLE"
    run = judge(knowledge, DEFAULT, command)

    assert not [one for one in run.verdicts if one.verdict == "overridden"]
    assert "sk-EXAMPLE" not in repr(run)


def test_what_the_server_set_by_itself_is_not_laid_at_the_users_door(knowledge: Knowledge):
    """The dump shows a graph size; without the command line nobody can say that a person asked for it."""
    run = judge(knowledge, DEFAULT, **SMALL_MOE)

    assert "cuda_graph_max_bs" not in {one.field for one in run.verdicts}
    assert [one for one in run.verdicts if one.verdict == "redundant"] == []


@pytest.mark.parametrize(
    ("release", "dump", "says"),
    [
        (Release(), DEFAULT, "release of this run is not known"),
        (Release(min="9.0", max="9.1", source="stated"), DEFAULT, "outside those whose sources were read"),
        (RELEASE, {}, "no args dump"),
    ],
)
def test_without_release_or_dump_nothing_is_judged(knowledge: Knowledge, release: Release, dump: Mapping[str, Json], says: str):
    run = judge_run(knowledge, dump, command=None, release=release, facts={})

    assert (run.verdicts, run.records) == ((), ())
    assert says in run.because


def test_in_a_range_only_what_all_its_releases_agree_on_is_said(knowledge: Knowledge):
    """--triton-attention-reduce-in-fp32 is a no-op to 0.5.10 and dead from 0.5.11; which one it is here is not known."""
    between = Release(min="0.5.10", max="0.5.11", source="inferred")
    dump = {**DEFAULT, "triton_attention_reduce_in_fp32": True, "num_continuous_decode_steps": 4}
    run = judge_run(knowledge, dump, command=None, release=between, facts=dict(SMALL_MOE))
    verdicts = {one.flag: one for one in run.verdicts}

    assert verdicts["--triton-attention-reduce-in-fp32"].verdict == "unknown"
    assert "dead or no-op" in verdicts["--triton-attention-reduce-in-fp32"].because
    assert verdicts["--num-continuous-decode-steps"].verdict == "dead"


def test_hidden_decisions_say_how_they_are_known(knowledge: Knowledge):
    run = judge(knowledge, DEFAULT, **SMALL_MOE)
    told = {one.name: one for one in run.decisions}

    assert told["run.moe_runner"].value == "triton"
    assert told["run.allreduce_fusion"].value is False
    assert told["run.decode_graph"].value is True
    assert all(one.because for one in told.values())
    assert "MoE kernel config" in told["run.moe_runner"].seen_by
    assert "cuda graph: True" in told["run.decode_graph"].seen_by
