"""Bearer tokens: made here, kept only as SHA-256, compared in constant time, read again when their file changes.

A file holds one token a line: `name scope[,scope] sha256:<64 hex digits>`; `#` begins a comment. Tokens are 256 random
bits, so a plain hash is enough: there is nothing to guess and no need of salt or stretching.
"""

import hashlib
import hmac
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

_LINE: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]{1,64})\s+(?P<scopes>[a-z,]+)\s+sha256:(?P<digest>[0-9a-fA-F]{64})")
PREFIX: Final = "sgwd_"  # so that a token in the wrong place is recognised by scanners, ours too


class TokenScope(StrEnum):
    READ = "read"
    WRITE = "write"  # includes read
    METRICS = "metrics"  # /metrics alone


@dataclass(frozen=True, slots=True)
class Token:
    name: str  # the author in acknowledgements and silences
    scopes: frozenset[TokenScope]
    digest: str  # SHA-256 of the token, 64 hex digits

    def allows(self, scope: TokenScope) -> bool:
        return scope in self.scopes or TokenScope.WRITE in self.scopes or (scope is TokenScope.METRICS and TokenScope.READ in self.scopes)


class TokenFileInvalid(Exception):
    """The token file cannot be used; the message has every fault with file and line."""


def digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def make(name: str, scopes: Iterable[TokenScope]) -> tuple[str, Token]:
    """A new token: the text to hand out, which is kept nowhere, and what to keep."""
    text = PREFIX + secrets.token_urlsafe(32)
    return text, Token(name, frozenset(scopes), digest(text))


def line(token: Token) -> str:
    """As it stands in a token file."""
    return f"{token.name} {','.join(sorted(token.scopes))} sha256:{token.digest}"


def parse(text: str, file: str) -> tuple[Token, ...]:
    """Raises:
    TokenFileInvalid: a line is no token, with what it should look like; the line itself is not quoted, since it may
        hold the secret.
    """
    tokens, faults = [], []
    for number, raw in enumerate(text.splitlines(), 1):
        entry = raw.split("#", 1)[0].strip()
        if not entry:
            continue
        match = _LINE.fullmatch(entry)
        if match is None:
            faults.append(
                f"{file}:{number}:1: not `name scope[,scope] sha256:<64 hex digits>`; make a line with `sglang-watchdog config token NAME`"
            )
            continue
        words = match["scopes"].split(",")
        unknown = [word for word in words if word not in set(TokenScope)]
        if unknown:
            column = raw.index(match["scopes"]) + 1
            faults.append(f"{file}:{number}:{column}: unknown scope {unknown[0]!r}: use read, write or metrics")
            continue
        tokens.append(Token(match["name"], frozenset(TokenScope(word) for word in words), match["digest"].lower()))
    if faults:
        raise TokenFileInvalid("\n".join(faults))
    return tuple(tokens)


class TokenStore:
    """The tokens in force. A file that has become unreadable or wrong leaves the old ones in force and is told to
    `on_fault` once; a good file replaces them at the next request."""

    def __init__(
        self,
        tokens: Iterable[Token] = (),
        *,
        file: Path | None = None,
        on_fault: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._on_fault = on_fault
        self._lock = threading.Lock()
        self._fault = ""
        self.replace(tokens, file)

    def replace(self, tokens: Iterable[Token], file: Path | None) -> None:
        """Put these in force instead.

        Raises:
            TokenFileInvalid, OSError: the file cannot be used; the old ones stay.
        """
        seen, read = (_state(file), _read(file)) if file is not None else (None, ())
        with self._lock:
            self._fixed, self._file, self._seen, self._from_file = tuple(tokens), file, seen, read
            self._fault = ""

    @property
    def fault(self) -> str:
        return self._fault

    @property
    def tokens(self) -> tuple[Token, ...]:
        return self._fixed + self._from_file

    def find(self, presented: str) -> Token | None:
        """The token that was presented, if it is one of ours. Every token is compared, whichever matches."""
        self._refresh()
        offered, found = digest(presented), None
        for token in self.tokens:
            if hmac.compare_digest(offered, token.digest):
                found = token
        return found

    def _refresh(self) -> None:
        if self._file is None:
            return
        with self._lock:
            if self._file is None:
                return
            try:
                seen = _state(self._file)
                if seen == self._seen:
                    return
                self._from_file = _read(self._file)
                self._seen, fault = seen, ""
            except (OSError, TokenFileInvalid) as error:
                fault = f"{error}; the tokens read before stay in force"
            if fault and fault != self._fault:
                self._on_fault(fault)
            self._fault = fault


def _state(file: Path) -> tuple[int, int, int]:
    status = os.stat(file)
    return status.st_ino, status.st_mtime_ns, status.st_size


def _read(file: Path) -> tuple[Token, ...]:
    if file.stat().st_size > 1_000_000:
        raise TokenFileInvalid(f"{file}:1:1: larger than 1 MB, so it is no token file")
    return parse(file.read_text(encoding="utf-8", errors="replace"), str(file))
