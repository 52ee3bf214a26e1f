"""The question this tool was written for: five flags, two releases, two GPUs, answered by hand in hours and twice wrongly."""

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_watchdog.cli.triage import run_triage
from sglang_watchdog.triage.knowledge import Knowledge
from sglang_watchdog.triage.run import Request, triage
from sglang_watchdog.triage.verdicts import FlagVerdict, Judgement

CONFIG = Path(__file__).parent / "data" / "qwen3.5-122b-a10b.json"
FIVE = (
    "--num-continuous-decode-steps 4 --triton-attention-reduce-in-fp32 --enable-flashinfer-allreduce-fusion "
    "--enable-fused-moe-sum-all-reduce --cuda-graph-max-bs 512"
)
VERDICTS = {
    # (release, GPU, tp): continuous decode, reduce in FP32, all-reduce fusion, sum all-reduce, graph size, starts
    ("0.5.9", "RTX PRO 6000", 4): ("dead", "no-op", "condition-unmet", "unrecognised", "redundant", False),
    ("0.5.12", "RTX PRO 6000", 4): ("dead", "dead", "condition-unmet", "acts", "redundant", True),
    ("0.5.12", "RTX PRO 6000", 1): ("dead", "dead", "condition-unmet", "acts", "acts", True),
    ("0.5.10", "RTX PRO 6000", 4): ("dead", "no-op", "condition-unmet", "acts", "redundant", True),
    ("0.5.9", "H200", 4): ("dead", "no-op", "acts", "unrecognised", "redundant", False),
    ("0.5.10", "H200", 4): ("dead", "no-op", "redundant", "acts", "redundant", True),
    ("0.5.12", "H200", 4): ("dead", "dead", "redundant", "acts", "redundant", True),
    ("0.5.12", "H200", 1): ("dead", "dead", "condition-unmet", "acts", "acts", True),
    ("0.5.20", "RTX PRO 6000", 4): ("dead", "dead", "condition-unmet", "acts", "removed", False),
}


def ask(knowledge: Knowledge, release: str, gpu: str, tp: int, more: str = FIVE) -> Judgement:
    command = f"python -m sglang.launch_server --model-path Qwen3.5-122B-A10B --tp {tp} --attention-backend triton {more}"
    told = triage(knowledge, Request(words=[command], release=release, gpu=gpu, model_config=CONFIG))
    return told.ranges[0].judgement


def flag(judgement: Judgement, name: str) -> FlagVerdict:
    return next(one for one in judgement.flags if one.flag == name)


@pytest.mark.parametrize(("release", "gpu", "tp"), VERDICTS)
def test_the_five_flags(knowledge: Knowledge, release: str, gpu: str, tp: int):
    judgement = ask(knowledge, release, gpu, tp)
    five = [one.verdict for one in judgement.flags if one.flag in FIVE]

    assert (*five, judgement.starts) == VERDICTS[release, gpu, tp]


def test_each_verdict_says_why_what_to_do_and_where_it_is_written(knowledge: Knowledge):
    judgement = ask(knowledge, "0.5.12", "RTX PRO 6000", 4)

    assert "read by nothing since 0.3.6" in flag(judgement, "--num-continuous-decode-steps").because
    assert "double sparsity left in 0.5.11" in flag(judgement, "--triton-attention-reduce-in-fp32").because
    assert "compute capability 9 or 10" in flag(judgement, "--enable-flashinfer-allreduce-fusion").because
    assert "60 to 160 GiB with tp 4" in flag(judgement, "--cuda-graph-max-bs").because
    for one in judgement.flags:
        assert one.because
        assert "::" in one.source
        assert one.do or one.verdict == "acts"


def test_the_five_axes(knowledge: Knowledge):
    judgement = ask(knowledge, "0.5.12", "H200", 4)
    axes = flag(judgement, "--enable-flashinfer-allreduce-fusion").axes

    assert (axes.compatible, axes.condition_met, axes.auto_enabled, axes.functional, axes.already_set) == (True,) * 5
    assert flag(judgement, "--num-continuous-decode-steps").axes.functional is False
    blackwell = flag(ask(knowledge, "0.5.12", "RTX PRO 6000", 4), "--enable-flashinfer-allreduce-fusion").axes
    assert (blackwell.compatible, blackwell.auto_enabled) == (False, False)


