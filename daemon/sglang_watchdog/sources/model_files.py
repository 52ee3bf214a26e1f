"""Reads what a model's folder tells of its shape: config.json, hf_quant_config.json and the index of its weights.

A few small files, each bounded; weights are never opened. Where the server's path is none of this machine (another container, a
name of a model hub), there is nothing to read, and that is said.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, Final

from ..model.observation import Json, Probe
from ..parse.model_config import model_facts

ORIGIN: Final = "config.json"
_MOST_BYTES: Final = 64 * 1024 * 1024  # an index of 100,000 tensors has 10 MB
_INDEX: Final = "model.safetensors.index.json"
_LOOK_S: Final = 5.0


class UnreadableConfig(ValueError):
    """The file is missing or no config.json."""


def read_model_config(path: Path) -> dict[str, Any]:
    """Facts by dotted name from a config.json, or from the folder that holds one (then the files beside it are read too).

    Raises:
        UnreadableConfig: it cannot be read, or holds no JSON object.
    """
    file = path / "config.json" if path.is_dir() else path
    config = _read(file)
    quantization = file.parent / "hf_quant_config.json"
    facts = model_facts(config, _read(quantization) if quantization.is_file() else {})
    if path.is_dir() and (path / _INDEX).is_file():
        about = _read(path / _INDEX).get("metadata")
        size = about.get("total_size") if isinstance(about, dict) else None
        if isinstance(size, int) and not isinstance(size, bool):
            facts["model.weights_bytes"] = size
    return facts


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            text = stream.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise UnreadableConfig(f"{file}: longer than {_MOST_BYTES} bytes, so no file of a model's shape")
        config = json.loads(text.decode("utf-8"))
    except UnreadableConfig:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableConfig(f"{file}: {error}") from error
    if not isinstance(config, dict):
        raise UnreadableConfig(f"{file}: a config.json holds an object, this is a {type(config).__name__}")
    return config


def probe_model(source: str, path: Path, at_s: float) -> Probe:
    """The facts of a model's folder or config.json as an observation, or a probe whose `error` says why there are none.

    The quantisation of a checkpoint is not what a server makes of it, so it goes by a name of its own.
    """
    try:
        facts: dict[str, Json] = dict(read_model_config(path))
    except UnreadableConfig as error:
        return Probe(at_s=at_s, source=source, origin=ORIGIN, facts={}, error=str(error))
    facts["model.checkpoint_quantization"] = facts.pop("model.quantization")
    return Probe(at_s=at_s, source=source, origin=ORIGIN, facts=facts)


class ModelFiles:
    """Reads the model's folder once for each path that the server names."""

    def __init__(self, name: str, path: Callable[[], str | None], *, clock: Callable[[], float] = time.time, look_s: float = _LOOK_S) -> None:
        """`path` gives --model-path of the current run, None while it is not known."""
        self.name = name
        self._path = path
        self._clock = clock
        self._look_s = look_s

    async def events(self) -> AsyncGenerator[Probe, None]:
        """Yield one probe for each local path, as it becomes known. A slow file system holds up only this source."""
        asked: str | None = None
        while True:
            path = self._path()
            if path is not None and path != asked and path.startswith("/"):
                asked = path
                yield await asyncio.to_thread(probe_model, self.name, Path(path), self._clock())
            await asyncio.sleep(self._look_s)
