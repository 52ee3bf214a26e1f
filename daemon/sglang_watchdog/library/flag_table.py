"""The table of SGLang's arguments: for each sampled release what is declared, its default, its options and whether it is
ever read.

Generated from wheels by `flag_wheels`, kept in signatures/flag_fields.json, compared with new wheels by the matrix.
Runs are written as [first release, last release, value] over the sampled releases, so that a range never claims a
release that nobody read.
"""

import bisect
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from .flag_declarations import DeclaredOption

SCHEMA = 1
OPTION_KEYS = ("field", "action", "type", "nargs", "choices", "new", "says", "const", "required")
_OPTION_DEFAULTS: Mapping[str, Any] = {
    "action": "store",
    "type": "str",
    "nargs": None,
    "choices": None,
    "new": "",
    "says": "",
    "const": None,
    "required": False,
}


class UnknownRelease(ValueError):
    """The text is no release number, or lies outside the releases whose sources were read."""


@dataclass(frozen=True)
class FlagTable:
    """Answers "what does release R declare?" for every sampled release R."""

    releases: tuple[str, ...]  # oldest first
    fields: Mapping[str, Mapping[str, Sequence[Sequence[Any]]]]  # field -> {"default": runs, "read": runs}
    options: Mapping[str, Sequence[Sequence[Any]]]  # option -> runs of option records

    @cached_property
    def _versions(self) -> tuple[Version, ...]:
        return tuple(Version(text) for text in self.releases)

    @cached_property
    def _position(self) -> Mapping[str, int]:
        return {text: index for index, text in enumerate(self.releases)}

    def sampled(self, release: str) -> tuple[str, ...]:
        """The sampled releases that speak for `release`: itself, a later post-release of the same number, or the two around it.

        Raises:
            UnknownRelease: no version, or older or newer than everything that was read.
        """
        try:
            wanted = Version(release)
        except InvalidVersion as error:
            raise UnknownRelease(f"{release!r} is no SGLang release number; write it like 0.5.12 or 0.5.10.post1") from error
        same = [text for text, version in zip(self.releases, self._versions, strict=True) if version.release == wanted.release]
        if same:
            return (release,) if release in same else (same[0],)
        index = bisect.bisect(self._versions, wanted)
        if index in (0, len(self.releases)):
            raise UnknownRelease(
                f"SGLang {release} is outside the releases whose sources were read ({self.releases[0]} to {self.releases[-1]})"
            )
        return self.releases[index - 1], self.releases[index]

    def between(self, first: str | None, last: str | None) -> tuple[str, ...]:
        """The sampled releases from `first` to `last`, both included; None is open."""
        low = Version(first) if first else self._versions[0]
        high = Version(last) if last else self._versions[-1]
        return tuple(text for text, version in zip(self.releases, self._versions, strict=True) if low <= version <= high)

    def _at(self, runs: Sequence[Sequence[Any]], release: str) -> tuple[bool, Any]:
        index = self._position[release]
        for first, last, value in runs:
            if self._position[first] <= index <= self._position[last]:
                return True, value
        return False, None

    def declares(self, name: str, release: str) -> bool:
        """Whether the sampled `release` has the field."""
        record = self.fields.get(name)
        return record is not None and self._at(record["default"], release)[0]

    def default(self, name: str, release: str) -> Any:
        """The default of a declared field; {"expr": True} where it is computed."""
        return self._at(self.fields[name]["default"], release)[1]

    def read_status(self, name: str, release: str) -> str | None:
        """read, resolution-only, weak-only, never-read, or None if not declared."""
        record = self.fields.get(name)
        return None if record is None else self._at(record["read"], release)[1]

    def option(self, text: str, release: str) -> DeclaredOption | None:
        """The option of exactly this spelling in the sampled `release`."""
        known, record = self._at(self.options.get(text, ()), release)
        return option_from_record(record) if known else None

    def options_at(self, release: str) -> Mapping[str, DeclaredOption]:
        """All option strings that the sampled `release` accepts, `--help` included."""
        found = {text: option for text in self.options if (option := self.option(text, release)) is not None}
        for text in ("-h", "--help"):
            found[text] = DeclaredOption(field="help", action="help", type="bool")
        return found

    def option_releases(self, text: str) -> tuple[str, ...]:
        """The sampled releases that accept the option, oldest first."""
        return tuple(release for release in self.releases if self._at(self.options.get(text, ()), release)[0])

    def options_of(self, name: str, release: str) -> tuple[str, ...]:
        """The option strings that set the field in the sampled `release`, the release's main spelling first."""
        return tuple(text for text in self.options if (option := self.option(text, release)) is not None and option.field == name)

    def fields_at(self, release: str) -> tuple[str, ...]:
        return tuple(name for name in self.fields if self.declares(name, release))