def test_the_removed_flag_is_ambiguous_now_and_names_its_successor(knowledge: Knowledge):
    gone = flag(ask(knowledge, "0.5.20", "RTX PRO 6000", 4), "--cuda-graph-max-bs")

    assert "--cuda-graph-max-bs-decode, --cuda-graph-max-bs-prefill" in gone.because
    assert gone.do == "Use --cuda-graph-max-bs-decode instead."
    assert not gone.starts


def test_the_sum_all_reduce_needs_triton_experts(knowledge: Knowledge):
    judgement = ask(knowledge, "0.5.12", "H200", 4, "--enable-fused-moe-sum-all-reduce --moe-runner-backend triton_kernel")

    assert flag(judgement, "--enable-fused-moe-sum-all-reduce").verdict == "no-op"


def test_without_model_and_gpu_nothing_is_guessed(knowledge: Knowledge):
    told = triage(knowledge, Request(words=FIVE.split(), release="0.5.12"))
    verdicts = {one.flag: one for one in told.ranges[0].judgement.flags}

    assert verdicts["--num-continuous-decode-steps"].verdict == "dead"
    assert verdicts["--enable-flashinfer-allreduce-fusion"].verdict == "condition-unmet"  # tp is 1 by default: that is known
    assert verdicts["--enable-fused-moe-sum-all-reduce"].verdict == "unknown"
    assert verdicts["--cuda-graph-max-bs"].verdict == "unknown"
    assert verdicts["--cuda-graph-max-bs"].axes.already_set is None
    assert "--gpu" in verdicts["--cuda-graph-max-bs"].do


# --- the command ---------------------------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = run_triage(list(argv))
    out = capsys.readouterr()
    return code, out.out, out.err


def test_json_has_the_contracts_shape(capsys: pytest.CaptureFixture[str]):
    own = ("--sglang", "0.5.12", "--gpu", "RTX PRO 6000", "--model-config", str(CONFIG), "--format", "json", "--")
    code, out, err = run(capsys, *own, "sglang", "serve", "--model-path", "m", "--tp", "4", *FIVE.split())
    document: dict[str, Any] = json.loads(out)

    assert (code, err) == (1, "")
    assert document["schema"] == 1
    assert document["sglang"] == "0.5.12"
    assert document["read_at"] == "0.5.12.post1"
    assert document["gpu"].startswith("RTX PRO 6000")
    assert document["starts"] is True
    for one in document["flags"]:
        assert {"flag", "field", "value", "verdict", "axes", "because", "do", "source"} <= one.keys()
        assert one["axes"].keys() == {"compatible", "condition_met", "auto_enabled", "functional", "already_set"}
    assert document["flags_described"] >= 140
    assert "schedule_policy" not in document["flags_not_described"]
    for one in document["suggestions"]:
        assert one["flag"].startswith("--")
        assert one["because"]


def test_code_0_where_every_flag_acts(capsys: pytest.CaptureFixture[str]):
    code, out, _ = run(capsys, "--sglang", "0.5.12", "--gpu", "H200", "--model-config", str(CONFIG), "--", "--tp", "4")

    assert code == 0
    assert "acts" in out


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--sglang", "0.5.12", "--", "vllm", "serve"), "neither a command that starts SGLang"),
        (("--sglang", "0.1.2", "--", "--tp", "2"), "outside the releases whose sources were read"),
        (("--sglang", "newest", "--", "--tp", "2"), "is no SGLang release number"),
        (("--sglang", "0.5.12", "--gpu", "Voodoo 2", "--", "--tp", "2"), "no GPU called 'Voodoo 2'"),
        (("--sglang", "0.5.12", "--model-config", "/nowhere/config.json", "--", "--tp", "2"), "/nowhere/config.json"),
    ],
)
def test_code_2_says_what_was_not_understood(capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], says: str):
    code, out, err = run(capsys, *argv)

    assert (code, out) == (2, "")
    assert says in err


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        run_triage(["--sglang", "0.5.12"])

    assert ended.value.code == 2
    assert "give the launch command after --" in capsys.readouterr().err


def test_a_gpu_of_this_machine_that_the_library_does_not_know_stops_nothing(monkeypatch, capsys):
    from sglang_watchdog.cli.triage import main
    from sglang_watchdog.triage import hardware

    monkeypatch.setattr(hardware, "local_gpu", lambda: ("Voodoo 2", 12.0))
    code = main("triage", ["--sglang", "0.5.12", "--", "python", "-m", "sglang.launch_server", "--tp", "2"])

    told = capsys.readouterr()
    assert code != 2
    assert "'Voodoo 2', is not in the library" in told.err
    assert "--tp" in told.out
