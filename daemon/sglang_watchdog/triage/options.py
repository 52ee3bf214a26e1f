"""Gives a command's words the meaning that argparse gives them in one release of SGLang.

Follows CPython's argparse as SGLang uses it: unique prefixes stand for their option, several matches end the start, `--x=v` and
`--x v`, lists, refused values. What argparse would end the start with is kept as an error of that flag, and reading goes on.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ..library.flag_declarations import DeclaredOption
from .command import MASK, is_secret

_NEGATIVE = re.compile(r"-\d+(?:\.\d*)?$|-\.\d+$")
_VARIABLE = re.compile(r"\$\{?\w+|<[^<>]+>|\{\{.*\}\}")
_SUFFIXED = re.compile(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)")
_SUFFIXES = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_TRUE, _FALSE = frozenset({"true", "yes", "1", "on"}), frozenset({"false", "no", "0", "off"})


@dataclass(frozen=True, slots=True)
class GivenFlag:
    """One option of a command. `error` says why argparse stops there; `value` is what it would store, masked where secret."""

    typed: str  # "--mem-frac" as written
    option: str  # "--mem-fraction-static"; "" if no option of the release matches
    declared: DeclaredOption | None
    value: Any = None
    is_value_known: bool = True  # False: a shell variable or a template's gap stands there
    error: str = ""
    kind: str = ""  # of the error: unrecognised, ambiguous, value, missing; "variable": a shell variable that may hold any options
    candidates: tuple[str, ...] = ()
    origin: str = "command line"  # or the config file's name

    @property
    def field(self) -> str:
        return self.declared.field if self.declared is not None else self.typed.partition("=")[0].lstrip("-").replace("-", "_")


def resolve_option(text: str, options: Mapping[str, DeclaredOption]) -> tuple[str, tuple[str, ...]]:
    """(the option meant, all that match): the exact one, or the only one that begins with `text`."""
    if text in options:
        return text, (text,)
    if not text.startswith("--"):
        return "", ()
    matches = tuple(sorted(name for name in options if name.startswith(text)))
    return (matches[0] if len(matches) == 1 else ""), matches


def read_options(words: Sequence[str], options: Mapping[str, DeclaredOption], origin: str = "command line") -> list[GivenFlag]:
    """Every flag of the words, in order. Words that belong to no option come back as unrecognised flags of their own."""
    flags: list[GivenFlag] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not _is_option(word, options):
            if _VARIABLE.search(word):
                flags.append(GivenFlag(word, "", None, is_value_known=False, kind="variable", origin=origin))
            elif word != "--":
                flags.append(GivenFlag(word, "", None, error=f"{word!r} belongs to no option", kind="unrecognised", origin=origin))
            continue
        typed, equals, inline = _split(word, options)
        option, matches = resolve_option(typed, options)
        following: list[str] = []
        while index + len(following) < len(words) and not _is_option(words[index + len(following)], options):
            following.append(words[index + len(following)])
        if not option:
            flags.append(_not_understood(typed, matches, inline if equals else " ".join(following), origin))
            index += len(following)
            continue
        flag, used = _take(typed, option, options[option], inline if equals else None, following, origin)
        flags.append(flag)
        index += used
    return flags


def _is_option(word: str, options: Mapping[str, DeclaredOption]) -> bool:
    if not word.startswith("-") or word == "-":
        return False
    if word in options:
        return True
    return not _NEGATIVE.match(word) and (" " not in word or "=" in word.split(" ", 1)[0])


def _split(word: str, options: Mapping[str, DeclaredOption]) -> tuple[str, str, str]:
    return (word, "", "") if word in options else word.partition("=")


def _not_understood(typed: str, matches: tuple[str, ...], value: str, origin: str) -> GivenFlag:
    shown = MASK if value and is_secret(typed.lstrip("-").replace("-", "_")) else value or None
    if matches:
        return GivenFlag(
            typed,
            "",
            None,
            value=shown,
            error=f"ambiguous: it could be {', '.join(matches)}",
            kind="ambiguous",
            candidates=matches,
            origin=origin,
        )
    return GivenFlag(typed, "", None, value=shown, error="no such option", kind="unrecognised", origin=origin)


def _take(typed: str, option: str, declared: DeclaredOption, inline: str | None, following: list[str], origin: str) -> tuple[GivenFlag, int]:
    """The flag with its value, and how many of the following words it took."""
    if not _takes_value(declared):
        value: Any = {"flag-off": False, "alias-const": declared.const}.get(declared.action, True)
        error = "it takes no value" if inline is not None else ""
        return GivenFlag(typed, option, declared, value, error=error, kind="value" if error else "", origin=origin), 0
    available = [inline] if inline is not None else following
    wanted = _count(declared.nargs, len(available))
    taken = available[:wanted]
    used = 0 if inline is not None else wanted
    if len(taken) < _least(declared.nargs):
        return GivenFlag(typed, option, declared, error="its value is missing", kind="missing", origin=origin), used
    if any(_VARIABLE.search(text) for text in taken):
        return GivenFlag(typed, option, declared, " ".join(taken), is_value_known=False, origin=origin), used
    values, error = _convert(taken, declared)
    value = (
        values
        if isinstance(declared.nargs, int) or declared.nargs in ("+", "*")
        else (values[0] if values else (declared.const if declared.const is not None else None))
    )
    if value is not None and is_secret(declared.field):
        value = MASK
    return GivenFlag(typed, option, declared, value, error=error, kind="value" if error else "", origin=origin), used


def _takes_value(declared: DeclaredOption) -> bool:
    if declared.action in ("flag", "flag-off", "alias-flag", "help", "warn", "raise"):
        return declared.action in ("warn", "raise") and declared.nargs not in (None, 0)
    return not (declared.action == "alias-const" and declared.choices is None)


def _count(nargs: str | int | None, available: int) -> int:
    if isinstance(nargs, int):
        return min(nargs, available)
    return available if nargs in ("+", "*") else min(1, available)


def _least(nargs: str | int | None) -> int:
    if isinstance(nargs, int):
        return nargs
    return 0 if nargs in ("*", "?") else 1


def _convert(texts: Sequence[str], declared: DeclaredOption) -> tuple[list[Any], str]:
    values: list[Any] = []
    for text in texts:
        value, error = _converted(text, declared.type)
        if not error and declared.choices is not None and str(value) not in declared.choices:
            error = f"{text!r} is not one of {', '.join(declared.choices)}"
        if error:
            return list(texts), error
        values.append(value)
    return values, ""


def _suffixed(text: str) -> tuple[Any, str]:
    """25.6k or 1Ki, as late releases read sizes (srt/utils/common.py::human_readable_int, from 0.5.10)."""
    match = _SUFFIXED.fullmatch(text.strip())
    if match is not None and not ("." in match[1] and match[2].endswith("i")):
        return int(Decimal(match[1]) * _SUFFIXES[match[2]]), ""
    try:
        return int(text), ""
    except ValueError:
        return text, f"{text!r} is neither a whole number nor one with k, M, G, T or Ki, Mi, Gi, Ti behind it"


def _converted(text: str, kind: str) -> tuple[Any, str]:
    if kind in ("int", "float"):
        try:
            return (int(text) if kind == "int" else float(text)), ""
        except ValueError:
            return text, f"{text!r} is no {'whole number' if kind == 'int' else 'number'}"
    if kind == "human_readable_int":
        return _suffixed(text)
    if kind == "loads":
        try:
            return json.loads(text), ""
        except ValueError as error:
            return text, f"{text!r} is no JSON ({error})"
    if kind == "bool":
        # argparse's type=bool makes any text that is not empty true; the releases' own parsers read the word.
        return text.lower() not in _FALSE and bool(text), ""
    if text[:1] in "{[":
        try:
            return json.loads(text), ""
        except ValueError:
            return text, ""
    if kind not in ("str", "") and re.fullmatch(r"-?\d+", text):
        return int(text), ""
    if kind not in ("str", "") and text.lower() in (_TRUE | _FALSE) - {"1", "0"}:
        return text.lower() in _TRUE, ""
    return text, ""
