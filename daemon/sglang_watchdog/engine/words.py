"""Fills a signature's summary with the run's own values.

A clause in brackets is left out where one of its values is not known. A value may bring its own words for that case behind `|`:
`{raised:|an exception}`. A number brings its noun in the right form behind `~`: `{count:~start/starts}`, `{w.gap:.0f~second/seconds}`.
"""

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..model.observation import Json

CLAUSE: Final = re.compile(r"\[([^\[\]]*)\]")
_DOUBLED: Final = re.compile(r"([^\W_]|[)\]'\"`])[.,;:]+([.,;:])(?=\s|$)")  # a value's own full stop before the sentence's mark
_STEPS: Final = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))


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


def write(value: Any, spec: str) -> str:
    """One value in a summary: Python's format, or `B` for bytes in decimal units (1.9 GB), with a noun behind `~`.

    Raises:
        ValueError, TypeError: a value of this type cannot be written so.
    """
    how, _, nouns = spec.partition("|")[0].partition("~")
    return _with_noun(_bytes(float(value)) if how == "B" else format(value, how), nouns)


def _with_noun(number: str, nouns: str) -> str:
    one, _, many = nouns.partition("/")
    return f"{number} {one if number in ('1', '-1') else many or one}" if nouns else number


def _bytes(value: float) -> str:
    """Two or three digits that count: 1.9 GB, 53 GB, 512 B."""
    unit, size = next(((unit, size) for unit, size in _STEPS if abs(value) >= 0.9995 * size), ("", 1.0))
    scaled = value / size
    return f"{scaled:.1f} {unit}B" if unit and abs(scaled) < 9.95 else f"{scaled:.0f} {unit}B"


class _Formatter(string.Formatter):
    """Notes whether a value was missing; made anew for each template."""

    def __init__(self) -> None:
        self.lacks = False

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:  # noqa: ARG002 - the base's signature
        return kwargs.get(str(key), _MISSING)

    def format_field(self, value: Any, format_spec: str) -> str:
        self.lacks = self.lacks or value is _MISSING or value == ""
        if value is _MISSING:
            return format(value, format_spec)
        try:
            return write(value, format_spec)
        except (ValueError, TypeError):
            return _with_noun(str(value), format_spec.partition("|")[0].partition("~")[2])


def fill(template: str, roots: Mapping[str, Mapping[str, Json]], values: Mapping[str, object]) -> str:
    """`{w.power:.0%}` from roots, `{capture}`, `{count}`, `{ranks}`, `{gpus}` from values; one line.

    `[, {w.dram:.0%} of the memory]` disappears whole if a value in it is not known; elsewhere such a value is a question mark,
    which lint refuses (SIG028).
    """
    names: dict[str, Any] = {name: _Namespace(root) for name, root in roots.items()}
    names |= {name: _MISSING if value is None else value for name, value in values.items()}

    def clause(found: re.Match[str]) -> str:
        formatter = _Formatter()
        text = formatter.vformat(found[1], (), names)
        # What is filled in must not be read as a template again.
        return "" if formatter.lacks else text.replace("{", "{{").replace("}", "}}")

    text = " ".join(_Formatter().vformat(CLAUSE.sub(clause, template), (), names).split())
    return text if text.endswith("...") else _DOUBLED.sub(r"\1\2", text)


def span(seconds: float) -> str:
    """A length of time in its largest unit: "90 s", "40 min", "3 h", "12 days"."""
    for size, unit in ((172_800.0, "days"), (7_200.0, "h"), (120.0, "min")):
        if seconds >= size:
            return f"{seconds / {'days': 86_400.0, 'h': 3_600.0, 'min': 60.0}[unit]:.0f} {unit}"
    return f"{seconds:.0f} s"


def gpus_named(gpus: Sequence[int]) -> str:
    """`GPU 3`, or `GPUs 0-3,5`."""
    return f"{'GPU' if len(set(gpus)) == 1 else 'GPUs'} {gpu_list(gpus)}"


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
