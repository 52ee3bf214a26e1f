"""Every message of every release, laid out so that one pattern can be looked for in all of them at once."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from ...model.signature import Pattern
from ..matching import matches
from .release import ReleaseFacts
from .templates import Template, fixed_length, longest_fixed, regex_of, samples

LEAST_FIXED: Final = 8  # letters that a template must have before an example line can prove it


@dataclass(slots=True)
class Said:
    """One template at one level, and the releases that have it."""

    level: str
    name: str
    template: Template
    place: str  # file::function in the newest of them
    releases: set[str] = field(default_factory=set)


class Index:
    """`said` holds each distinct message once; sample lines of all of them stand in one text."""

    def __init__(self, releases: Iterable[ReleaseFacts]) -> None:
        found: dict[tuple[str, str, Template], Said] = {}
        self.releases: list[str] = []
        for facts in releases:
            self.releases.append(facts.version)
            for message in facts.messages:
                key = (message.level, message.name, message.template)
                said = found.setdefault(key, Said(message.level, message.name, message.template, ""))
                said.place = f"{message.file}::{message.function}"
                said.releases.add(facts.version)
        self.said = list(found.values())
        self._text, self._starts, self._owners = self._lay_out()

    def _lay_out(self) -> tuple[str, list[int], list[int]]:
        lines, owners = [], []
        for number, said in enumerate(self.said):
            for line in {line for sample in samples(said.template) for line in _lines(said, sample)}:
                lines.append(line)
                owners.append(number)
        starts, position = [], 0
        for line in lines:
            starts.append(position)
            position += len(line) + 1
        return "\n".join(lines) + "\n", starts, owners

    def find(self, pattern: Pattern, examples: Iterable[str] = ()) -> list[Said]:
        """The messages that the pattern matches. `examples` are lines that it is known to match: a message whose template
        can have produced one of them counts too, since a pattern may ask for values that no sample has."""
        hits = {owner for line, owner in self._candidates(pattern) if matches(pattern, line)}
        for line in examples:
            if matches(pattern, line):
                hits |= set(self._producers(line))
        return [self.said[number] for number in sorted(hits)]

    def _candidates(self, pattern: Pattern) -> Iterator[tuple[str, int]]:
        needles = [max(pattern.contains, key=len)] if pattern.contains else list(pattern.starts)
        if not needles or pattern.ignore_case:
            yield from ((self._line(number), self._owners[number]) for number in range(len(self._starts)))
            return
        for needle in needles:
            position = self._text.find(needle)
            while position >= 0:
                number = bisect_right(self._starts, position) - 1
                yield self._line(number), self._owners[number]
                next_start = self._starts[number + 1] if number + 1 < len(self._starts) else len(self._text)
                position = self._text.find(needle, next_start)

    def _line(self, number: int) -> str:
        end = self._starts[number + 1] - 1 if number + 1 < len(self._starts) else len(self._text) - 1
        return self._text[self._starts[number] : end]

    def _producers(self, line: str) -> Iterator[int]:
        for number, said in enumerate(self.said):
            fixed = longest_fixed(said.template).split("\n")[0]
            if fixed and fixed in line and fixed_length(said.template) >= LEAST_FIXED and _can_say(said, line):
                yield number


def _lines(said: Said, sample: str) -> Iterator[str]:
    """The lines a message becomes in a log. What is raised, and what warnings.warn prints, stands behind its class; an
    exception also alone, where it is put into another message."""
    for line in sample.splitlines():
        if line.strip():
            yield line
    if said.name:
        yield f"{said.name}: {sample.splitlines()[0] if sample.strip() else ''}"


def _can_say(said: Said, line: str) -> bool:
    regex = regex_of(said.template)
    if said.name:
        return re.match(rf"(?:[\w./:]+: )*(?:[\w.]+: )?{regex}", line) is not None
    return re.match(regex, line) is not None
