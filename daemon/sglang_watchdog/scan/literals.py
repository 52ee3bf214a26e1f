"""Finds the texts that a line must hold before a pattern can match it, and picks the rarest.

Searching a block for a few hundred texts at once is fast as long as they are rare; one that stands on every line makes every
line a hit. So for each pattern the clause is chosen that occurs least in the lines a server prints all day. For
`"[A-Z]+ [^" ]+ HTTP/[\\d.]+" 500` that is `" 500`, not ` HTTP/`: 4.3 times faster on an access log.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from re import _constants as op  # type: ignore[attr-defined]  # the parser behind `re`; its tree is the only way to read a regex
from re import _parser  # type: ignore[attr-defined]
from typing import Any, Final

from ..model.signature import Pattern

_ORDINARY: Final = (
    b"[2026-01-02 03:04:05 DP0 TP0 EP0] Decode batch, #running-req: 38, #token: 61000, token usage: 0.07, accept len: 1.93, "
    b"accept rate: 0.44, cuda graph: True, gen throughput (token/s): 641.32, #queue-req: 0, ",
    b"[2026-01-02 03:04:05 DP0 TP0] Prefill batch, #new-seq: 1, #new-token: 64, #cached-token: 0, token usage: 0.03, "
    b"#running-req: 5, #queue-req: 0, #pending-token: 0, cuda graph: False, input throughput (token/s): 13.28",
    b"[2026-01-02 03:04:05 TP0] Decode batch. #running-req: 6, #token: 9100, token usage: 0.02, pre-allocated usage: 0.00, "
    b"#retracted-req: 0, cuda graph: True, gen throughput (token/s): 330.02, #queue-req: 0, ",
    b'[2026-01-02 03:04:05] INFO:     10.0.0.7:41870 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    b'[2026-01-02 03:04:05] INFO:     127.0.0.1:41641 - "GET /health HTTP/1.1" 200 OK',
    b'INFO:     127.0.0.1:41641 - "POST /generate HTTP/1.1" 200 OK',
    b'  File "/usr/local/lib/python3.12/dist-packages/sglang/srt/managers/scheduler.py", line 2297, in run_scheduler_process',
    b'  File "/usr/local/lib/python3.12/dist-packages/torch/nn/modules/module.py", line 1779, in _wrapped_call_impl',
    b"    return self._call_impl(*args, **kwargs)",
    b"Capturing batches (bs=256 avail_mem=12.83 GB):   3%|  | 1/36 [01:09<40:37, 69.64s/it]",
    b"Loading safetensors checkpoint shards:  50% Completed | 8/16 [00:02<00:02,  3.33it/s]",
)
_SHORT_COST: Final = (1000, 200, 60, 20, 6, 3, 1)  # by length: two letters occur everywhere, seven hardly


@dataclass(frozen=True, slots=True)
class Literal:
    """A text to search for, as bytes; folded to lower case if letters of either case will do."""

    text: bytes
    any_case: bool = False


Clause = tuple[Literal, ...]  # a line must hold at least one of them


def required(pattern: Pattern) -> Clause:
    """Return the cheapest clause of a pattern; () if it has none, so that every line must be tried."""
    usable = [clause for clause in clauses_of(pattern) if clause and all(_is_usable(literal) for literal in clause)]
    return min(usable, key=_cost, default=())


def clauses_of(pattern: Pattern) -> list[Clause]:
    """Return everything that a line must hold to match: one literal of each clause."""
    clauses: list[Clause] = []
    if pattern.starts:
        clauses.append(tuple(_literal(text, pattern.ignore_case) for text in pattern.starts))
    clauses.extend((_literal(text, pattern.ignore_case),) for text in pattern.contains)
    if pattern.regex is not None:
        clauses.extend(_of_regex(pattern.regex, pattern.ignore_case))
    return clauses


def _literal(text: str, any_case: bool) -> Literal:
    # Letters outside ASCII are not folded, neither here nor by the regexes, which are compiled with re.ASCII.
    return Literal(text.encode("utf-8", "replace").lower() if any_case else text.encode("utf-8", "replace"), any_case)


def _is_usable(literal: Literal) -> bool:
    """A replacement character stands for bytes that are something else in the log."""
    return bool(literal.text) and "\ufffd".encode() not in literal.text


def _cost(clause: Clause) -> tuple[float, int]:
    cost = 0.0
    for literal in clause:
        lines = _ORDINARY if not literal.any_case else [line.lower() for line in _ORDINARY]
        cost += 100 * sum(literal.text in line for line in lines) + _SHORT_COST[min(len(literal.text), 7) - 1]
    return cost, -min(len(literal.text) for literal in clause)


def _of_regex(regex: str, any_case: bool) -> list[Clause]:
    tree = _parser.parse(regex, re.ASCII | (re.IGNORECASE if any_case else 0))
    return list(_clauses(tree, any_case or bool(tree.state.flags & re.IGNORECASE)))


def _clauses(sequence: Iterable[Any], any_case: bool) -> Iterable[Clause]:
    """Walk the parts of a concatenation: runs of letters are required, and so is one branch of an alternation."""
    run: list[str] = []
    for kind, value in sequence:
        if kind is op.LITERAL:
            run.append(chr(value))
            continue
        if kind is op.AT:  # an anchor has no width: the letters on both sides still touch
            continue
        if kind is op.SUBPATTERN and not value[1] and not value[2] and all(part[0] is op.LITERAL for part in value[3]):
            run.extend(chr(part[1]) for part in value[3])
            continue
        if run:
            yield (_literal("".join(run), any_case),)
            run = []
        yield from _inner_clauses(kind, value, any_case)
    if run:
        yield (_literal("".join(run), any_case),)


def _inner_clauses(kind: Any, value: Any, any_case: bool) -> Iterable[Clause]:
    if kind is op.SUBPATTERN:
        yield from _clauses(value[3], (any_case or bool(value[1] & re.IGNORECASE)) and not value[2] & re.IGNORECASE)
    elif kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT) and value[0] > 0:
        yield from _clauses(value[2], any_case)
    elif kind is op.ATOMIC_GROUP:
        yield from _clauses(value, any_case)
    elif kind is op.BRANCH:
        branches = [_cheapest(list(_clauses(branch, any_case))) for branch in value[1]]
        if all(branches):
            yield tuple(literal for branch in branches for literal in branch)


def is_anchored(pattern: Pattern) -> bool:
    """Whether a pattern can match nowhere but at the start of a message, where users cannot write.

    `^(?:[^"]{0,80}kernel: )?NVRM` is not: what it lets pass before its first fixed letter may hold a sentence.
    """
    if pattern.starts:
        return True
    if pattern.regex is None:
        return False
    return _begins(_parser.parse(pattern.regex, re.ASCII), at_start=False) is not None


def _begins(sequence: Iterable[Any], *, at_start: bool) -> bool | None:
    """Follow a sequence to its first fixed letter: True if it was met behind ^, False if the end was, None if neither."""
    for kind, value in sequence:
        if kind is op.AT:
            at_start = at_start or value in (op.AT_BEGINNING, op.AT_BEGINNING_STRING)
        elif kind is op.LITERAL:
            return True if at_start else None
        elif kind is op.SUBPATTERN:
            inner = _begins(value[3], at_start=at_start)
            if inner is not False:
                return inner
            at_start = at_start or _holds_start(value[3])
        elif kind is op.BRANCH:
            told = [_begins(branch, at_start=at_start) for branch in value[1]]
            if None in told:
                return None
            if all(told):
                return True
        elif kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            inner = _begins(value[2], at_start=at_start)
            if inner is None:
                return None
            if inner and value[0] > 0:
                return True
        elif not at_start or _matches_space(kind, value):
            return None
    return False


def _holds_start(sequence: Iterable[Any]) -> bool:
    return any(kind is op.AT and value in (op.AT_BEGINNING, op.AT_BEGINNING_STRING) for kind, value in sequence)


def _matches_space(kind: Any, value: Any) -> bool:
    """Whether one item may match a blank, so that a repetition of it passes over words."""
    if kind is not op.IN:
        return kind in (op.ANY, op.NOT_LITERAL)
    is_negated = any(part[0] is op.NEGATE for part in value)
    return any(_holds_space(part) for part in value if part[0] is not op.NEGATE) != is_negated


def _holds_space(part: Any) -> bool:
    kind, value = part
    if kind is op.LITERAL:
        return bool(value == 32)
    if kind is op.RANGE:
        return bool(value[0] <= 32 <= value[1])
    return value in (op.CATEGORY_SPACE, op.CATEGORY_NOT_WORD, op.CATEGORY_NOT_DIGIT)


def _cheapest(clauses: Sequence[Clause]) -> Clause:
    usable = [clause for clause in clauses if all(_is_usable(literal) for literal in clause)]
    return min(usable, key=_cost, default=())
