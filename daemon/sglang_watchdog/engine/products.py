"""What a name implies: an architecture says whether the model is a mixture of experts, a product how fast its memory is."""

import re
from collections.abc import Mapping
from typing import Any

from ..model.observation import Json


class Products:
    """Looks names up in the library's tables of models and GPUs."""

    def __init__(
        self,
        models: Mapping[str, Mapping[str, Any]],
        gpus: Mapping[str, Mapping[str, Any]],
        shapes: Mapping[str, Mapping[str, Any]] | None = None,
        parameter_bytes: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        self._models = models
        self._patterns = [(re.compile(name), facts) for name, facts in models.items() if not name.isidentifier()]
        self._shapes = [(re.compile(name, re.IGNORECASE), facts) for name, facts in (shapes or {}).items()]
        self.parameter_bytes = dict(parameter_bytes or {})
        self._gpus = sorted(
            ((_plain(text), facts) for facts in gpus.values() for text in facts.get("match", ())),
            key=lambda pair: -len(pair[0]),
        )

    def facts_of(self, fact: str, name: str) -> dict[str, Json]:
        """The facts that follow from `model.architecture` or `gpu.name` having this value, by dotted name."""
        if fact == "model.architecture":
            return {f"model.{key}": value for key, value in self._model(name).items()}
        if fact == "gpu.name":
            return {f"gpu.{key}": value for key, value in self._gpu(name).items() if key != "match"}
        return {}

    def shape_of(self, name: str) -> Mapping[str, Any]:
        """What the config.json of a published model of this name says, by plain fact name; empty if it is not listed."""
        return next((facts for pattern, facts in self._shapes if pattern.fullmatch(name)), {})

    def _model(self, name: str) -> Mapping[str, Any]:
        if name in self._models:
            return self._models[name]
        return next((facts for pattern, facts in self._patterns if pattern.fullmatch(name)), {})

    def _gpu(self, name: str) -> Mapping[str, Any]:
        plain = _plain(name)
        return next((facts for text, facts in self._gpus if text in plain), {})


def _plain(name: str) -> str:
    """NVML's "NVIDIA H100 80GB HBM3" and the config files' NVIDIA_H100_80GB_HBM3 are one name."""
    return name.replace("_", " ").lower()
