"""Reads the line in which SGLang prints its arguments, without ever evaluating it.

Up to 0.5.18 it is the repr of a dataclass, `server_args=ServerArgs(k=v, ...)`; since 0.5.19 a dict, `server_args={'k': v,
...}`. Values are Python literals, nested records, and now and then something no literal parser takes: `<function f at 0x1>`,
`<Enum.X: 1>`, `torch.bfloat16`, nan. Such a value is kept as its text. A line that was cut gives what could be read.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from ..model.observation import Json
from .redact import MASK, is_secret_name, is_secret_record, redact

_HEADS: Final = re.compile(r"(?P<update>Global server args updated!)[^\n]*?(?=ServerArgs\(|\{)|server_args=(?=ServerArgs\(|\{)")
_SPACE: Final = re.compile(r"[\s]*")
_STRING: Final = re.compile(r"""[bru]{0,2}(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""", re.DOTALL)
_NUMBER: Final = re.compile(r"[+-]?(?:\d[\d_]*(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)(?=[\s,)\]}:]|$)")
_NAME: Final = re.compile(r"[A-Za-z_][\w.]*")
_ESCAPE: Final = re.compile(r"\\(?:([abfnrtv0'\"\\])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|\n)")
_PLAIN_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0"}
_WORDS: Final[Mapping[str, Json]] = {"None": None, "True": True, "False": False}
_CLOSERS: Final[Mapping[str, str]] = {"(": ")", "[": "]", "{": "}"}
_DEEPEST: Final = 24


@dataclass(frozen=True, slots=True)
class ServerArgs:
    """The arguments of one dump, secrets masked. `complete` is False if the line ended before its last bracket."""

    args: Mapping[str, Json]
    secrets: tuple[str, ...]  # the masked values, so that they can be cut from later lines too
    digest: str  # 16 hex digits over the message, secrets left out
    complete: bool
    is_update: bool  # `Global server args updated!`: a running server changed, no new run


class _CutShortError(Exception):
    """The text ended inside a value."""


def read_server_args(message: str) -> ServerArgs | None:
    """Return the arguments printed in a message, or None if it is no dump."""
    head = _HEADS.match(message)
    if head is None:
        return None
    reader = _Reader(message)
    at = head.end()
    at += len("ServerArgs") if message.startswith("ServerArgs", at) else 0
    raw: dict[str, Json] = {}
    complete = reader.record(at, raw, depth=0)
    secrets: list[str] = []
    args = {name: _masked(name, value, secrets) for name, value in raw.items()}
    _flatten_graph_config(args)
    text = message
    for secret in secrets:
        text = text.replace(secret, MASK)
    return ServerArgs(args, tuple(secrets), sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16], complete, head["update"] is not None)


class _Reader:
    """A recursive-descent reader of reprs. Positions are indices into the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = len(text)

    def record(self, at: int, into: dict[str, Json], *, depth: int) -> bool:
        """Read `(k=v, ...)` or `{'k': v, ...}` beginning at its bracket; return whether the closing bracket was met."""
        closer = _CLOSERS[self._text[at]]
        at = self._skip(at + 1)
        while at < self._end and self._text[at] != closer:
            began = at
            try:
                name, at = self._key(at)
                value, at = self._value(at, depth=depth)
            except _CutShortError:
                return False
            into[name] = value
            at = self._skip(at)
            if at == began:  # a bracket that closes nothing
                return False
            if at < self._end and self._text[at] == ",":
                at = self._skip(at + 1)
        return at < self._end

    def end_of(self, at: int) -> int:
        """Return where the value beginning at `at` ends: the next comma or closing bracket of its own depth."""
        depth = 0
        while at < self._end:
            char = self._text[at]
            if char in "'\"":
                quoted = _STRING.match(self._text, at)
                if quoted is None:
                    raise _CutShortError
                at = quoted.end()
                continue
            if char in "([{<":
                depth += 1
            elif char in ")]}" or (char == ">" and depth and self._text[at - 1] != "-"):
                if depth == 0:
                    return at
                depth -= 1
            elif char == "," and depth == 0:
                return at
            at += 1
        raise _CutShortError

    def _skip(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        return found.end() if found else at

    def _key(self, at: int) -> tuple[str, int]:
        if quoted := _STRING.match(self._text, at):
            name, at = _unquoted(quoted[0]), quoted.end()
        elif bare := (_NAME.match(self._text, at) or _NUMBER.match(self._text, at)):
            name, at = bare[0], bare.end()
        else:
            end = self.end_of(at)
            return self._text[at:end].strip(), end
        at = self._skip(at)
        if at < self._end and self._text[at] in ":=":
            return name, self._skip(at + 1)
        if at >= self._end:
            raise _CutShortError
        return name, at

    def _value(self, at: int, *, depth: int) -> tuple[Json, int]:
        """Read one value; whatever is no literal is kept as its text."""
        begin = at
        if at >= self._end:
            raise _CutShortError
        if depth < _DEEPEST:
            try:
                value, at = self._literal(at, depth=depth)
            except ValueError:
                value, at = None, -1
            if at >= 0:
                at = self._skip(at)
                if at >= self._end:
                    raise _CutShortError
                if self._text[at] in ",)]}":
                    return value, at
        end = self.end_of(begin)
        return self._text[begin:end].strip(), end

    def _literal(self, at: int, *, depth: int) -> tuple[Json, int]:
        if quoted := _STRING.match(self._text, at):
            return _unquoted(quoted[0]), quoted.end()
        if number := _NUMBER.match(self._text, at):
            return _number(number[0]), number.end()
        if self._text[at] in _CLOSERS:
            return self._bracketed(at, depth=depth)
        if name := _NAME.match(self._text, at):
            if name.end() < self._end and self._text[name.end()] == "(":
                return self._call(name.end(), depth=depth)
            return _WORDS.get(name[0], name[0]), name.end()
        raise ValueError("no literal")

    def _call(self, at: int, *, depth: int) -> tuple[Json, int]:
        """`LoRARef(lora_id='a')` becomes a record; `PosixPath('/a')` its only argument."""
        inside = self._skip(at + 1)
        name = _NAME.match(self._text, inside)
        if inside < self._end and (self._text[inside] == ")" or (name and self._text[name.end() : name.end() + 1] == "=")):
            return self._mapping(at, depth=depth)
        items, end = self._sequence(at, depth=depth)
        return (items[0] if len(items) == 1 else items), end

    def _bracketed(self, at: int, *, depth: int) -> tuple[Json, int]:
        if self._text[at] != "{":
            return self._sequence(at, depth=depth)
        inside = self._skip(at + 1)
        if inside < self._end and self._text[inside] == "}":
            return {}, inside + 1
        key = _STRING.match(self._text, inside) or _NUMBER.match(self._text, inside) or _NAME.match(self._text, inside)
        after = self._skip(key.end()) if key else inside
        if after < self._end and self._text[after] == ":":
            return self._mapping(at, depth=depth)
        return self._sequence(at, depth=depth)  # a set

    def _mapping(self, at: int, *, depth: int) -> tuple[Json, int]:
        into: dict[str, Json] = {}
        closer = _CLOSERS[self._text[at]]
        at = self._skip(at + 1)
        while at < self._end and self._text[at] != closer:
            name, at = self._key(at)
            into[name], at = self._value(at, depth=depth + 1)
            at = self._after_comma(at, closer)
        if at >= self._end:
            raise _CutShortError
        return into, at + 1

    def _sequence(self, at: int, *, depth: int) -> tuple[list[Json], int]:
        items: list[Json] = []
        closer = _CLOSERS[self._text[at]]
        at = self._skip(at + 1)
        while at < self._end and self._text[at] != closer:
            item, at = self._value(at, depth=depth + 1)
            items.append(item)
            at = self._after_comma(at, closer)
        if at >= self._end:
            raise _CutShortError
        return items, at + 1

    def _after_comma(self, at: int, closer: str) -> int:
        at = self._skip(at)
        if at < self._end and self._text[at] == ",":
            return self._skip(at + 1)
        if at < self._end and self._text[at] != closer:
            raise ValueError("brackets do not match")
        return at


def _number(text: str) -> int | float:
    try:
        return int(text) if len(text) < 300 else text.count("0")
    except ValueError:
        return float(text)


def _unquoted(quoted: str) -> str:
    body = quoted.lstrip("bru")[1:-1]
    return _ESCAPE.sub(_unescaped, body) if "\\" in body else body


def _unescaped(found: re.Match[str]) -> str:
    if found[1]:
        return _PLAIN_ESCAPES.get(found[1], found[1])
    code = int(found[2] or found[3] or found[4] or "0", 16)
    return chr(code) if code <= 0x10FFFF else "\ufffd"


def _masked(name: str, value: Json, secrets: list[str]) -> Json:
    """Cut secrets from a value by the name it goes under. None and empty values stay: that no key is set is a fact."""
    if value in (None, "", "{}") or value is False or value is True:
        return value
    if is_secret_name(name) or is_secret_record(name):
        _collect(value, secrets)
        return MASK
    if isinstance(value, dict):
        return {key: _masked(key, inner, secrets) for key, inner in value.items()}
    if isinstance(value, list):
        return [_masked(name, inner, secrets) for inner in value]
    return redact(value) if isinstance(value, str) else value


def _collect(value: Json, secrets: list[str]) -> None:
    if isinstance(value, dict):
        for inner in value.values():
            _collect(inner, secrets)
    elif isinstance(value, list):
        for inner in value:
            _collect(inner, secrets)
    elif isinstance(value, str) and value:
        secrets.append(value)


def _flatten_graph_config(args: dict[str, Json]) -> None:
    """Since 0.5.14 the CUDA graph settings are a nested record; give their old names too, which signatures ask for.

    Source: 0.5.14 srt/model_executor/cuda_graph_config.py::PhaseConfig (backend `disabled`, max_bs, bs).
    """
    config = args.get("cuda_graph_config")
    decode = config.get("decode") if isinstance(config, dict) else None
    if not isinstance(decode, dict):
        return
    if isinstance(decode.get("backend"), str):
        args.setdefault("disable_cuda_graph", decode["backend"] == "disabled")
    sizes = decode.get("bs")
    largest = decode.get("max_bs")
    if largest is None and isinstance(sizes, list):
        largest = max((size for size in sizes if isinstance(size, int)), default=None)
    if largest is not None:
        args.setdefault("cuda_graph_max_bs", largest)
