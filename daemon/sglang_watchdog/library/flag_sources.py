"""Checks that what the flag files name as their source exists in the wheels: `release, file::function`."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .release_files import read_text

_SOURCE = re.compile(r"^(?P<release>[^,\s]+), (?P<file>srt/\S+)::(?P<name>[\w<>]+)$")


def sources_in(value: Any) -> Iterator[str]:
    """Every `source` of a flag file or decisions file, wherever it stands."""
    if isinstance(value, Mapping):
        if isinstance(value.get("source"), str):
            yield value["source"]
        for inner in value.values():
            yield from sources_in(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from sources_in(inner)


def check_sources(sources: Iterable[str], origins: Mapping[str, Path]) -> list[str]:
    """One sentence for each source that the wheels do not bear out. Sources of releases that are not given are not checked."""
    found: list[str] = []
    for source in sorted(set(sources)):
        match = _SOURCE.match(source)
        if match is None:
            found.append(f"{source}: not of the form `release, srt/file.py::function`")
        elif match["release"] in origins:
            text = read_text(origins[match["release"]], f"sglang/{match['file']}")
            if text is None:
                found.append(f"{source}: this release has no such file")
            elif match["name"] != "<module>" and not re.search(
                rf"^\s*(?:(?:async )?def|class) {re.escape(match['name'])}\b", text, re.MULTILINE
            ):
                found.append(f"{source}: the file defines no such function or class")
    return found
