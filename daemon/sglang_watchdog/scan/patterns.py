"""Compiles the library's patterns: what to search a block for, and the exact check of one record."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..model.signature import Library, Pattern
from .literals import Literal, is_anchored, required
from .search import Search, build_search

PREFILL: Final = "Prefill batch"
DECODE: Final = "Decode batch"

# What the scanner itself looks for, beside the library's patterns.
DUMP: Final = Literal(b"server_args=")
DUMP_UPDATE: Final = Literal(b"Global server args updated!")
TRACEBACK: Final = Literal(b"Traceback (most recent call last):")
BAR_SLOW: Final = Literal(b"s/it]")
BAR_FAST: Final = Literal(b"/s]")
OWN: Final = (DUMP, DUMP_UPDATE, TRACEBACK, BAR_SLOW, BAR_FAST)


@dataclass(frozen=True, slots=True)
class Compiled:
    """One pattern, ready to be checked against a message."""

    pattern: Pattern
    starts: tuple[str, ...]
    contains: tuple[str, ...]
    regex: re.Pattern[str] | None
    is_anchored: bool

    def match(self, message: str) -> Mapping[str, str] | None:
        """Return what the named groups captured if the message matches, else None."""
        text = _folded(message) if self.pattern.ignore_case else message
        if self.starts and not text.startswith(self.starts):
            return None
        if not all(needle in text for needle in self.contains):
            return None
        if self.regex is None:
            return {}
        found = self.regex.search(message)
        if found is None:
            return None
        return {name: value for name, value in found.groupdict().items() if value is not None}


def compile_pattern(pattern: Pattern) -> Compiled:
    """Compile one pattern. Case is folded for ASCII letters only, and `\\w \\d \\s` mean ASCII, as in the block engines.

    Raises:
        re.error: the regex does not parse; lint says where.
    """
    fold = _folded if pattern.ignore_case else str
    flags = re.ASCII | (re.IGNORECASE if pattern.ignore_case else 0)
    regex = re.compile(pattern.regex, flags) if pattern.regex is not None else None
    starts, contains = tuple(map(fold, pattern.starts)), tuple(map(fold, pattern.contains))
    return Compiled(pattern, starts, contains, regex, is_anchored(pattern))


_FOLD: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def _folded(text: str) -> str:
    return text.translate(_FOLD)


@dataclass(frozen=True, slots=True)
class PatternSet:
    """All patterns of a library and the search that finds the lines worth checking.

    `patterns_of[i]` are the indices of the patterns whose literal is number i of the search; `always` those without any
    literal; `on_prefill` and `on_decode` those that may match batch lines, which are far too many to search for.
    """

    compiled: tuple[Compiled, ...]
    search: Search
    patterns_of: tuple[tuple[int, ...], ...]
    own: Mapping[Literal, int]
    always: tuple[int, ...]
    on_prefill: tuple[int, ...]
    on_decode: tuple[int, ...]


def compile_patterns(library: Library, engine: str = "auto") -> PatternSet:
    """Compile a library's patterns once; scanners of several sources may share the result within one thread.

    Raises:
        NoSuchEngine: see build_search.
        re.error: a regex does not parse.
    """
    compiled = tuple(compile_pattern(pattern) for pattern in library.patterns.values())
    wanted: dict[Literal, list[int]] = {literal: [] for literal in OWN}
    always: list[int] = []
    for index, one in enumerate(compiled):
        others = tuple(text for text in one.pattern.starts if not text.startswith((PREFILL, DECODE)))
        if one.pattern.starts and not others:
            continue
        clause = required(replace(one.pattern, starts=others))
        if not clause:
            always.append(index)
        for literal in clause:
            wanted.setdefault(literal, []).append(index)
    literals = tuple(wanted)
    return PatternSet(
        compiled,
        build_search(literals, engine),
        tuple(tuple(wanted[literal]) for literal in literals),
        {literal: literals.index(literal) for literal in OWN},
        tuple(always),
        _aimed_at(PREFILL, compiled),
        _aimed_at(DECODE, compiled),
    )


def _aimed_at(head: str, compiled: Sequence[Compiled]) -> tuple[int, ...]:
    return tuple(at for at, one in enumerate(compiled) if any(text.startswith(head) for text in one.pattern.starts))


def literals_of(patterns: Sequence[Pattern]) -> tuple[Literal, ...]:
    """Return the texts that a block would be searched for; for lint and benches."""
    return tuple(dict.fromkeys(literal for pattern in patterns for literal in required(pattern)))
