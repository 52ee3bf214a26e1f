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
                known[found[0]] = found[1](value)
            elif value:
                _read_extra(key, value, extra)
        except (ValueError, KeyError):  # wording changed, or the line was cut: retry without the separator at its end
            _read_ragged(found, value, known)
    if mixed is not None:
        extra["mixed_running_requests"] = float(mixed)
        known.setdefault("running_requests", int(mixed))
    if iteration is not None:
        extra["iteration"] = float(iteration)
    return BatchFields(is_decode, known, extra)


def _read_extra(key: bytes, value: bytes, extra: dict[str, float]) -> None:
    """Keep any other numeric field; a percentage becomes a ratio."""
    name = _EXTRA_NAME.sub("_", key.decode("ascii", "replace").lower()).strip("_")
    number = value.rstrip(b", \r")
    if name and len(name) <= 60:
        extra[name] = _ratio(number) if number.endswith(b"%") else float(number)


_NUMBER_AT_START: Final = re.compile(rb"True|False|\d+(?:\.\d+)?%?")


def _read_ragged(found: tuple[str, _Reader] | None, value: bytes, known: dict[str, Number]) -> None:
    if found is None or not (number := _NUMBER_AT_START.match(value)):
        return
    try:
        known[found[0]] = found[1](number[0])
    except (ValueError, KeyError):
        return
