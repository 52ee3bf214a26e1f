"""Reads tqdm's bars: how far weights, graph capture, compilation or tuning have come."""

import re
from dataclasses import dataclass
from typing import Final

# `desc:  12%|##   | 4/36 [00:02<00:16,  1.9it/s]`, and Hugging Face's `desc: 11% Completed | 1/9 [00:01<00:08, 1.1s/it]`.
# No description holds quotes or braces: those belong to the text of users.
DRAWING: Final = (
    rb"(?P<desc>[^\r\n|\"'{}]{0,200}?)[ ]{0,20}\d{1,3}%(?:\|[^|\r\n]{0,400}\|| Completed \|) *"
    rb"(?P<done>\d+)/(?P<total>\d+) \[(?P<elapsed>[\d:]+)<[^\]\r\n]{0,80}\]"
)
BAR: Final = re.compile(rb"(?:^|\r)" + DRAWING)
_KINDS: Final = (
    (re.compile(rb"checkpoint shards|safetensors|Loading weights|Loading pt", re.IGNORECASE), "weights"),
    (re.compile(rb"autotun", re.IGNORECASE), "autotune"),
    (re.compile(rb"DeepGEMM", re.IGNORECASE), "deepgemm"),
    (re.compile(rb"Captur", re.IGNORECASE), "capture"),
    (re.compile(rb"Compil", re.IGNORECASE), "compile"),
)


@dataclass(frozen=True, slots=True)
class Bar:
    """One drawing of a bar. `what` is one of weights, capture, compile, deepgemm, autotune, other."""

    what: str
    done: int
    total: int
    elapsed_s: float


def last_bar(line: bytes) -> Bar | None:
    """Return the last drawing in a line, or None if there is none."""
    drawings = list(BAR.finditer(line[-4096:] if b"\r" in line[-4096:] else line[:4096]))
    last = drawings[-1] if drawings else None
    if last is None:
        return None
    desc = last["desc"]
    what = next((kind for pattern, kind in _KINDS if pattern.search(desc)), "other")
    elapsed_s = 0.0
    for part in last["elapsed"].split(b":"):
        elapsed_s = elapsed_s * 60 + int(part or 0)
    return Bar(what, int(last["done"]), int(last["total"]), elapsed_s)
