"""Fills a signature's summary with the run's own values; a value that is not known becomes a question mark."""

import string
from collections.abc import Mapping, Sequence
from typing import Any

from ..model.observation import Json


class _Namespace:
    """Attribute access over a mapping, for `{args.tp_size}`."""

    def __init__(self, values: Mapping[str, Json]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        value = self._values.get(name)
        if value is None:
            return _MISSING
        return _Namespace(value) if isinstance(value, dict) else value


class _Missing:
    def __format__(self, spec: str) -> str:
        return "?"

    def __str__(self) -> str:
        return "?"

    def __getattr__(self, name: str) -> "_Missing":
        return self


_MISSING = _Missing()


class _Formatter(string.Formatter):
    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:  # noqa: ARG002 - the base's signature
        return kwargs.get(str(key), _MISSING)

    def format_field(self, value: Any, format_spec: str) -> str:
        try:
            return str(super().format_field(value, format_spec))
        except (ValueError, TypeError):
            return str(value)


_FORMATTER = _Formatter()


def fill(template: str, roots: Mapping[str, Mapping[str, Json]], values: Mapping[str, object]) -> str:
    """`{w.power:.0%}` from roots, `{capture}`, `{count}`, `{ranks}`, `{gpus}` from values; one line."""
    names: dict[str, Any] = {name: _Namespace(root) for name, root in roots.items()}
    names |= {name: _MISSING if value is None else value for name, value in values.items()}
    return " ".join(_FORMATTER.vformat(template, (), names).split())


def gpu_list(gpus: Sequence[int]) -> str:
    """0-3,5 for (0, 1, 2, 3, 5)."""
    ordered, parts = sorted(set(gpus)), []
    start = previous = None
    for gpu in [*ordered, None]:
        if previous is not None and gpu == previous + 1:
            previous = gpu
            continue
        if start is not None:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = gpu
    return ",".join(parts)
