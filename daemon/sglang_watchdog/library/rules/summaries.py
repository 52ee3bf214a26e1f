"""What a summary may name: what something fills, and outside of brackets only what is known whenever the signature fires."""

import itertools
import re
from collections.abc import Iterator
from typing import Final

from ...config.faults import Fault, nearest
from ...engine.words import CLAUSE, write
from ...model.series import LOG_SERIES
from ...model.signature import Pattern, Window
from ...model.words import Kind
from ..conditions import blanked, uses
from ..facts import SAMPLES
from ..files import SignatureFile
from ..matching import groups
from .base import Rule, Shelf

PLACEHOLDER: Final = re.compile(r"\{([^{}:!]*)(?:![rsa])?(?::([^{}]*))?\}")
ALWAYS: Final = frozenset({"raised", "said", "gpus", "gpus_named", "gpu_count", "ranks", "rank", "gpu", "count", "server", "line"})
NEVER_MISSING: Final = frozenset({"count", "sum", "rate", "gpus"})
OF_GATE: Final = {
    "steady": frozenset({"load.running", "load.tokens_per_s", "load.seconds", "load.stalls", "load.stalls_text", "load.ceiling_text"}),
    "load": frozenset({"load.running", "load.last_batch_age_s"}),
}
OF_LOAD: Final = frozenset({"load.health_failures", "load.max_running", "load.ready", "load.steady"})
OF_RUN: Final = frozenset({"run.phase"})
UNSAMPLED: Final = frozenset({"last", "first", "max", "increase", "age"})  # one reading suffices; the others want ten of each GPU


def check_summary(file: SignatureFile, shelf: Shelf) -> Iterator[Fault]:
    captured = set(ALWAYS).union(*(groups(pattern) for pattern in file.patterns.values()))
    windows = {f"w.{window.name}" for window in file.signature.windows}
    for name, spec in placeholders(file.signature.summary):
        if name not in captured | windows and name not in shelf.facts:
            yield file.fault("SIG027", ("summary",), f"nothing fills `{{{name}}}`", help=nearest(name, [*captured, *windows, *shelf.facts]))
        elif spec:
            kind = "float" if name in windows else shelf.facts.get(name, "str")
            try:
                write(SAMPLES.get(kind, 0.5), spec)
            except (ValueError, TypeError):
                yield file.fault("SIG027", ("summary",), f"`{{{name}:{spec}}}`: a value of type {kind} cannot be written so")


def check_known(file: SignatureFile, _shelf: Shelf) -> Iterator[Fault]:
    """A question mark in a finding tells nothing; what may be unknown stands in a clause that can be left out."""
    if file.signature.kind is Kind.FLAG:
        return
    known = _known(file)
    for name, spec in placeholders(CLAUSE.sub("", file.signature.summary)):
        if name not in known and "|" not in spec:
            yield file.fault("SIG028", ("summary",), f"`{{{name}}}` may be unknown while the signature fires",
                             help="Put the clause in brackets, `[, … {value}]`: it is left out where a value in it is not known. "
                                  "Or let a condition in `when` demand the value.")  # fmt: skip


def placeholders(template: str) -> Iterator[tuple[str, str]]:
    for found in PLACEHOLDER.finditer(template.replace("{{", "").replace("}}", "")):
        yield found[1], found[2] or ""


def _known(file: SignatureFile) -> set[str]:
    """Everything that has a value whenever the signature fires."""
    signature = file.signature
    known = set(ALWAYS | OF_LOAD | OF_RUN)
    conditions = [*signature.applies_when, *signature.when]
    for condition in conditions:
        known |= demanded(condition.expression)
    for gate in signature.needs:
        known |= OF_GATE.get(gate, frozenset())
    for window in signature.windows:
        is_of_lines = window.series in LOG_SERIES or window.series.startswith("match")
        if window.function in NEVER_MISSING and (is_of_lines or window.function in ("count", "gpus")):
            known.add(f"w.{window.name}")
    known |= {f"w.{one.name}" for one in signature.windows if any(_follows(one, other, known) for other in signature.windows)}
    patterns = [file.patterns[name] for name in signature.match]
    return known.union(set.intersection(*(always_captured(pattern) for pattern in patterns)) if patterns else ())


