"""Facts of a GPU by its name, from the library's table: gpu.architecture_sm, gpu.memory_gib …"""

import re
from collections.abc import Mapping
from typing import Any


class UnknownGpu(ValueError):
    """No product of the table bears this name."""


def gpu_facts(name: str, gpus: Mapping[str, Mapping[str, Any]], memory_gib: float | None = None, count: int | None = None) -> dict[str, Any]:
    """Facts by dotted name. An unknown product is an error unless its name is empty; `memory_gib` wins over the table.

    Raises:
        UnknownGpu: with the products that are known.
    """
    facts: dict[str, Any] = {}
    if name:
        found = find_gpu(name, gpus)
        if found is None:
            known = ", ".join(sorted(gpus))
            raise UnknownGpu(f"no GPU called {name!r} in the library; known: {known}; without --gpu all is judged that does not depend on it")
        product, record = found
        facts = {f"gpu.{key}": value for key, value in record.items() if key not in ("match", "about")}
        facts["gpu.name"] = product
    if memory_gib is not None:
        facts["gpu.memory_gib"] = float(memory_gib)
    if count is not None:
        facts["gpu.count"] = count
    return facts


def find_gpu(name: str, gpus: Mapping[str, Mapping[str, Any]]) -> tuple[str, Mapping[str, Any]] | None:
    """The product whose longest text stands in `name`, or of whose texts `name` is a part ("RTX PRO 6000", "h200")."""
    plain = _plain(name)
    texts = sorted(
        ((_plain(text), product) for product, record in gpus.items() for text in (*record.get("match", ()), product)),
        key=lambda pair: -len(pair[0]),
    )
    for text, product in texts:
        if text in plain:
            return product, gpus[product]
    inside = [product for text, product in sorted(texts, key=lambda pair: len(pair[0])) if re.search(rf"\b{re.escape(plain)}\b", text)]
    return (inside[0], gpus[inside[0]]) if inside else None


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name).strip().lower()
