"""What a model's name tells where its config.json is not here: the shapes that the library lists for published models."""

import re
from collections.abc import Iterable
from typing import Any

from ..engine.products import Products
from .knowledge import Knowledge

_CACHE = re.compile(r"models--([^/]+)--([^/]+)(?:/|$)")  # the folder of a hub's cache: models--owner--name/snapshots/…
_PARAMETERS = re.compile(r"(?i)(?:^|-)(\d+(?:\.\d+)?)B(?:-|$)")
_LEAST_BYTES = 0.45  # of a weight: four bits, and names round the number of parameters up
_FORMATS = (
    (re.compile(r"(?i)NVFP4|\bFP4\b"), "modelopt_fp4"),
    (re.compile(r"(?i)MXFP4"), "mxfp4"),
    (re.compile(r"(?i)W4AFP8"), "w4afp8"),
    (re.compile(r"(?i)FP8"), "fp8"),
    (re.compile(r"(?i)\bAWQ\b"), "awq"),
    (re.compile(r"(?i)GPTQ"), "gptq"),
    (re.compile(r"(?i)W8A8|INT8"), "w8a8_int8"),
)


def named_facts(knowledge: Knowledge, *names: str) -> tuple[str, dict[str, Any]]:
    """(the name that was known, its facts by dotted name), or ("", {}). Quantisation is never among them: one name has
    checkpoints of several.
    """
    products = Products(knowledge.models, knowledge.gpus, knowledge.shapes)
    for name in _own_names(names):
        shape = products.shape_of(name)
        architecture = shape.get("architecture")
        if not shape or not architecture:
            continue
        facts: dict[str, Any] = {"model.is_hybrid_linear": False, "model.has_sliding_window": False, "model.is_multimodal": False}
        facts |= products.facts_of("model.architecture", str(architecture))
        facts |= {f"model.{key}": value for key, value in shape.items()}
        facts["model.is_sparse_attention"] = "index_topk" in shape
        named = _PARAMETERS.search(name)
        billions = shape.get("parameters_b") or (float(named[1]) if named else 0.0)
        if billions:
            facts["model.weights_least_gib"] = round(billions * 1e9 * _LEAST_BYTES / 2**30, 1)
        return name, facts
    return "", {}


def _own_names(names: Iterable[str]) -> Iterable[str]:
    """The last part of a path or repository, and the repository that a cache's folder stands for."""
    for name in names:
        cached = _CACHE.search(name)
        if cached is not None:
            yield cached[2]
        elif name:
            yield name.rstrip("/").rpartition("/")[2]


def hinted_quantization(name: str) -> str:
    """The format that a name suggests, as --quantization spells it; "" where it suggests none."""
    return next((method for pattern, method in _FORMATS if pattern.search(name)), "")
