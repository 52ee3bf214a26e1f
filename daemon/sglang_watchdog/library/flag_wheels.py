"""Builds the table of arguments from SGLang wheels or unpacked trees.

python -m sglang_watchdog.library.flag_wheels WHEEL_OR_FOLDER... --out signatures/flag_fields.json
python -m sglang_watchdog.library.flag_wheels WHEEL_OR_FOLDER... --check signatures/flag_fields.json
python -m sglang_watchdog.library.flag_wheels WHEEL_OR_FOLDER... --sources signatures
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from packaging.version import Version

from .flag_declarations import Declarations, read_declarations
from .flag_reads import read_statuses, serves
from .flag_sources import check_sources, sources_in
from .flag_table import SCHEMA, FlagTable, differences, load_table, record_from_option
from .release_files import declares, python_files


@dataclass(frozen=True, slots=True)
class ReleaseFacts:
    release: str
    declared: Declarations
    reads: Mapping[str, str]


def find_releases(paths: Iterable[Path]) -> dict[str, Path]:
    """Release -> wheel or unpacked tree, oldest first, of files and of folders that hold them.

    Raises:
        ValueError: one of the paths is neither.
    """
    found: dict[str, Path] = {}
    for path in paths:
        inside = [path] if _release_of(path) else sorted(path.iterdir()) if path.is_dir() else []
        named = {release: item for item in inside if (release := _release_of(item))}
        if not named:
            raise ValueError(f"{path}: neither an SGLang wheel, an unpacked one, nor a folder of them")
        found |= named
    return dict(sorted(found.items(), key=lambda item: Version(item[0])))


def _release_of(path: Path) -> str:
    if path.suffix == ".whl" and path.name.startswith("sglang-"):
        return path.name.split("-")[1]
    if (path / "sglang" / "srt").is_dir():
        for info in path.glob("sglang-*.dist-info"):
            return info.name.removeprefix("sglang-").removesuffix(".dist-info")
        named = re.search(r"\d+(?:\.\d+)+(?:\.?post\d+)?$", path.name)
        return named.group() if named else ""
    return ""


def read_release(release: str, origin: Path) -> ReleaseFacts:
    """Parse one release; takes some seconds."""
    trees = list(python_files(origin, serves))
    declared = read_declarations({name: tree for name, tree in trees if declares(name)})
    return ReleaseFacts(release, declared, read_statuses(trees, declared.defaults))


def build_table(facts: Sequence[ReleaseFacts]) -> FlagTable:
    """Join releases (oldest first) into runs."""
    releases = [item.release for item in facts]
    names = {name: None for item in facts for name in item.declared.defaults}
    options = {text: None for item in facts for text in item.declared.options}
    fields = {
        name: {
            "default": _runs(releases, [item.declared.defaults.get(name, _ABSENT) for item in facts]),
            "read": _runs(releases, [item.reads.get(name, _ABSENT) for item in facts]),
        }
        for name in names
    }
    option_runs = {text: _runs(releases, [_record(item, text) for item in facts]) for text in options}
    return FlagTable(tuple(releases), fields, option_runs)


_ABSENT = object()


def _record(item: ReleaseFacts, option: str) -> Any:
    return record_from_option(item.declared.options[option]) if option in item.declared.options else _ABSENT


def _runs(releases: Sequence[str], values: Sequence[Any]) -> list[list[Any]]:
    runs: list[list[Any]] = []
    open_run = False
    for release, value in zip(releases, values, strict=True):
        if value is _ABSENT:
            open_run = False
        elif open_run and json.dumps(runs[-1][2]) == json.dumps(value):  # 1 and True are equal in Python, not in a flag's default
            runs[-1][1] = release
        else:
            runs.append([release, release, value])
            open_run = True
    return runs


def write_table(table: FlagTable, path: Path) -> None:
    """One field or option a line, sorted, so that a new release reads as a diff."""

    def block(mapping: Mapping[str, Any]) -> str:
        return ",\n".join(f"  {json.dumps(name)}: {json.dumps(mapping[name], separators=(',', ':'))}" for name in sorted(mapping))

    path.write_text(
        f'{{"schema": {SCHEMA},\n "releases": {json.dumps(list(table.releases))},\n "fields": {{\n{block(table.fields)}\n }},\n'
        f' "options": {{\n{block(table.options)}\n }}\n}}\n',
        "utf-8",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Exit 0 written or equal, 1 the wheels differ from the table, 2 usage."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheels", nargs="+", type=Path)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--out", type=Path, help="write the table there")
    target.add_argument("--check", type=Path, help="compare with this table and print what differs")
    target.add_argument(
        "--sources", type=Path, metavar="SIGNATURES", help="check that the files and functions named as sources exist"
    )
    options = parser.parse_args(argv)
    try:
        origins = find_releases(options.wheels)
    except ValueError as error:
        parser.error(str(error))
    if options.sources:
        paths = (*options.sources.glob("flags/flag-*.yaml"), options.sources / "decisions.yaml")
        named = [source for path in paths if path.is_file() for source in sources_in(yaml.safe_load(path.read_text("utf-8")))]
        missing = check_sources(named, origins)
        print("\n".join(missing) or f"all {len(set(named))} sources exist")
        return 1 if missing else 0
    table = build_table([read_release(release, origin) for release, origin in origins.items()])
    if options.out:
        write_table(table, options.out)
        return 0
    found = differences(load_table(options.check), table)
    print("\n".join(found) or f"{len(table.releases)} releases agree with {options.check}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
