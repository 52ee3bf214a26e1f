"""Patterns must be cheap on every line and out of the reach of text that users wrote."""

import re
from collections.abc import Iterator
from typing import Final

from ...config.faults import Fault
from ...model.signature import Pattern
from ...model.words import Kind
from ...parse.record import is_request_log, split_record
from ...scan import literals
from ...scan.quotes import without_sentences
from ..files import SignatureFile
from ..matching import LONG_ENOUGH, is_anchored, surest_literal
from .base import Rule, Shelf

LEADING: Final = re.compile(r"\^?(?:\(\?:|\()?\.[*+]")
NEEDED: Final = {
    Kind.FORBIDDEN: ("match",), Kind.EXPECTED: ("await_", "absence_valid_only_if"),
    Kind.MISSING: ("await_", "absence_valid_only_if"), Kind.RATE: ("when",), Kind.TELEMETRY: ("let", "when"),
    Kind.CORRELATION: ("when",), Kind.FLAG: ("flag",),
}  # fmt: skip
ALIEN: Final = {
    Kind.FORBIDDEN: ("await_", "absence_valid_only_if", "flag"), Kind.EXPECTED: ("match", "flag"),
    Kind.MISSING: ("match", "flag"), Kind.RATE: ("await_", "absence_valid_only_if", "flag"),
    Kind.TELEMETRY: ("match", "await_", "absence_valid_only_if", "flag"), Kind.CORRELATION: ("await_", "flag"),
    Kind.FLAG: ("match", "await_", "absence_valid_only_if", "when", "let", "resolve"),
}  # fmt: skip


def check_blocks(file: SignatureFile, _shelf: Shelf) -> Iterator[Fault]:
    for name in NEEDED[file.body.kind]:
        if not getattr(file.body, name):
            yield file.fault(
                "SIG011",
                ("kind",),
                f"kind `{file.body.kind}` needs `{name.rstrip('_')}`",
                help="signatures/README.md shows one of each kind.",
            )
    for name in ALIEN[file.body.kind]:
        if getattr(file.body, name):
            yield file.fault(
                "SIG011",
                (name.rstrip("_"),),
                f"kind `{file.body.kind}` does not use `{name.rstrip('_')}`",
                key=True,
                help="Remove it, or choose another kind.",
            )


def check_literal(file: SignatureFile, _shelf: Shelf) -> Iterator[Fault]:
    for name, pattern in file.patterns.items():
        if surest_literal(pattern) < LONG_ENOUGH:
            way = (*file.ways[name], "regex") if pattern.regex else file.ways[name]
            yield file.fault(
                "SIG012",
                way,
                f"pattern has no literal of {LONG_ENOUGH} or more characters",
                note="every line would run this regex" if pattern.regex else "",
                help="Add `starts:` or `contains:` with words that never change.",
            )


def check_anchor(file: SignatureFile, _shelf: Shelf) -> Iterator[Fault]:
    for name, pattern in file.patterns.items():
        if not is_anchored(pattern) and not pattern.anywhere.strip():
            yield file.fault(
                "SIG013",
                file.ways[name],
                "pattern may match in the middle of a message",
                help="Use `starts:` or a regex with ^; or say in `anywhere:` why text of users cannot match.",
            )


def check_leading(file: SignatureFile, _shelf: Shelf) -> Iterator[Fault]:
    for name, pattern in file.patterns.items():
        if pattern.regex and LEADING.match(pattern.regex):
            yield file.fault(
                "SIG014",
                (*file.ways[name], "regex"),
                "regex begins with a wildcard",
                help="Drop the leading `.*`: a regex is searched for anyway.",
            )


def check_level(file: SignatureFile, _shelf: Shelf) -> Iterator[Fault]:
    for name, pattern in file.patterns.items():
        if pattern.level and not pattern.undated and not (pattern.releases or file.body.releases):
            yield file.fault(
                "SIG015",
                (*file.ways[name], "level"),
                "a message of SGLang needs the releases that print it",
                help="Add `releases:` to the signature or the pattern; leave `level:` out for other programs.",
            )
        if not pattern.level and not pattern.undated and file.body.releases:
            yield file.fault(
                "SIG015",
                file.ways[name],
                "pattern has no `level`, so no release is checked for it",
                is_warning=True,
                help="Add the level at which SGLang logs it, or `undated: true`.",
            )


def check_reachable(file: SignatureFile, _shelf: Shelf) -> Iterator[Fault]:
    """The scanner shows a pattern one line without its prefix, never a user's text: what asks for more can match nothing."""
    for name, pattern in file.patterns.items():
        why, cure = _never_seen(pattern)
        if why:
            yield file.fault("SIG016", file.ways[name], f"pattern can never match: {why}", help=cure)


def _never_seen(pattern: Pattern) -> tuple[str, str]:
    for clause in literals.clauses_of(pattern):
        texts = [literal.text.decode("utf-8", "replace") for literal in clause]
        if all("\n" in text or "\r" in text for text in texts):
            return "a message is one line", "Look for one of the lines; lines of one traceback are joined by `unless` alone."
        if not literals.is_anchored(pattern) and all(without_sentences(text) != text for text in texts):
            return (
                f"`{texts[0]}` holds a quoted sentence, and in a pattern that is not fixed at the start quotes are cut, as users write there",
                "Begin with `starts:` or with ^ and fixed words, or look for the words before the quote.",
            )
    for text in pattern.starts:
        if is_request_log(text.encode()):
            return "request-log lines hold text of users and are not searched", "Look for another line."
        if split_record(text.encode()).stamp:
            return "`starts` begins with a stamp, which is no part of the message", "Begin with the words behind `[time ranks] `."
    return "", ""


RULES: Final = (
    Rule("SIG011", "a kind has its blocks and no others", check_blocks),
    Rule("SIG012", "a pattern holds a literal of six or more characters", check_literal),
    Rule("SIG013", "a pattern is anchored at the start of the message, or says why it need not be", check_anchor),
    Rule("SIG014", "a regex does not begin with a wildcard", check_leading),
    Rule("SIG015", "a message of SGLang names its level and its releases", check_level),
    Rule("SIG016", "the scanner can show the pattern a line that it matches", check_reachable),
)