def option_from_record(record: Mapping[str, Any]) -> DeclaredOption:
    values = {**_OPTION_DEFAULTS, **record}
    choices = values["choices"]
    return DeclaredOption(
        field=values["field"],
        action=values["action"],
        type=values["type"],
        nargs=values["nargs"],
        choices=None if choices is None else tuple(choices),
        new=values["new"],
        says=values["says"],
        const=values["const"],
        required=values["required"],
    )


def record_from_option(option: DeclaredOption) -> dict[str, Any]:
    """Only what differs from the usual, so that the committed table stays small."""
    record: dict[str, Any] = {}
    for key in OPTION_KEYS:
        value = getattr(option, key)
        if isinstance(value, tuple):
            value = list(value)
        if key == "field" or value != _OPTION_DEFAULTS[key]:
            record[key] = value
    return record


def load_table(path: Path) -> FlagTable:
    """Read signatures/flag_fields.json.

    Raises:
        ValueError: another schema than this code knows; rebuild the table with `flag_wheels`.
    """
    data = json.loads(path.read_text("utf-8"))
    if data.get("schema") != SCHEMA:
        raise ValueError(f"{path}: schema {data.get('schema')!r}, this program reads {SCHEMA}; rebuild the table from the wheels")
    return FlagTable(tuple(data["releases"]), data["fields"], data["options"])


def differences(known: FlagTable, seen: FlagTable) -> list[str]:
    """One sentence for each field or option in which a release of `seen` is not what `known` says; empty means all agree.

    A release that `known` lacks is compared with the last one it has, which tells what a new release changed.
    """
    found: list[str] = []
    for release in seen.releases:
        base = release if release in known.releases else known.releases[-1]
        suffix = "" if base == release else f" (against {base})"
        for name in sorted({*known.fields_at(base), *seen.fields_at(release)}):
            if not known.declares(name, base):
                found.append(f"{release}: {name} is declared, the table lacks it{suffix}")
            elif not seen.declares(name, release):
                found.append(f"{release}: {name} is gone{suffix}")
            else:
                found += _field_differences(known, seen, name, base, release, suffix)
        old, new = known.options_at(base), seen.options_at(release)
        found += [f"{release}: option {text} is new{suffix}" for text in sorted(new.keys() - old.keys())]
        found += [f"{release}: option {text} is gone{suffix}" for text in sorted(old.keys() - new.keys())]
        found += [
            f"{release}: option {text} is declared otherwise{suffix}"
            for text in sorted(old.keys() & new.keys())
            if old[text] != new[text]
        ]
    return found


def _field_differences(known: FlagTable, seen: FlagTable, name: str, base: str, release: str, suffix: str) -> Iterable[str]:
    if known.default(name, base) != seen.default(name, release):
        new, old = seen.default(name, release), known.default(name, base)
        yield f"{release}: default of {name} is {new!r}, the table says {old!r}{suffix}"
    if known.read_status(name, base) != seen.read_status(name, release):
        yield f"{release}: {name} is {seen.read_status(name, release)}, the table says {known.read_status(name, base)}{suffix}"
