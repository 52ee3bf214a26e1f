"""Fills a signature's summary with the run's own values.

A value that is not known becomes a question mark, or what the field gives behind `|`: `{raised:|an exception}`. A number
brings its noun in the right form behind `~`: `{count:~start/starts}`, `{w.gap:.0f~second/seconds}`.
"""

import re
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
        return spec.partition("|")[2] or "?"

    def __str__(self) -> str:
        return "?"

    def __getattr__(self, name: str) -> "_Missing":
        return self


_MISSING = _Missing()


class _Formatter(string.Formatter):
    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:  # noqa: ARG002 - the base's signature
        return kwargs.get(str(key), _MISSING)

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is _MISSING:
            return format(value, format_spec)
        how, _, nouns = format_spec.partition("|")[0].partition("~")
        try:
            text = str(super().format_field(value, how))
        except (ValueError, TypeError):
            text = str(value)
        one, _, many = nouns.partition("/")
        return f"{text} {one if text in ('1', '-1') else many or one}" if nouns else text


_FORMATTER = _Formatter()
_DOUBLED = re.compile(r"([^\W_]|[)\]'\"`])[.,;:]+([.,;:])(?=\s|$)")  # a value's own full stop before the sentence's mark


def fill(template: str, roots: Mapping[str, Mapping[str, Json]], values: Mapping[str, object]) -> str:
    """`{w.power:.0%}` from roots, `{capture}`, `{count}`, `{ranks}`, `{gpus}` from values; one line."""
    names: dict[str, Any] = {name: _Namespace(root) for name, root in roots.items()}
    names |= {name: _MISSING if value is None else value for name, value in values.items()}
    text = " ".join(_FORMATTER.vformat(template, (), names).split())
    return text if text.endswith("...") else _DOUBLED.sub(r"\1\2", text)


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
