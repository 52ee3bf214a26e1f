"""A start is called possible only where all that could end it was checked; what could not be checked is named."""

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_watchdog.triage.knowledge import Knowledge
from sglang_watchdog.triage.report import to_json, to_markdown, to_text
from sglang_watchdog.triage.run import Request, UsageError, triage
from sglang_watchdog.triage.verdicts import Judgement

LLAMA = {"architectures": ["LlamaForCausalLM"], "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}
QWEN = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_hidden_layers": 62,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "num_experts": 160,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2560,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


def ask(knowledge: Knowledge, command: str, *, release: str = "0.5.12", gpu: str = "H200", count: int | None = 8, **more: Any) -> Judgement:
    return triage(knowledge, Request(words=[command], release=release, gpu=gpu, gpu_count=count, **more)).ranges[0].judgement


def model(folder: Path, config: dict[str, Any]) -> str:
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.mark.parametrize("release", ["0.5.9", "0.5.12", "0.5.20", "0.5.23"])
@pytest.mark.parametrize(
    ("flags", "flag", "says"),
    [
        ("--tp 16", "--tp-size", "it takes 16 GPUs of each node and a node has 8"),
        ("--tp 4 --pp-size 4", "--pp-size", "it takes 16 GPUs of each node"),
        ("--tp 4 --dp-size 3", "--dp-size", "it takes 12 GPUs of each node"),
        ("--tp 8 --base-gpu-id 1", "--base-gpu-id", "from number 1"),
        ("--tp 8 --nnodes 3 --node-rank 0 --dist-init-addr 10.0.0.1:5000", "--nnodes", "must be a multiple of the number of nodes (3)"),
        ("--tp 16 --nnodes 2 --node-rank 2 --dist-init-addr 10.0.0.1:5000", "--node-rank", "there is no node 2"),
        ("--tp 8 --dp-size 3 --enable-dp-attention", "--dp-size", "must be a multiple of dp_size (3)"),
        ("--port 99999", "--port", "99999 is no port"),
        ("--host https://0.0.0.0", "--host", "no address to listen on"),
        ("--mem-fraction-static 85", "--mem-fraction-static", "a share of the memory, not percent"),
        ("--attention-backend foo", "--attention-backend", "'foo' is not one of"),
        ("--max-running-requests many", "--max-running-requests", "'many' is no whole number"),
        ("--served-model-name glm:fp8", "--served-model-name", "must not hold a colon"),
    ],
)
def test_what_ends_the_start(knowledge: Knowledge, release: str, flags: str, flag: str, says: str):
    judgement = ask(knowledge, f"sglang serve --model-path org/m {flags}", release=release)
    told = [one for one in judgement.flags if one.flag == flag]

    assert judgement.starts is False
    assert any(not one.starts and says in one.because and one.do and "::" in one.source for one in told), told
    assert judgement.open == ()  # nothing else matters then


def test_what_the_model_cannot_be_cut_into(knowledge: Knowledge, tmp_path: Path):
    path = model(tmp_path, QWEN)

    cut = ask(knowledge, f"sglang serve --model-path {path} --tp 8")
    assert cut.starts is False
    assert "the FP8 scales stand for blocks of 128 rows" in next(one.because for one in cut.flags if not one.starts)
    assert ask(knowledge, f"sglang serve --model-path {path} --tp 8 --ep 8").starts is True
    assert ask(knowledge, f"sglang serve --model-path {path} --tp 4").starts is True
    assert "96 attention heads" in next(one.because for one in ask(knowledge, f"sglang serve --model-path {path} --tp 5").flags if not one.starts)


def test_the_gpus_that_the_command_makes_visible_are_those_that_count(knowledge: Knowledge):
    assert ask(knowledge, "CUDA_VISIBLE_DEVICES=0,1 sglang serve --model-path org/m --tp 4").starts is False
    assert ask(knowledge, "CUDA_VISIBLE_DEVICES=0,1,2,3 sglang serve --model-path org/m --tp 4").starts is True
    assert ask(knowledge, "CUDA_VISIBLE_DEVICES=5,6,7,8 sglang serve --model-path org/m --tp 4").starts is False  # 8 is not there: CUDA sees three


def test_what_cannot_be_told_is_named_with_its_cure(knowledge: Knowledge):
    command = "sglang serve --model-path org/m --tp 4"
    told = triage(knowledge, Request(words=[command], release="0.5.12", gpu="H200"))
    document = json.loads(to_json(told))

    assert document["starts"] is True
    questions = {one["needs"]: one for one in document["starts_unless"]}
    assert questions["gpu.count"]["do"] == "Give --gpu-count."
    assert "attention heads is not known" in questions["model.heads"]["because"]
    assert "nothing known stops the start" in to_text(told)
    assert "--tp-size: the number of GPUs in a node is not known. Give --gpu-count." in to_text(told)
    assert "- Not known, and it may stop the start: --tp-size" in to_markdown(told)


def test_where_all_was_checked_nothing_is_left_open(knowledge: Knowledge, tmp_path: Path):
    judgement = ask(knowledge, f"sglang serve --model-path {model(tmp_path, LLAMA)} --tp 8")

    assert (judgement.starts, judgement.open) == (True, ())


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        ("--model-path /models/gone", "--model-path"),
        ("--model-path models/of/ours", "--model-path"),  # three parts are no repository of a hub
        ("--model-path org/m --config gone.yaml", "--config"),
        ("--model-path org/m --speculative-draft-model-path ./draft", "--speculative-draft-model-path"),
        ("--model-path org/m --ssl-keyfile /etc/hosts --ssl-certfile /etc/gone.pem", "--ssl-certfile"),
    ],
)
def test_a_path_that_is_not_here_leaves_the_start_unknown_and_ends_it_where_the_server_is_to_run(knowledge: Knowledge, words: str, flag: str, tmp_path: Path):
    elsewhere = ask(knowledge, f"sglang serve {words}", folder=tmp_path)
    here = ask(knowledge, f"sglang serve {words}", folder=tmp_path, installed="0.5.12")
    container = ask(knowledge, f"docker run image sglang serve {words}", folder=tmp_path, installed="0.5.12")

    assert elsewhere.starts is None
    assert [one.flag for one in elsewhere.files] == [flag]
    assert here.starts is False
    assert any("is not on this machine" in text for text in (*here.notes, *(one.because for one in here.flags)))
    assert container.starts is None


