"""Reads SGLang's `Prefill batch` and `Decode batch` lines into numbers.

Fields came, went, were renamed and changed places in every second release, so each is located by its key and each is
optional. The head ends in `.` up to 0.5.3 and in `,` since; ` [n]` counts forward passes where asked for; 0.3.0 puts the
running requests of a mixed batch into the head.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

HEAD: Final = re.compile(rb"(Prefill|Decode) batch(?:\(mixed #running-req: (\d+)\))?(?: \[(\d+)\])?[.,] ?")

Number = int | float


def _ratio(percent: bytes) -> float:
    return float(percent.rstrip(b"%")) / 100


def _truth(word: bytes) -> bool:
    return {b"True": True, b"False": False}[word]


_Reader = Callable[[bytes], Number]
_FIELDS: Final[Mapping[bytes, tuple[str, _Reader]]] = {
    b"#running-req": ("running_requests", int),
    b"#queue-req": ("queue_requests", int),
    b"#new-seq": ("new_sequences", int),
    b"#new-token": ("new_tokens", int),
    b"#cached-token": ("cached_tokens", int),
    b"#token": ("used_tokens", int),
    b"#full token": ("used_tokens", int),
    b"token usage": ("kv_used_ratio", float),
    b"full token usage": ("kv_used_ratio", float),
    b"gen throughput (token/s)": ("tokens_per_s", float),
    b"input throughput (token/s)": ("tokens_per_s", float),
    b"cuda graph": ("graph", _truth),
    b"cpu graph": ("graph", _truth),
    b"npu graph": ("graph", _truth),
    b"musa graph": ("graph", _truth),
    b"accept len": ("accept_length", float),
    b"accept rate": ("accept_rate", float),
    b"#retracted-req": ("retracted_requests", int),
    b"fwd occupancy": ("forward_occupancy", _ratio),
}
_NUMBER: Final = re.compile(rb"True|False|\d+(?:\.\d*)?%?")  # no nan, no inf: neither is a reading
_EXTRA_NAME: Final = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class BatchFields:
    """The numbers of one batch line: `known` by the field names of `model.Batch`, `extra` by snake_case names."""

    is_decode: bool
    known: Mapping[str, Number]
    extra: Mapping[str, float]


def read_batch(message: bytes) -> BatchFields | None:
    """Return the numbers in a message, or None if it is no batch line. A value that does not parse is left out."""
    head = HEAD.match(message)
    if head is None:
        return None
    return read_fields(head[1] == b"Decode", message[head.end() :], mixed=head[2], iteration=head[3])


def read_fields(is_decode: bool, body: bytes, *, mixed: bytes | None = None, iteration: bytes | None = None) -> BatchFields:
    """Read what follows the head of a batch line."""
    known: dict[str, Number] = {}
    extra: dict[str, float] = {}
    for part in body.split(b", "):
        key, _, value = part.partition(b": ")
        found = _FIELDS.get(key)
        try:
            if found is not None:
                if not (value.isdigit() or _NUMBER.fullmatch(value)):
                    raise ValueError("wording changed, or the line was cut")
                known[found[0]] = found[1](value)
            elif value:
                _read_extra(key, value, extra)
        except (ValueError, KeyError):  # retry without what follows the number
            _read_ragged(found, value, known)
    if mixed is not None:
        extra["mixed_running_requests"] = float(mixed)
        known.setdefault("running_requests", int(mixed))
    if iteration is not None:
        extra["iteration"] = float(iteration)
    return BatchFields(is_decode, known, extra)


@dataclass(frozen=True, slots=True)
class _Layout:
    """One order of fields: a regex with a group for each value, then name, reader and whether it is an extra field."""

    regex: re.Pattern[bytes]
    fields: tuple[tuple[str, _Reader, bool], ...]
    has_extra: bool


class BatchReader:
    """Reads the bodies of many batch lines: what `read_fields` gives, three times faster.

    A server prints the same fields in the same order for hours, so each order seen becomes one regex.
    """

    _MOST_KEPT = 16
    _MOST_MADE = 64  # making one costs a thousand lines' reading, so a log of ever new orders is read the slow way

    def __init__(self) -> None:
        self._made = 0
        self._layouts: dict[bool, list[_Layout]] = {True: [], False: []}

    def read(self, is_decode: bool, body: bytes) -> tuple[Mapping[str, Number], Mapping[str, float]]:
        """Return the known and the extra fields of what follows the head of a batch line."""
        layouts = self._layouts[is_decode]
        for at, layout in enumerate(layouts):
            if found := layout.regex.match(body):
                if at:
                    layouts.insert(0, layouts.pop(at))
                try:
                    return _values(layout, found.groups())
                except ValueError:  # 1.2.3 is no number
                    break
        fields = read_fields(is_decode, body)
        if self._made < self._MOST_MADE and (seen := _layout_of(body)) is not None and seen.regex.match(body):
            self._made += 1
            layouts.insert(0, seen)
            del layouts[self._MOST_KEPT :]
        return fields.known, fields.extra


def _values(layout: _Layout, texts: tuple[bytes, ...]) -> tuple[dict[str, Number], dict[str, float]]:
    if not layout.has_extra:
        return {name: read(text) for (name, read, _), text in zip(layout.fields, texts, strict=True)}, {}
    known: dict[str, Number] = {}
    extra: dict[str, float] = {}
    for (name, read, is_extra), text in zip(layout.fields, texts, strict=True):
        if is_extra:
            extra[name] = read(text)
        else:
            known[name] = read(text)
    return known, extra


_VALUES: Final[Mapping[_Reader, bytes]] = {
    int: rb"(\d+)",
    float: rb"(\d+\.?\d*)",
    _truth: rb"(True|False)",
    _ratio: rb"(\d+\.?\d*%)",
}
_END: Final = rb"(?:, ?)?\s*\Z"


def _layout_of(body: bytes) -> _Layout | None:
    """Return the layout of a body; None if a field comes twice or has no key."""
    regex = b""
    fields: list[tuple[str, _Reader, bool]] = []
    names: set[str] = set()
    for part in re.sub(_END, b"", body).split(b", "):
        key, _, value = part.partition(b": ")
        found = _FIELDS.get(key)
        name, read = found or (_extra_name(key), _ratio if value.endswith(b"%") else float)
        if not name or name in names or not value:
            return None
        names.add(name)
        fields.append((name, read, found is None))
        regex += (b", " if regex else b"") + re.escape(key) + b": " + _VALUES[read]
    return _Layout(re.compile(regex + _END), tuple(fields), any(is_extra for _, _, is_extra in fields))


def _extra_name(key: bytes) -> str:
    name = _EXTRA_NAME.sub("_", key.decode("ascii", "replace").lower()).strip("_")
    return name if len(name) <= 60 else ""


def _read_extra(key: bytes, value: bytes, extra: dict[str, float]) -> None:
    """Keep any other numeric field; a percentage becomes a ratio."""
    text = value.rstrip(b", ")
    if (name := _extra_name(key)) and _NUMBER.fullmatch(text):
        extra[name] = _ratio(text) if text.endswith(b"%") else float(text)


def _read_ragged(found: tuple[str, _Reader] | None, value: bytes, known: dict[str, Number]) -> None:
    if found is None or not (number := _NUMBER.match(value)):
        return
    try:
        known[found[0]] = found[1](number[0])
    except (ValueError, KeyError):
        return
