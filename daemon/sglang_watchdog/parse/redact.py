"""Cuts secrets and the text of users from whatever is quoted.

SGLang prints its API keys in clear text in every release; request ids and prompts turn up in its error messages. What is cut
here never reaches an observation, so no sink can leak it.
"""

import re
from typing import Final

MASK: Final = "***"

# Of the 368 fields of 0.5.11 it hits exactly api_key, admin_api_key and ssl_keyfile_password; a looser one hits 29 harmless.
_SECRETIVE: Final = r"(?:key|secret|passw\w*|credentials?|(?:auth|access|bearer|hf|refresh|session|api)[_-]?token)"
_SECRET_NAME: Final = re.compile(rf"(?i)(?:^|[_-]){_SECRETIVE}$")
_SECRET_RECORD: Final = re.compile(r"(?i)_extra_config$")  # free-form JSON that may hold credentials of a storage

_VALUE: Final = r"""(?:'(?:[^'\\]|\\.)*(?:'|$)|"(?:[^"\\]|\\.)*(?:"|$)|\{[^{}]*(?:\}|$)|[^\s,;)\]}'"]+)"""
_QUOTE: Final = r"""\\?['"]"""
_NAMED: Final = rf"(?:\b|_)(?:[\w-]*[_-])?{_SECRETIVE}"
_SECRET_WORDS: Final = ("key", "secret", "passw", "credential", "token")

# Each rule runs only on a text that holds one of its words (compared in lower case); most texts hold none.
_RULES: Final[tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...]] = tuple(
    (words, re.compile(pattern), instead)
    for words, pattern, instead in (
        # command lines: --api-key X, --admin-api-key=X, and the list form '--api-key', 'X'
        (("--",), rf"(?i)(--[\w-]*(?:{_SECRETIVE}|extra[_-]config)['\"]?\s*[=,\s]\s*){_VALUE}", rf"\g<1>{MASK}"),
        (
            ("authorization",),
            rf"(?i)(\bauthorization(?:{_QUOTE})?\s*[:=,]\s*)(?:b?{_QUOTE})?(?:(?:bearer|basic|token|apikey)\s+)?[^\s'\"\\,)\]]+",
            rf"\g<1>{MASK}",
        ),
        (("bearer", "basic"), r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}", rf"\g<1> {MASK}"),
        # name=value, 'name': 'value', x-api-key: value
        (_SECRET_WORDS, rf"(?i)({_NAMED}(?:{_QUOTE})?\s*=\s*){_VALUE}", rf"\g<1>{MASK}"),
        (_SECRET_WORDS, rf"(?i)({_NAMED}{_QUOTE}\s*[:,]\s*){_VALUE}", rf"\g<1>{MASK}"),
        (_SECRET_WORDS, rf"(?i)(\b(?:[\w-]+[_-]){_SECRETIVE}:\s+){_VALUE}", rf"\g<1>{MASK}"),
        (("extra_config",), rf"(?i)(\w+_extra_config(?:{_QUOTE})?\s*[=:]\s*){_VALUE}", rf"\g<1>{MASK}"),
        (
            ("hf_", "sk-", "sk_", "pk_", "ghp_", "gho_", "github_pat_", "glpat-", "xox", "nvapi-"),
            r"\b(?:hf_|sk-|sk_|pk_|ghp_|gho_|github_pat_|glpat-|xox[abp]-|nvapi-)[\w-]{6,}",
            MASK,
        ),
        (("akia", "asia"), r"\b(?:AKIA|ASIA)[0-9A-Z]{12,}", MASK),
        (("eyj",), r"\beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?", MASK),
        (("://",), r"(\w://)[^\s/@'\"]+@", rf"\g<1>{MASK}@"),
        # users: query strings, request ids, prompts and token ids in reprs and in pydantic's messages
        (("?",), r'("[A-Z]+ [^\s?"]*)\?\S*( HTTP/)', rf"\g<1>?{MASK}\g<2>"),
        (("?",), r"(https?://[^\s?'\"]+)\?[^\s'\"]*", rf"\g<1>?{MASK}"),
        (("rid",), rf"\b((?:\w+_)?rids?)\b((?:{_QUOTE})?\s*[=:]\s*)(?:\[[^\]]*(?:\]|$)|{_VALUE})", rf"\g<1>\g<2>{MASK}"),
        (
            ("request",),
            r"(?i)\b(request[ _-]?ids?)\b(['\"]?\s*[=:]?\s*)(?:\[[^\]]*(?:\]|$)|'[^']*'|\"[^\"]*\"|[0-9a-f]{8,}[\w-]*)",
            rf"\g<1>\g<2>{MASK}",
        ),
        (
            ("_ids", "embeds", "logprobs"),
            rf"\b(\w*_ids|\w*embeds|\w*logprobs)((?:{_QUOTE})?\s*[=:]\s*)\[[^\]]*(?:\]|$)",
            rf"\g<1>\g<2>{MASK}",
        ),
        (
            ("text", "prompt", "content", "messages", "input_value", "arguments"),
            rf"\b((?:\w+_)?(?:text|prompt)|content|messages|input_value|arguments)((?:{_QUOTE})?\s*[=:]\s*)"
            r"(?:\[.*|\{.*|'(?:[^'\\]|\\.)*(?:'|$)|\"(?:[^\"\\]|\\.)*(?:\"|$))",
            rf"\g<1>\g<2>{MASK}",
        ),
    )
)


def is_secret_name(name: str) -> bool:
    """Whether an argument of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def is_secret_record(name: str) -> bool:
    """Whether an argument of this name may hold credentials somewhere inside, so that all of it is masked."""
    return _SECRET_RECORD.search(name) is not None


def redact(text: str) -> str:
    """Return `text` without secrets, request ids, query strings and prompts."""
    lowered = text.lower()
    for words, pattern, instead in _RULES:
        for word in words:
            if word in lowered:
                text = pattern.sub(instead, text)
                break
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
