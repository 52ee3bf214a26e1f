"""Facts of a model from its config.json, as conditions name them: model.architecture, model.is_moe, model.top_k …

Names of keys differ between families and many models nest their language model (text_config, llm_config …), which is
where SGLang itself looks first (srt/utils/hf_transformers_utils.py::get_hf_text_config).
"""

from collections.abc import Mapping
from typing import Any

NESTED = ("text_config", "llm_config", "language_config", "thinker_config", "talker_config")
EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "num_experts_per_layer")
TOP_K = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_topk",
    "moe_top_k",
    "moe_k",
    "top_k_experts",
    "num_selected_experts",
)


def model_facts(config: Mapping[str, Any], quant: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Facts from the parsed files. What the files do not tell is left out, except that no quantisation and no experts are
    answers.
    """
    text = next((config[name] for name in NESTED if isinstance(config.get(name), dict)), config)
    if isinstance(text.get("text_config"), dict):  # Omni models nest twice
        text = text["text_config"]
    facts: dict[str, Any] = {}
    architectures = config.get("architectures")
    if isinstance(architectures, list) and architectures:
        facts["model.architecture"] = str(architectures[0])
    experts = _first(text, EXPERTS)
    facts["model.is_moe"] = bool(experts and experts > 1)
    if facts["model.is_moe"]:
        facts["model.num_experts"] = experts
        top_k = _first(text, TOP_K)
        if top_k is not None:
            facts["model.top_k"] = top_k
        facts["model.shared_experts"] = int(_first(text, ("n_shared_experts", "num_shared_experts")) or 0)
    facts["model.is_mla"] = _is_mla(text)
    facts["model.quantization"] = _quantization(config, text, quant or {})
    facts["model.weight_block"] = _weight_block(config, text)
    facts["model.is_multimodal"] = any(isinstance(config.get(name), dict) for name in ("vision_config", "audio_config", "thinker_config"))
    facts["model.is_hybrid_linear"] = _is_hybrid_linear(text)
    facts["model.has_sliding_window"] = _has_sliding_window(text)
    facts["model.is_sparse_attention"] = text.get("index_topk") is not None
    for name, key in (
        ("hidden_size", "hidden_size"),
        ("layers", "num_hidden_layers"),
        ("heads", "num_attention_heads"),
        ("kv_heads", "num_key_value_heads"),
        ("context_length", "max_position_embeddings"),
        ("mtp_layers", "num_nextn_predict_layers"),
        ("vocab_size", "vocab_size"),
        ("kv_lora_rank", "kv_lora_rank"),
        ("qk_rope_head_dim", "qk_rope_head_dim"),
        ("index_topk", "index_topk"),
    ):
        if isinstance(text.get(key), int):
            facts[f"model.{name}"] = text[key]
    facts |= _sizes(config, text)
    if config.get("model_type"):
        facts["model.type"] = str(config["model_type"])
    return facts


def _sizes(config: Mapping[str, Any], text: Mapping[str, Any]) -> dict[str, Any]:
    """What the bytes of a decode step follow from: heads, experts, and which layers have which."""
    facts: dict[str, Any] = {}
    heads, hidden = _first(text, ("num_attention_heads",)), _first(text, ("hidden_size",))
    size = _first(text, ("head_dim",)) or (hidden // heads if heads and hidden else None)
    if size:
        facts["model.head_dim"] = size
    if isinstance(tied := text.get("tie_word_embeddings", config.get("tie_word_embeddings")), bool):
        facts["model.ties_embeddings"] = tied
    layers = _first(text, ("num_hidden_layers",))
    if not layers:
        return facts
    kinds, interval = text.get("layer_types"), _first(text, ("full_attention_interval",))
    if isinstance(kinds, list):
        facts["model.attention_layers"] = sum(str(kind) in ("full_attention", "attention", "sliding_attention") for kind in kinds)
    elif interval:
        facts["model.attention_layers"] = layers // interval
    if (_first(text, EXPERTS) or 0) > 1:
        facts["model.moe_layers"] = _moe_layers(text, layers)
        # Mixtral, gpt-oss and MiniMax name no width of their own for experts: all their MLPs are experts.
        width = _first(text, ("moe_intermediate_size", "moe_ffn_hidden_size", "expert_ffn_hidden_size", "intermediate_size"))
        if width:
            facts["model.moe_width"] = width
    return facts


def _moe_layers(text: Mapping[str, Any], layers: int) -> int:
    """Layers with routed experts: after the first dense ones, each n-th, without those that are named as dense."""
    dense = _first(text, ("first_k_dense_replace",)) or 0
    frequency = text.get("moe_layer_freq")
    if isinstance(frequency, list):
        return sum(bool(each) for each in frequency)
    step = _first(text, ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq")) or 1
    named = text.get("mlp_only_layers")
    others = set(named) if isinstance(named, list) else set()
    offset = 0 if isinstance(frequency, int) else 1  # DeepSeek counts layers from 0, Qwen and Llama from 1
    return sum(layer >= dense and layer not in others and (layer + offset) % step == 0 for layer in range(layers))


def _first(text: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        value = text.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return int(value)
        if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
            return int(max(value))
    return None


def _is_mla(text: Mapping[str, Any]) -> bool:
    """Latent attention: a key/value rank and a rotary part of their own (srt/configs/model_config.py::_derive_model_shapes)."""
    return bool(text.get("kv_lora_rank")) and text.get("qk_rope_head_dim") is not None


def _quantization(config: Mapping[str, Any], text: Mapping[str, Any], quant: Mapping[str, Any]) -> str:
    """The method's name as --quantization spells it; "none" for an unquantised checkpoint."""
    own = config.get("quantization_config") or text.get("quantization_config") or config.get("compression_config") or {}
    method = str(own.get("quant_method") or "").lower() if isinstance(own, dict) else ""
    algorithm = str(own.get("quant_algo") or "").upper() if isinstance(own, dict) else ""
    if quant:
        inner = quant.get("quantization", quant)
        algorithm = algorithm or str(inner.get("quant_algo") or "").upper()
    if "MIXED" in algorithm:
        return "modelopt_mixed"
    if "NVFP4" in algorithm or "FP4" in algorithm:
        return "modelopt_fp4"
    if algorithm == "FP8" and (method in ("modelopt", "") or quant):
        return "modelopt_fp8"
    return method or "none"


def _weight_block(config: Mapping[str, Any], text: Mapping[str, Any]) -> int:
    """Weights that share one FP8 scale along the output, 0 where scales are not by blocks."""
    own = config.get("quantization_config") or text.get("quantization_config") or {}
    block = own.get("weight_block_size") if isinstance(own, dict) else None
    return int(block[0]) if isinstance(block, list) and block and isinstance(block[0], int) else 0


def _is_hybrid_linear(text: Mapping[str, Any]) -> bool:
    """Linear-attention or state-space layers beside full attention."""
    kinds = text.get("layer_types")
    if isinstance(kinds, list) and any(str(kind) in ("linear_attention", "mamba", "mamba2", "kda", "conv") for kind in kinds):
        return True
    return any(
        text.get(name) is not None
        for name in (
            "linear_num_value_heads",
            "linear_attn_config",
            "mamba_num_heads",
            "mamba_n_heads",
            "hybrid_override_pattern",
            "full_attention_interval",
        )
    )


def _has_sliding_window(text: Mapping[str, Any]) -> bool:
    kinds = text.get("layer_types")
    if isinstance(kinds, list):
        return "sliding_attention" in kinds
    return bool(text.get("sliding_window")) and text.get("use_sliding_window", True) is not False
