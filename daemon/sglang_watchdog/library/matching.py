"""Whether a pattern matches a text, judged one pattern at a time.

For lint, the release matrix and authors' questions; the scanner has its own engine for whole logs and must agree with
this.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import re2

from ..model.signature import Pattern

PREFIX: Final = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\] ")
RANKS: Final = re.compile(r"\[(?:(?:TP|PP|DP|EP|ATTN_CP|MOE_DP|CP)\d+ ?)+\] ")
LONG_ENOUGH: Final = 6


def message_of(line: str) -> str:
    """The text behind SGLang's prefix (full, or the ranks alone as stories write it), or the whole line without one."""
    line = line.rsplit("\r", 1)[-1]
    found = PREFIX.match(line) or RANKS.match(line)
    return line[found.end() :] if found else line


def captures(pattern: Pattern, message: str) -> dict[str, str] | None:
    """The named groups of a match (possibly none), or None where the pattern does not match."""
    text = message.lower() if pattern.ignore_case else message
    if pattern.starts and not text.startswith(tuple(_cased(pattern.starts, pattern.ignore_case))):
        return None
    if not all(literal in text for literal in _cased(pattern.contains, pattern.ignore_case)):
        return None
    if pattern.regex is None:
        return {}
    found = _compiled(pattern.regex, pattern.ignore_case).search(message)
    return None if found is None else {name: value for name, value in found.groupdict().items() if value is not None}


def matches(pattern: Pattern, message: str) -> bool:
    return captures(pattern, message) is not None


def _cased(texts: Iterable[str], ignore_case: bool) -> Iterator[str]:
    return (text.lower() if ignore_case else text for text in texts)


@lru_cache(maxsize=4096)
def _compiled(regex: str, ignore_case: bool) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    return re2.compile(regex, options)


def groups(pattern: Pattern) -> set[str]:
    """Names of the captures that a pattern can yield."""
    return set(re.findall(r"\(\?P<(\w+)>", pattern.regex or ""))


def is_anchored(pattern: Pattern) -> bool:
    """True if the pattern can only match at the start of the message."""
    if pattern.starts:
        return True
    if pattern.regex is None:
        return False
    tree = _parsed(pattern.regex)
    return tree is not None and _begins_anchored(tree)


def surest_literal(pattern: Pattern) -> int:
    """Length of the longest text that every line matched by the pattern must hold."""
    best = max((len(text) for text in pattern.contains), default=0)
    if pattern.starts:
        best = max(best, min(len(text) for text in pattern.starts))
    if pattern.regex is not None and (tree := _parsed(pattern.regex)) is not None:
        best = max(best, _longest(tree))
    return best


def _parsed(regex: str) -> list[tuple[Any, Any]] | None:
    try:
        return list(re._parser.parse(regex))  # type: ignore[attr-defined]
    except (re.error, OverflowError):  # RE2 knows a few forms that Python does not (\z, \pN)
        return None


def _begins_anchored(items: list[tuple[Any, Any]]) -> bool:
    for operation, argument in items:
        name = str(operation)
        if name == "AT":
            return str(argument) in ("AT_BEGINNING", "AT_BEGINNING_STRING")
        if name == "SUBPATTERN":
            return _begins_anchored(list(argument[3]))
        if name == "BRANCH":
            return all(_begins_anchored(list(branch)) for branch in argument[1])
        return False
    return False


def _longest(items: list[tuple[Any, Any]]) -> int:
    """Longest literal run of a parsed regex; of a choice, the shortest of its branches' longest."""
    best = run = 0
    for operation, argument in items:
        name = str(operation)
        if name == "LITERAL":
            run += 1
            best = max(best, run)
            continue
        if name == "AT":
            continue
        run = 0
        if name == "SUBPATTERN":
            best = max(best, _longest(list(argument[3])))
        elif name == "BRANCH":
            best = max(best, min(_longest(list(branch)) for branch in argument[1]))
        elif name in ("MAX_REPEAT", "MIN_REPEAT") and argument[0] >= 1:
            best = max(best, _longest(list(argument[2])))
    return best
