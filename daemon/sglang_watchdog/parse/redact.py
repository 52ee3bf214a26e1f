"""Cuts secrets and the text of users from whatever is quoted.

SGLang prints its API keys in clear text in every release; request ids and prompts turn up in its error messages. What is cut
here never reaches an observation, so no sink can leak it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MASK: Final = "***"

# Of the 368 fields of 0.5.11 it hits exactly api_key, admin_api_key and ssl_keyfile_password; a looser one hits 29 harmless.
_SECRETIVE: Final = r"(?:key|secret|passw\w{0,20}|credentials?|(?:auth|access|bearer|hf|refresh|session|api)[_-]?token)"
_SECRET_NAME: Final = re.compile(rf"(?i)(?:^|[_-]){_SECRETIVE}$")
_SECRET_RECORD: Final = re.compile(r"(?i)_extra_config$")  # free-form JSON that may hold credentials of a storage

_SECRET_OPTIONS: Final = ("--api-key", "--admin-api-key", "--ssl-keyfile-password")

_STRING: Final = r"""(?:'(?:[^'\\]|\\.)*(?:'|\\?\Z)|"(?:[^"\\]|\\.)*(?:"|\\?\Z))"""
_ITEMS: Final = rf"""(?:{_STRING}|[^\]'"])*(?:\]|\Z)"""  # of a list, whose texts may hold brackets
_VALUE: Final = rf"""(?:{_STRING}|\{{[^{{}}]*(?:\}}|$)|[^\s,;)\]}}'"]+)"""
_QUOTE: Final = r"""\\?['"]"""
_NAMED: Final = rf"(?<![\w-])(?:[\w-]{{0,60}}[_-])?{_SECRETIVE}"  # bounded, as all repetitions here: a line may be long
_SECRET_WORDS: Final = ("key", "secret", "passw*", "credential*", "token")
_USER_WORDS: Final = ("text", "prompt", "content", "messages", "input_value", "arguments")


@dataclass(frozen=True, slots=True)
class _Rule:
    """A pattern and what stands in its place. It runs only on a text, in lower case, with a word and one of its followers.

    Most texts hold none: the words are looked up in a tenth of the time that the patterns take.
    """

    words: tuple[tuple[str, tuple[str, ...]], ...]
    pattern: re.Pattern[str]
    instead: str

    def is_worth_trying(self, lowered: str) -> bool:
        return any(word in lowered and (not longer or any(text in lowered for text in longer)) for word, longer in self.words)


def _rule(words: tuple[str, ...], pattern: str, instead: str, *, then: tuple[str, ...] = ()) -> _Rule:
    """Words that end in a star go on in too many ways to list what may follow them."""
    longer = tuple((word.rstrip("*"), () if word.endswith("*") else tuple(word + text for text in then)) for word in words)
    return _Rule(longer, re.compile(pattern), instead)


_QUOTED: Final = ("'", '"', "\\")
_RULES: Final = (
    # command lines: --api-key X, --admin-api-key=X, and the list form '--api-key', 'X'
    _rule((*_SECRET_WORDS, "extra"), rf"(?i)((?<![\w-])--[\w-]{{0,60}}(?:{_SECRETIVE}|extra[_-]config)['\"]?\s*[=,\s]\s*){_VALUE}", rf"\g<1>{MASK}"),
    _rule(
        ("authorization",),
        rf"(?i)(\bauthorization(?:{_QUOTE})?\s*[:=,]\s*)(?:b?{_QUOTE})?(?:(?:bearer|basic|token|apikey)\s+)?[^\s'\"\\,)\]]+",
        rf"\g<1>{MASK}",
    ),
    _rule(("bearer", "basic"), r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}", rf"\g<1> {MASK}"),
    # name=value, 'name': 'value', x-api-key: value
    _rule(_SECRET_WORDS, rf"(?i)({_NAMED}(?:{_QUOTE})?\s*=\s*){_VALUE}", rf"\g<1>{MASK}", then=("=", " =", *_QUOTED)),
    _rule(_SECRET_WORDS, rf"(?i)({_NAMED}{_QUOTE}\s*[:,]\s*){_VALUE}", rf"\g<1>{MASK}", then=_QUOTED),
    _rule(_SECRET_WORDS, rf"(?i)((?<![\w-])(?:[\w-]{{1,60}}[_-]){_SECRETIVE}:\s{{1,9}}){_VALUE}", rf"\g<1>{MASK}", then=(":",)),
    _rule(("extra_config",), rf"(?i)(\w{{1,60}}_extra_config(?:{_QUOTE})?\s*[=:]\s*){_VALUE}", rf"\g<1>{MASK}"),
    _rule(
        ("hf_", "sk-", "sk_", "pk_", "ghp_", "gho_", "github_pat_", "glpat-", "xox", "nvapi-"),
        r"\b(?:hf_|sk-|sk_|pk_|ghp_|gho_|github_pat_|glpat-|xox[abp]-|nvapi-)[\w-]{6,}",
        MASK,
    ),
    _rule(("akia", "asia"), r"\b(?:AKIA|ASIA)[0-9A-Z]{12,}", MASK),
    _rule(("eyj",), r"\beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?", MASK),
    _rule(("://",), r"(\w://)[^\s/@'\"]+@", rf"\g<1>{MASK}@"),
    # users: query strings, request ids, prompts and token ids in reprs and in pydantic's messages
    _rule(("?",), r'("[A-Z]+ [^\s?"]*)\?\S*( HTTP/)', rf"\g<1>?{MASK}\g<2>"),
    _rule(("?",), r"(https?://[^\s?'\"]+)\?[^\s'\"]*", rf"\g<1>?{MASK}"),
    _rule(
        ("rid",),
        # an id without quotes ends where a repr goes on; elsewhere it may hold blanks, so that all that follows is cut
        rf"\b((?:\w{{1,60}}_)?rids?)\b((?:{_QUOTE})?\s*[=:]\s*)(?:{_STRING}|\[(?=['\"\]]){_ITEMS}|[\w.:-]+(?=, (?:in|out)put_ids=|[)\]])|.+)",
        rf"\g<1>\g<2>{MASK}",
        then=("=", ":", " ", "s", *_QUOTED),
    ),
    _rule(
        ("request",),
        rf"(?i)\b(request[ _-]?ids?)\b(['\"]?\s*[=:]?\s*)(?:\[{_ITEMS}|{_STRING}|[0-9a-f]{{8,}}[\w-]*)",
        rf"\g<1>\g<2>{MASK}",
        then=(" id", "_id", "-id", "id"),
    ),
    _rule(("request", "abort"), r"\b[0-9a-f]{32}\b", MASK),
    _rule(
        ("_ids", "embeds", "logprobs"),
        rf"\b(\w{{0,60}}(?:_ids|embeds|logprobs))((?:{_QUOTE})?\s*[=:]\s*)\[{_ITEMS}",
        rf"\g<1>\g<2>{MASK}",
    ),
    _rule(
        _USER_WORDS,
        rf"\b((?:\w{{1,60}}_)?(?:text|prompt)|content|messages|input_value|arguments)((?:{_QUOTE})?\s*[=:]\s*)"
        r"(?:\[.*|\{.*|'(?:[^'\\]|\\.)*(?:'|\\?\Z)|\"(?:[^\"\\]|\\.)*(?:\"|\\?\Z))",
        rf"\g<1>\g<2>{MASK}",
        then=("=", ":", " =", " :", *_QUOTED),
    ),
)


def is_secret_name(name: str) -> bool:
    """Whether an argument of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def is_secret_record(name: str) -> bool:
    """Whether an argument of this name may hold credentials somewhere inside, so that all of it is masked."""
    return _SECRET_RECORD.search(name) is not None


def is_secret_option(option: str) -> bool:
    """Whether an option of a launch command takes a secret; argparse also takes its first letters (`--api-k`)."""
    name = option.lstrip("-").replace("-", "_")
    is_begun = len(option) > len("--") and any(known.startswith(option) for known in _SECRET_OPTIONS)
    return is_begun or is_secret_name(name) or is_secret_record(name)


def redact_words(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a launch command without secrets: `--api-key X`, `--api-key=X`, and what `redact` finds in any of them."""
    kept: list[str] = []
    is_value = False
    for word in words:
        option, equals, _ = word.partition("=")
        if word.startswith("--"):
            is_value = is_secret_option(option) and not equals
            kept.append(f"{option}={MASK}" if equals and is_secret_option(option) else redact(word))
        else:
            kept.append(MASK if is_value else redact(word))
    return tuple(kept)


def redact(text: str) -> str:
    """Return `text` without secrets, request ids, query strings and prompts."""
    lowered = text.lower()
    for rule in _RULES:
        if rule.is_worth_trying(lowered):
            text = rule.pattern.sub(rule.instead, text)
    return text


class Redactor:
    """Redacts, and also cuts the very values that an earlier line showed to be secret, wherever they turn up again."""

    def __init__(self) -> None:
        self._secrets: set[str] = set()

    def learn(self, secrets: tuple[str, ...]) -> None:
        """Remember values printed under a secret's name. Short ones would blank ordinary words, so they are left."""
        self._secrets.update(secret for secret in secrets if len(secret) >= 6)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, MASK)
        return redact(text)
