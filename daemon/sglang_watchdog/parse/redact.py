"""Cuts secrets and the text of users from whatever is quoted.

SGLang prints its API keys in clear text in every release; request ids and prompts turn up in its error messages. What is cut
here never reaches an observation, so no sink can leak it.
"""

import re
from typing import Final

MASK: Final = "***"

# Hits exactly api_key, admin_api_key and ssl_keyfile_password of the 368 fields of 0.5.11; a looser pattern hits 29 harmless ones.
_SECRET: Final = r"(?:key|secret|passw\w*|credentials?|(?:auth|access|bearer|hf|refresh|session|api)[_-]?token)"
_SECRET_NAME: Final = re.compile(rf"(?i)(?:^|[_-]){_SECRET}$")
_SECRET_RECORD: Final = re.compile(r"(?i)_extra_config$")  # free-form JSON that may hold credentials of a storage

_VALUE: Final = r"""(?:'(?:[^'\\]|\\.)*(?:'|$)|"(?:[^"\\]|\\.)*(?:"|$)|\{[^{}]*(?:\}|$)|[^\s,;)\]}'"]+)"""
_RULES: Final = (
    # command lines: --api-key X, --admin-api-key=X, and the list form '--api-key', 'X'
    (re.compile(rf"""(?i)(--[\w-]*(?:{_SECRET}|extra[_-]config)['"]?\s*[=,\s]\s*){_VALUE}"""), rf"\g<1>{MASK}"),
    (
        re.compile(
            rf"(?i)(\bauthorization\\?['\"]?\s*[:=,]\s*)(b?\\?['\"])?(?:(?:bearer|basic|token|apikey)\s+)?[^\s'\"\\,)\]]+"
        ),
        rf"\g<1>{MASK}",
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}"), rf"\g<1> {MASK}"),
    # name=value, 'name': 'value', "x-api-key": "value"
    (re.compile(rf"""(?i)((?:\b|_)(?:[\w-]*[_-])?{_SECRET}\\?['"]?\s*=\s*){_VALUE}"""), rf"\g<1>{MASK}"),
    (re.compile(rf"""(?i)((?:\b|_)(?:[\w-]*[_-])?{_SECRET}\\?['"]\s*[:,]\s*){_VALUE}"""), rf"\g<1>{MASK}"),
    (re.compile(rf"""(?i)(\b(?:[\w-]+[_-]){_SECRET}:\s+){_VALUE}"""), rf"\g<1>{MASK}"),
    (re.compile(rf"(?i)(\w+_extra_config\\?['\"]?\s*[=:]\s*){_VALUE}"), rf"\g<1>{MASK}"),
    (re.compile(r"\b(?:hf_|sk-|sk_|pk_|ghp_|gho_|github_pat_|glpat-|xox[abp]-|nvapi-)[\w-]{6,}"), MASK),
    (re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{12,}"), MASK),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"), MASK),
    (re.compile(r"(\w://)[^\s/@'\"]+@"), rf"\g<1>{MASK}@"),
    # users: request ids, query strings, prompts in reprs and in pydantic's messages
    (re.compile(r'("[A-Z]+ [^\s?"]*)\?\S*( HTTP/)'), rf"\g<1>?{MASK}\g<2>"),
    (re.compile(r"(https?://[^\s?'\"]+)\?[^\s'\"]*"), rf"\g<1>?{MASK}"),
    (re.compile(r"\b(\w*rids?)\b(\s*[=:]\s*)(?:\[[^\]]*(?:\]|$)|" + _VALUE + ")"), rf"\g<1>\g<2>{MASK}"),
    (
        re.compile(r"(?i)\b(request[ _-]?ids?)\b(\s*[=:]?\s*)(?:\[[^\]]*(?:\]|$)|'[^']*'|\"[^\"]*\"|[0-9a-f]{8,}[\w-]*)"),
        rf"\g<1>\g<2>{MASK}",
    ),
    (
        re.compile(
            r"\b((?:origin_|fill_|unpadded_)?(?:input|output|prompt|token)_ids|input_embeds|logprobs)(\\?['\"]?\s*[=:]\s*)\[[^\]]*(?:\]|$)"
        ),
        rf"\g<1>\g<2>{MASK}",
    ),
    (
        re.compile(
            r"\b((?:origin_input_|decoded_|output_|prompt_|input_)?(?:text|prompt|content|messages|input_value|arguments))(\\?['\"]?\s*[=:]\s*)(?:\[.*|\{.*|'(?:[^'\\]|\\.)*(?:'|$)|\"(?:[^\"\\]|\\.)*(?:\"|$))"
        ),
        rf"\g<1>\g<2>{MASK}",
    ),
)
# Most lines hold none of it: one pass decides whether the rules are worth running.
_SUSPECT: Final = re.compile(
    r"(?i)key|secret|passw|credential|token|authorization|bearer|basic |extra.config|hf_|sk[-_]|pk_|gh[op]_|github_pat|glpat|xox|nvapi|"
    r"AKIA|ASIA|eyJ|://|\?|rid|request[ _-]?id|_ids|embeds|logprobs|text|prompt|content|messages|input_value|arguments"
)


def is_secret_name(name: str) -> bool:
    """Whether an argument of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def is_secret_record(name: str) -> bool:
    """Whether an argument of this name may hold credentials somewhere inside, so that all of it is masked."""
    return _SECRET_RECORD.search(name) is not None


def redact(text: str) -> str:
    """Return `text` without secrets, request ids, query strings and prompts."""
    if not _SUSPECT.search(text):
        return text
    for rule, instead in _RULES:
        text = rule.sub(instead, text)
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
