"""Which release of SGLang prints what each pattern looks for: made from wheels, checked without them.

The table stands beside the signatures as `matrix.json`: for each pattern with a `level`, one letter a release,
`+` printed, `l` printed at another level, `~` not printed, but another pattern of its group is, `-` not printed.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..config.faults import Fault
from ..config.yaml_source import Document, Way
from ..engine.releases import Version, contains
from ..model.signature import Pattern
from .files import SignatureFile, read_json_table, shown_name
from .load import Loaded
from .matching import matches, message_of
from .stories import lines_of
from .upstream.index import Index, Said
from .upstream.release import ReleaseFacts, read_release
from .upstream.trees import find_trees

NAME: Final = "matrix.json"
SUPPORT: Final = re.compile(r"#(witness|opportunity|unless|resolve)\.")
PRESENT, OTHER_LEVEL, REWORDED, ABSENT = "+", "l", "~", "-"


@dataclass(frozen=True, slots=True)
class Row:
    """One pattern: a hash of what it matches, its level, and a letter for each release."""

    digest: str
    level: str
    seen: str


@dataclass(frozen=True, slots=True)
class _Entry:
    pattern: Pattern
    releases: str  # its own range, or its signature's
    group: str
    is_support: bool  # a witness or the like: it may well be printed elsewhere too
    examples: tuple[str, ...]
    document: Document
    way: Way


def pattern_digest(pattern: Pattern) -> str:
    """8 hex digits over what a pattern matches and at which level."""
    parts = (pattern.starts, pattern.contains, pattern.regex, pattern.ignore_case, pattern.level)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:8]


def make(loaded: Loaded, root: Path, wheels: Sequence[Path], cache: Path | None = None) -> list[Fault]:
    """Read the releases at `wheels`, write both tables of a folder, and say what does not fit.

    Raises:
        NoSource: a path is no release of SGLang.
    """
    releases = [read_release(tree, cache) for tree in find_trees(wheels)]
    write_fields(root, releases)
    index = Index(releases)
    write(root, build(loaded, index), index.releases)
    return check(loaded, root)


def build(loaded: Loaded, index: Index) -> dict[str, Row]:
    """The table of all patterns with a level."""
    seen: dict[str, dict[str, str]] = {}
    entries = {entry.pattern.id: entry for entry in _entries(loaded)}
    for name, entry in entries.items():
        seen[name] = _letters(index.find(entry.pattern, entry.examples), entry.pattern.level or "")
    groups: dict[str, set[str]] = {}
    for name, entry in entries.items():
        groups.setdefault(entry.group, set()).update(seen[name])
    return {
        name: Row(pattern_digest(entry.pattern), entry.pattern.level or "", "".join(
            seen[name].get(release, REWORDED if release in groups[entry.group] else ABSENT) for release in index.releases))
        for name, entry in entries.items()
    }  # fmt: skip


def _letters(said: Iterable[Said], level: str) -> dict[str, str]:
    out: dict[str, str] = {}
    for one in said:
        for release in one.releases:
            if one.level == level or out.get(release) != PRESENT:
                out[release] = PRESENT if one.level == level else OTHER_LEVEL
    return out


def places(loaded: Loaded, index: Index, name: str) -> list[str]:
    """Where each release says what one pattern matches: `level file::function: releases`, for people."""
    entry = next(one for one in _entries(loaded) if one.pattern.id == name)
    order = {release: number for number, release in enumerate(index.releases)}
    return [
        f"{said.level} {said.place}: {spans(sorted(said.releases, key=order.__getitem__), index.releases)}"
        for said in index.find(entry.pattern, entry.examples)
    ]


def spans(releases: Sequence[str], all_releases: Sequence[str]) -> str:
    """Runs of consecutive releases: `0.4.5.post3..0.5.9, 0.5.23`."""
    runs: list[list[str]] = []
    for number, release in enumerate(all_releases):
        if release not in releases:
            continue
        if runs and number and runs[-1][-1] == all_releases[number - 1]:
            runs[-1].append(release)
        else:
            runs.append([release])
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]}..{run[-1]}" for run in runs) or "none"


def write(root: Path, rows: Mapping[str, Row], releases: Sequence[str]) -> None:
    """Write the table, a pattern a line, so that a new release is a readable diff."""
    lines = [f"  {json.dumps(name)}: {json.dumps([row.digest, row.level, row.seen])}" for name, row in sorted(rows.items())]
    body = ",\n".join(lines)
    text = f'{{"schema": 1, "releases": {json.dumps(list(releases))}, "patterns": {{\n{body}\n}}}}\n'
    (root / NAME).write_text(text, "utf-8")


def write_fields(root: Path, releases: Sequence[ReleaseFacts]) -> None:
    """Write `server_args_fields.json`: argument -> first and last release that declares it, and its newest type."""
    fields: dict[str, list[str]] = {}
    for facts in releases:
        for name, kind in facts.fields.items():
            first = fields[name][0] if name in fields else facts.version
            fields[name] = [first, facts.version, kind]
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(fields.items()))
    versions = json.dumps([facts.version for facts in releases])
    text = f'{{"schema": 1, "releases": {versions}, "fields": {{\n{lines}\n}}}}\n'
    (root / "server_args_fields.json").write_text(text, "utf-8")


def read(root: Path) -> tuple[dict[str, Row], list[str], list[Fault]]:
    """The table of a folder: rows, releases, faults."""
    table, faults = read_json_table(root / NAME)
    rows: Mapping[str, Any] = table.get("patterns", {})
    return {name: Row(*row) for name, row in rows.items()}, list(table.get("releases", [])), faults


def check(loaded: Loaded, root: Path) -> list[Fault]:
    """Whether the table fits the files: every pattern stands in it as it is, and is printed wherever its range says so."""
    rows, releases, faults = read(root)
    if not releases:
        return [
            *faults,
            Fault(
                path=shown_name(root / NAME),
                code="SIG061",
                message="there is no table of releases",
                help="Make it: `sglang-watchdog signatures matrix --wheels WHEEL…`.",
            ),
        ]
    entries = [entry for entry in _entries(loaded) if _is_below(entry, root)]
    for entry in entries:
        row = rows.get(entry.pattern.id)
        if row is None or row.digest != pattern_digest(entry.pattern):
            faults.append(
                entry.document.fault(
                    entry.way,
                    f"{NAME} does not know this pattern as it stands",
                    code="SIG061",
                    help="Run `sglang-watchdog signatures matrix --wheels WHEEL…`.",
                )
            )
        else:
            faults += _judge(entry, row, releases)
    known = {entry.pattern.id for entry in entries}
    faults += [
        Fault(
            path=shown_name(root / NAME),
            code="SIG061",
            message=f"`{name}` is no pattern of the library",
            help="Run `sglang-watchdog signatures matrix --wheels WHEEL…`.",
        )
        for name in rows
        if name not in known
    ]
    return faults


def _judge(entry: _Entry, row: Row, releases: Sequence[str]) -> Iterator[Fault]:
    inside = {release for release in releases if contains(entry.releases, Version(release))}
    letters = dict(zip(releases, row.seen, strict=True))
    if not entry.releases:  # a milestone of any release: somewhere is enough
        if PRESENT not in row.seen:
            yield entry.document.fault(entry.way, f"no release prints this at {row.level}", code="SIG062")
        return
    absent = [release for release in releases if release in inside and letters[release] in (ABSENT, REWORDED)]
    other = [release for release in releases if release in inside and letters[release] == OTHER_LEVEL]
    outside = [release for release in releases if release not in inside and letters[release] == PRESENT]
    present = spans([release for release in releases if letters[release] == PRESENT], releases)
    if absent:
        yield entry.document.fault(
            entry.way,
            f"not printed by {spans(absent, releases)}",
            code="SIG062",
            help=f"Printed by {present}. Narrow `releases:`, add the other wording, or drop `level:` if SGLang is not who prints it.",
        )
    if other:
        yield entry.document.fault(
            entry.way,
            f"not logged at {row.level} by {spans(other, releases)}",
            code="SIG063",
            help=f"At {row.level} by {present}. Give the other level a pattern of its own.",
        )
    if outside and not entry.is_support:
        yield entry.document.fault(
            entry.way,
            f"also printed by {spans(outside, releases)}, outside of its range",
            code="SIG064",
            is_warning=True,
            help="Read those releases and widen `releases:`, or leave it.",
        )


def _is_below(entry: _Entry, root: Path) -> bool:
    return entry.document.path.startswith(shown_name(root))


def _entries(loaded: Loaded) -> Iterator[_Entry]:
    for file in loaded.files:
        lines = _lines(file)
        for name, pattern in file.patterns.items():
            if pattern.level and (pattern.releases or file.signature.releases):
                examples = tuple(line for line in (*lines, message_of(pattern.example)) if line and matches(pattern, line))
                yield _Entry(pattern, pattern.releases or file.signature.releases, name.rpartition(".")[0] or file.body.id,
                    bool(SUPPORT.search(name)),
                             examples, file.document, file.ways[name])  # fmt: skip
    for document, patterns, ways in loaded.milestone_patterns:
        for name, pattern in patterns.items():
            if pattern.level:
                yield _Entry(pattern, pattern.releases, name.partition("#")[0], True, (message_of(pattern.example),), document,
                             ways[name])  # fmt: skip


def _lines(file: SignatureFile) -> list[str]:
    return list(dict.fromkeys(message_of(line) for one in file.body.examples for line in lines_of(one, file.path.parent)))
