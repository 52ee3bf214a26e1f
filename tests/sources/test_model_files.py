"""A model's folder: what its small files tell, and that nothing else is opened or waited for."""

import json
from contextlib import aclosing
from pathlib import Path

from sglang_watchdog.sources.model_files import ModelFiles, probe_model

CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 61, "first_k_dense_replace": 3, "hidden_size": 7168,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "moe_layer_freq": 1, "kv_lora_rank": 512,
    "qk_rope_head_dim": 64, "num_attention_heads": 128, "vocab_size": 129280, "quantization_config": {"quant_method": "fp8"},
}  # fmt: skip


def write(folder: Path, **more: object) -> Path:
    (folder / "config.json").write_text(json.dumps(CONFIG | more))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 688_586_727_753}, "weight_map": {}}))
    return folder


def test_a_folder_tells_the_shape_and_the_size_of_its_weights(tmp_path: Path):
    facts = probe_model("chat/model", write(tmp_path), 1.0).facts

    assert facts["model.moe_layers"] == 58
    assert facts["model.moe_width"] == 2048
    assert facts["model.head_dim"] == 56
    assert facts["model.weights_bytes"] == 688_586_727_753


def test_the_quantisation_of_a_checkpoint_is_not_the_servers(tmp_path: Path):
    """--quantization may make something else of it; the log knows."""
    facts = probe_model("chat/model", write(tmp_path), 1.0).facts

    assert facts["model.checkpoint_quantization"] == "fp8"
    assert "model.quantization" not in facts


def test_layers_are_counted_as_each_family_says_it(tmp_path: Path):
    for more, layers in (
        ({"first_k_dense_replace": None, "moe_layer_freq": None, "decoder_sparse_step": 2, "mlp_only_layers": [1]}, 29),
        ({"moe_layer_freq": [0, 1, 1]}, 2),
        ({"first_k_dense_replace": None, "moe_layer_freq": None}, 61),
    ):
        assert probe_model("chat/model", write(tmp_path, **more), 1.0).facts["model.moe_layers"] == layers, more


def test_a_folder_of_another_machine_is_said(tmp_path: Path):
    probe = probe_model("chat/model", tmp_path / "elsewhere", 1.0)

    assert probe.facts == {}
    assert "elsewhere" in (probe.error or "")


def test_a_file_of_another_kind_is_not_read_whole(tmp_path: Path):
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(80 * 1024 * 1024)

    assert "longer than" in (probe_model("chat/model", tmp_path, 1.0).error or "")


async def test_each_path_is_read_once_and_names_of_a_hub_never(tmp_path: Path):
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
        write(folder)
    told = iter([None, "org/model", str(first), str(first), str(second)])
    source = ModelFiles("chat/model", lambda: next(told, None), look_s=0.001, clock=lambda: 5.0)

    async with aclosing(source.events()) as events:
        probes = [await anext(events), await anext(events)]

    assert [probe.error for probe in probes] == [None, None]
    assert next(told, None) is None
