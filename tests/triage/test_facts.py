"""Facts about a model come from its config.json, whatever family wrote it, and facts about a GPU from its name."""

import json
from pathlib import Path
from typing import Any

import pytest

from sglang_watchdog.parse.model_config import model_facts
from sglang_watchdog.sources.model_files import UnreadableConfig, read_model_config
from sglang_watchdog.triage.gpu_facts import UnknownGpu, gpu_facts
from sglang_watchdog.triage.knowledge import Knowledge

QWEN35 = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "text_config": {"num_experts": 256, "num_experts_per_tok": 8, "layer_types": ["linear_attention", "full_attention"]},
    "vision_config": {"depth": 27},
}
DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "quantization_config": {"quant_method": "fp8"},
}
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"],
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "layer_types": ["sliding_attention", "full_attention"],
    "quantization_config": {"quant_method": "mxfp4"},
}
OMNI = {"architectures": ["Qwen3OmniMoeForConditionalGeneration"], "thinker_config": {"text_config": {"num_experts": 128, "num_experts_per_tok": 8}}}
DENSE = {"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "sliding_window": None, "max_position_embeddings": 131072}


@pytest.mark.parametrize(
    ("config", "facts"),
    [
        (QWEN35, {"is_moe": True, "num_experts": 256, "top_k": 8, "is_multimodal": True, "is_hybrid_linear": True, "quantization": "none"}),
        (DEEPSEEK, {"is_moe": True, "num_experts": 256, "shared_experts": 1, "is_mla": True, "quantization": "fp8", "is_hybrid_linear": False}),
        (GPT_OSS, {"num_experts": 128, "top_k": 4, "has_sliding_window": True, "quantization": "mxfp4", "is_mla": False}),
        (OMNI, {"num_experts": 128, "is_multimodal": True}),
        (DENSE, {"is_moe": False, "hidden_size": 4096, "context_length": 131072, "has_sliding_window": False, "quantization": "none"}),
        ({**DENSE, "quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, {"quantization": "modelopt_fp4"}),
        ({**DENSE, "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}, {"quantization": "modelopt_fp8"}),
        ({**DENSE, "quantization_config": {"quant_method": "compressed-tensors"}}, {"quantization": "compressed-tensors"}),
    ],
    ids=["nested", "latent attention", "mxfp4", "nested twice", "dense", "nvfp4", "modelopt fp8", "compressed"],
)
def test_a_config_tells(config: dict[str, Any], facts: dict[str, Any]):
    found = model_facts(config)

    assert {name: found.get(f"model.{name}") for name in facts} == facts


def test_a_dense_model_has_no_expert_facts():
    assert not {"model.num_experts", "model.top_k", "model.shared_experts"} & model_facts(DENSE).keys()


def test_a_quantisation_file_beside_it_counts(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(DENSE))
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "NVFP4"}}))

    assert read_model_config(tmp_path)["model.quantization"] == "modelopt_fp4"


@pytest.mark.parametrize("text", ["", "[]", "{", "\x00"])
def test_what_is_no_config_is_said_with_its_path(tmp_path: Path, text: str):
    path = tmp_path / "config.json"
    path.write_text(text)

    with pytest.raises(UnreadableConfig, match=r"config\.json"):
        read_model_config(path)


@pytest.mark.parametrize(
    ("name", "sm", "memory"),
    [
        ("H200", 90, 140.4),
        ("NVIDIA H200", 90, 140.4),
        ("nvidia h200 nvl", 90, 140.0),
        ("H20", 90, 95.6),
        ("RTX PRO 6000", 120, 95.6),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 120, 95.6),
        ("L40S", 89, 45.0),
        ("NVIDIA L40S", 89, 45.0),
        ("L4", 89, 22.5),
        ("A100 SXM4 80GB", 80, 80.0),
        ("B200", 100, 179.1),
        ("GeForce RTX 4090", 89, 24.0),
    ],
)
def test_a_gpus_name_tells(knowledge: Knowledge, name: str, sm: int, memory: float):
    facts = gpu_facts(name, knowledge.gpus)

    assert facts["gpu.architecture_sm"] == sm
    assert facts["gpu.memory_gib"] == pytest.approx(memory, rel=0.03)


def test_h20_is_not_taken_for_an_h200(knowledge: Knowledge):
    assert gpu_facts("NVIDIA H20", knowledge.gpus)["gpu.name"] != gpu_facts("NVIDIA H200", knowledge.gpus)["gpu.name"]
    assert gpu_facts("L4", knowledge.gpus)["gpu.name"] != gpu_facts("L40S", knowledge.gpus)["gpu.name"]


def test_memory_that_is_told_wins_over_the_table(knowledge: Knowledge):
    assert gpu_facts("H200", knowledge.gpus, memory_gib=70.0)["gpu.memory_gib"] == 70.0
    assert gpu_facts("", knowledge.gpus, memory_gib=70.0) == {"gpu.memory_gib": 70.0}


def test_an_unknown_gpu_names_those_that_are_known(knowledge: Knowledge):
    with pytest.raises(UnknownGpu, match="H200"):
        gpu_facts("Voodoo 2", knowledge.gpus)