def _follows(window: Window, other: Window, known: set[str]) -> bool:
    """Whether a window has a value because another over the same readings has one."""
    if f"w.{other.name}" not in known or other.function in NEVER_MISSING or "peer_median" in (window.function, other.function):
        return False
    is_longer = window.over_s is not None and other.over_s is not None and window.over_s >= other.over_s
    is_sure = window.series in LOG_SERIES or window.function in UNSAMPLED
    is_alike = window.over_s == other.over_s and other.function not in UNSAMPLED
    return window.series == other.series and window.steady == other.steady and (is_alike or (is_longer and is_sure))


def always_captured(pattern: Pattern) -> set[str]:
    """Captures outside of every optional group and of every alternative."""
    regex, found = pattern.regex or "", set[str]()
    for opening in re.finditer(r"\(\?P<(\w+)>", regex):
        if not _is_optional(regex, opening.start()):
            found.add(opening[1])
    return found


def _is_optional(regex: str, at: int) -> bool:
    """Whether a group around the place, or the group that begins there, may be left out or has alternatives beside it."""
    groups_open: list[int] = []
    spans: list[tuple[int, int]] = []
    alternatives: list[tuple[int, int]] = []  # place of a bar, place of its group's opening (-1: outermost)
    index, in_class = 0, False
    while index < len(regex):
        letter = regex[index]
        if letter == "\\":
            index += 2
            continue
        if in_class:
            in_class = letter != "]"
        elif letter == "[":
            in_class = True
            if regex[index + 1 : index + 2] in ("]", "^"):
                index += 2 if regex[index + 1 : index + 3] in ("^]",) else 1
        elif letter == "(":
            groups_open.append(index)
        elif letter == ")":
            spans.append((groups_open.pop(), index))
        elif letter == "|":
            alternatives.append((index, groups_open[-1] if groups_open else -1))
        index += 1
    around = {start for start, end in spans if start <= at < end} | {-1}
    if any(start in around - {at} for _, start in alternatives):
        return True
    return any(start in around and (regex[end + 1 : end + 2] in ("?", "*") or regex[end + 1 : end + 3] == "{0") for start, end in spans)


def demanded(expression: str) -> set[str]:
    """Facts that must be known for the expression to be true: of `a && b` both sides', of `a || b` what both read."""
    blank, expression = blanked(expression).strip(), expression.strip()
    while blank.startswith("(") and _closing(blank, 0) == len(blank) - 1:
        blank, expression = blank[1:-1].strip(), expression[1:-1].strip()
    question = _top(blank, "?")
    if question:
        colon = _top(blank[question[0] :], ":")
        if colon:
            end = question[0] + colon[-1]
            yes, no = expression[question[0] + 1 : end], expression[end + 1 :]
            return demanded(expression[: question[0]]) | (demanded(yes) & demanded(no))
    for sign, join in (("||", set[str].intersection), ("&&", set[str].union)):
        cuts = _top(blank, sign)
        if cuts:
            ends = [-2, *cuts, len(blank)]
            parts = [demanded(blank[start + 2 : end]) for start, end in itertools.pairwise(ends)]
            return join(*parts)
    return {use.full for use in uses(expression)}


def _top(text: str, sign: str) -> list[int]:
    """Places of the sign outside of every bracket."""
    depth, found = 0, []
    for index, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and text.startswith(sign, index):
            found.append(index)
    return found


def _closing(text: str, at: int) -> int:
    depth = 0
    for index in range(at, len(text)):
        depth += (text[index] == "(") - (text[index] == ")")
        if depth == 0:
            return index
    return -1


RULES: Final = (
    Rule("SIG027", "everything in the summary can be filled", check_summary),
    Rule("SIG028", "what a summary names is known whenever the signature fires, or stands in brackets", check_known),
)
