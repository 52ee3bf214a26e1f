"""Whether a run's release, often only known as a range, lies inside a signature's range.

Version numbers are compared as PEP 440 does; the engine gets the sampled releases from the library, so a range is tested by its
members and its two ends.
"""

import re
from functools import total_ordering
from typing import Final

from ..model.finding import Release

_VERSION: Final = re.compile(r"^v?(\d+(?:\.\d+)*)(?:\.?(a|b|rc|dev|post)\.?(\d*))?")
_CLAUSE: Final = re.compile(r"\s*(>=|<=|==|!=|>|<|~=)\s*([^,\s]+)\s*")
_STAGE: Final = {"dev": -4, "a": -3, "b": -2, "rc": -1, "": 0, "post": 1}


@total_ordering
class Version:
    """A release number: digits, then dev < a < b < rc < final < post."""

    __slots__ = ("key",)

    def __init__(self, text: str) -> None:
        """Raises ValueError if it does not begin with a number."""
        found = _VERSION.match(text.strip())
        if not found:
            raise ValueError(f"{text!r} is no release number")
        digits = [int(part) for part in found[1].split(".")]
        while len(digits) > 1 and digits[-1] == 0:
            digits.pop()
        self.key = (tuple(digits), _STAGE[found[2] or ""], int(found[3] or 0))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.key == other.key

    def __lt__(self, other: "Version") -> bool:
        return self.key < other.key

    def __hash__(self) -> int:
        return hash(self.key)


def contains(specifier: str, version: Version) -> bool:
    """Whether a comma-separated specifier (">=0.5.8,<0.5.14") holds the version; an empty one holds every version.

    Raises ValueError on a malformed specifier.
    """
    for clause in filter(None, (part.strip() for part in specifier.split(","))):
        found = _CLAUSE.fullmatch(clause)
        if not found:
            raise ValueError(f"{clause!r} is no release specifier")
        if not _holds(found[1], version, Version(found[2])):
            return False
    return True


def _holds(operator: str, version: Version, bound: Version) -> bool:
    if operator == "~=":
        prefix = bound.key[0][:-1]
        return version >= bound and version.key[0][: len(prefix)] == prefix
    if operator == "==":
        # A sampled "0.5.9" stands for its post releases too: they change packaging, seldom messages.
        return version == bound
    return {">=": version >= bound, "<=": version <= bound, ">": version > bound, "<": version < bound, "!=": version != bound}[operator]


class Releases:
    """The sampled releases, to judge ranges."""

    def __init__(self, sampled: tuple[str, ...]) -> None:
        self._sampled = sorted((Version(text), text) for text in sampled)
        self._known: dict[tuple[str, str | None, str | None], bool | None] = {}

    def knows(self, release: Release) -> bool:
        """Whether the release lies between the oldest and the newest whose sources were read."""
        if not self._sampled or release.min is None or release.max is None:
            return False
        return self._sampled[0][0] <= Version(release.min) and Version(release.max) <= self._sampled[-1][0]

    def covers(self, specifier: str, release: Release) -> bool | None:
        """True if every release the run may be is inside, False if none is, None if it cannot be told."""
        if not specifier:
            return True
        if release.min is None or release.max is None:
            return None
        key = (specifier, release.min, release.max)
        if key not in self._known:
            self._known[key] = self._covers(specifier, Version(release.min), Version(release.max))
        return self._known[key]

    def _covers(self, specifier: str, low: Version, high: Version) -> bool | None:
        between = [version for version, _ in self._sampled if low <= version <= high]
        answers = {contains(specifier, version) for version in (low, *between, high)}
        return answers.pop() if len(answers) == 1 else None