def test_a_repository_or_an_address_is_no_path(knowledge: Knowledge, tmp_path: Path):
    for name in ("org/m", "gpt2", "s3://bucket/models/m", "instance://10.0.0.1:30000/model"):
        assert ask(knowledge, f"sglang serve --model-path {name}", folder=tmp_path, installed="0.5.12").files == ()


def test_a_folder_without_config_json_is_no_model(knowledge: Knowledge, tmp_path: Path):
    judgement = ask(knowledge, f"sglang serve --model-path {tmp_path}", installed="0.5.12")

    assert judgement.starts is False
    assert "holds no config.json" in judgement.flags[0].because


# --- a model that is known by its name -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "architecture"),
    [
        ("--model-path nvidia/GLM-5-NVFP4", "GlmMoeDsaForCausalLM"),
        ("--model deepseek-ai/DeepSeek-V3.2-Exp", "DeepseekV32ForCausalLM"),
        ("--model-path /models/ckpt-7 --served-model-name Qwen3-235B-A22B", "Qwen3MoeForCausalLM"),
        ("--model-path /hub/models--moonshotai--Kimi-K2.5/snapshots/0123abc/", "KimiK25ForConditionalGeneration"),
        ("--model-path moonshotai/Kimi-K2-Instruct-0905", "DeepseekV3ForCausalLM"),
        ("--model-path deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "LlamaForCausalLM"),
        ("--model-path Qwen/Qwen2.5-72B-Instruct", "Qwen2ForCausalLM"),
    ],
)
def test_a_published_model_is_known_by_its_name(knowledge: Knowledge, words: str, architecture: str):
    told = triage(knowledge, Request(words=[f"sglang serve {words}"], release="0.5.12", gpu="B200"))

    assert f"(by its name: {architecture})" in told.model
    assert any("judged by its name" in note for note in told.ranges[0].judgement.notes)


def test_the_quantisation_that_a_name_suggests_is_told_and_not_used(knowledge: Knowledge):
    judgement = ask(knowledge, "sglang serve --model-path nvidia/GLM-5-NVFP4 --tp 8 --moe-runner-backend flashinfer_trtllm", gpu="B200")
    runner = next(one for one in judgement.flags if one.flag == "--moe-runner-backend")

    assert "is_moe" not in runner.because
    assert "quantisation" in runner.because
    assert any("suggests modelopt_fp4 weights; that is a guess" in note for note in judgement.notes)


