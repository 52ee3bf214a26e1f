"""What is different between two runs, from their documents."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from . import encode

Document = encode.Document
_IDENTITY = re.compile(r"(?:^|[._])(?:ports?|pids?|seed|id|rank|version)$")  # numbers that name something: twice as much means nothing


def runs(
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    *,
    facts_a: Iterable[Mapping[str, Any]] = (),
    facts_b: Iterable[Mapping[str, Any]] = (),
    findings_a: Iterable[Mapping[str, Any]] = (),
    findings_b: Iterable[Mapping[str, Any]] = (),
) -> Document:
    """Everything that differs, by name; what is equal is left out. A name that only one run has is null in the
    other."""
    by_signature_a = {each["signature"]: each for each in findings_a}
    by_signature_b = {each["signature"]: each for each in findings_b}
    return {
        "a": a["id"],
        "b": b["id"],
        "sglang_version": differences(a["sglang_version"], b["sglang_version"]),
        "args": differences(a["args"], b["args"]),
        "facts": differences({each["name"]: each["value"] for each in facts_a}, {each["name"]: each["value"] for each in facts_b}),
        "timings_s": differences(a["timings_s"], b["timings_s"]),
        "load": differences(a["load"], b["load"]),
        "findings_only_a": [_brief(each) for name, each in sorted(by_signature_a.items()) if name not in by_signature_b],
        "findings_only_b": [_brief(each) for name, each in sorted(by_signature_b.items()) if name not in by_signature_a],
    }


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Document]:
    names = sorted(set(a) | set(b))
    return [
        {"name": name, "a": a.get(name), "b": b.get(name), "ratio": None if _IDENTITY.search(name) else _ratio(a.get(name), b.get(name))}
        for name in names
        if a.get(name) != b.get(name) or type(a.get(name)) is not type(b.get(name))
    ]


def _ratio(a: Any, b: Any) -> float | None:
    if isinstance(a, bool) or isinstance(b, bool) or not isinstance(a, int | float) or not isinstance(b, int | float) or a == 0:
        return None
    return round(b / a, 4)


def _brief(finding: Mapping[str, Any]) -> Document:
    return {name: finding[name] for name in ("id", "signature", "topic", "severity", "title")}
