"""Facts as a reader knows them: `gpu.count` is the number of GPUs in a node."""

_FACT_WORDS = {
    "gpu.count": "the number of GPUs in a node",
    "gpu.architecture_sm": "the GPU's compute capability",
    "gpu.memory_gib": "the GPU's memory",
    "gpu.name": "the GPU",
    "model.is_moe": "whether the model has routed experts",
    "model.is_mla": "whether the model has latent attention",
    "model.is_multimodal": "whether the model takes images or sound",
    "model.is_hybrid_linear": "whether the model has linear-attention layers",
    "model.is_sparse_attention": "whether the model has sparse attention",
    "model.has_sliding_window": "whether the model has sliding-window layers",
    "model.heads": "the model's number of attention heads",
    "model.kv_heads": "the model's number of key/value heads",
    "model.num_experts": "the model's number of experts",
    "model.moe_width": "the width of the model's experts",
    "model.weight_block": "the block size of the checkpoint's scales",
    "model.context_length": "the model's context length",
    "model.quantization": "the checkpoint's quantisation",
}


def fact_words(path: str) -> str:
    """A fact's name as a reader knows it."""
    if path.startswith("run."):
        return f"what the server decides of {path.removeprefix('run.').replace('_', ' ')}"
    if path in _FACT_WORDS:
        return _FACT_WORDS[path]
    root, _, name = path.partition(".")
    return {"model": f"the model's {name}", "gpu": f"the GPU's {name}", "args": f"the value of --{name.replace('_', '-')}"}.get(
        root, f"{name} ({path})" if name else path
    )