def test_a_name_may_be_given_and_an_unknown_one_teaches_nothing(knowledge: Knowledge):
    named = ask(knowledge, "sglang serve --model-path /models/x --tp 3", model="Qwen3-32B")
    assert "64 attention heads" in next(one.because for one in named.flags if not one.starts)
    assert ask(knowledge, "sglang serve --model-path org/never-heard-of --tp 3").starts is True


def test_weights_that_cannot_fit(knowledge: Knowledge):
    assert ask(knowledge, "sglang serve --model-path Qwen/Qwen2.5-72B-Instruct", gpu="A10G").starts is False
    assert ask(knowledge, "sglang serve --model-path Qwen/Qwen2.5-72B-Instruct --load-format dummy", gpu="H200").starts is True


# --- numbers as late releases write them ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "value"), [("8k", 8000), ("1Ki", 1024), ("25.6k", 25600), ("4096", 4096), ("1.5Ki", None), ("8K", None)])
def test_sizes_with_a_suffix(knowledge: Knowledge, text: str, value: int | None):
    (flag,) = ask(knowledge, f"--context-length {text}").flags

    assert (flag.value if flag.starts else None) == value
    assert ask(knowledge, "--context-length 8k", release="0.5.9").starts is False


def test_flags_of_the_router_are_not_its_servers(knowledge: Knowledge):
    judgement = ask(knowledge, "python -m sglang_router.launch_server --model-path org/m --dp-size 2 --router-policy cache_aware")

    assert [one.flag for one in judgement.flags] == ["--model-path", "--dp-size"]
    assert "flags of the router" in judgement.notes[0]


def test_options_of_another_server_are_translated(knowledge: Knowledge):
    judgement = ask(knowledge, "--max-model-len 32768 --gpu-memory-utilization 0.9 --enforce-eager")

    assert [one.verdict for one in judgement.flags] == ["unrecognised"] * 3
    assert [one.do.split(":")[0] for one in judgement.flags] == ["Here it is --context-length", "Here it is --mem-fraction-static", "Here it is --disable-cuda-graph"]


def test_a_word_that_belongs_to_no_option_may_be_the_model(knowledge: Knowledge):
    judgement = ask(knowledge, "sglang serve Qwen/Qwen3-8B --port 8000")

    assert "write --model-path Qwen/Qwen3-8B" in judgement.flags[0].do
    assert judgement.starts is False


def test_the_kind_of_server_is_an_option_of_the_command_itself(knowledge: Knowledge):
    assert ask(knowledge, "sglang serve --model-path org/m --model-type llm").starts is True
    assert ask(knowledge, "python -m sglang.launch_server --model-path org/m --model-type llm").starts is False
    with pytest.raises(UsageError, match="images and video"):
        ask(knowledge, "sglang serve --model-path org/m --model-type=diffusion")


def test_options_in_a_shell_variable_are_not_known(knowledge: Knowledge):
    judgement = ask(knowledge, 'sglang serve "${SERVER_ARGS[@]}"')

    assert [(one.verdict, one.because) for one in judgement.flags] == [("unknown", "the options that it stands for are not known")]
    assert (judgement.starts, len(judgement.open)) == (None, 1)


def test_a_config_option_without_a_file_ends_the_start(knowledge: Knowledge):
    judgement = ask(knowledge, "sglang serve --model-path org/m --config")

    assert judgement.starts is False
    assert "--config names no file" in judgement.notes


@pytest.mark.parametrize("image", ["lmsysorg/sglang:v0.5.9", "registry.example/ml/sglang:v0.5.9-cu129-amd64"])
def test_the_images_tag_is_the_release(knowledge: Knowledge, image: str):
    command = f"docker run --gpus all {image} python3 -m sglang.launch_server --model-path m"

    assert triage(knowledge, Request(words=[command], installed="0.5.12")).ranges[0].judgement.release == "0.5.9"


def test_an_image_of_another_release_than_asked_for_is_said(knowledge: Knowledge):
    judgement = ask(knowledge, "docker run lmsysorg/sglang:v0.5.9 python3 -m sglang.launch_server --model-path m")

    assert "the command's image holds SGLang 0.5.9, and 0.5.12 was asked for" in judgement.notes[0]
