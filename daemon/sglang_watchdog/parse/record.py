"""Splits one physical line into its stamp, rank and message.

SGLang's own prefix is `[2026-01-02 03:04:05.678 DP0 TP1] `; milliseconds since 0.5.6 if asked for, time of day alone in
0.3.0, ranks in an order that changed three times. Other writers share the stream: uvicorn, FlashInfer, torch, NCCL, the
kernel, bare prints. A carriage return redraws a progress bar, and a record may be glued to the bar's end.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from .progress import DRAWING

STAMP: Final = rb"(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d{1,6})?"
RANKS: Final = rb"(?: [A-Z][A-Z_]+\d+)*"
_ROLE: Final = rb"(?: encode_server| encode_dp_worker\[\d+\])?"
PREFIX: Final = re.compile(rb"\[(" + STAMP + rb")(" + RANKS + _ROLE + rb")\](?: |$)")
PREFIXED_LINE: Final = re.compile(rb"^\[" + STAMP + RANKS + _ROLE + rb"\](?: |\r?$)", re.MULTILINE)
_BAR_BEFORE: Final = re.compile(DRAWING + rb"[ \t]*(?=\[\d)")

# One physical line each: repr and JSON escape line breaks. `in=` is the form up to 0.3.6.
_REQUEST_LOG: Final = re.compile(
    rb'(?:Receive|Finish)\b[^:=\'"]{0,24}: obj=|in=\w*ReqInput\(|'
    rb'\{"(?:timestamp|event|rid)": ?"[^"]*"(?:, ?"event": ?"request\.|, ?"(?:rid|obj)":)'
)
_REQUEST_ANYWHERE: Final = re.compile(rb'(?:Receive|Finish)\b[^:=\'"]{0,24}: obj=|in=\w*ReqInput\(|"event": ?"request\.')
ACCESS: Final = re.compile(rb'(?:[A-Z]+: +)?\S+ - "[A-Z]+ (\S+) HTTP/[\d.]+" (\d{3})(?: [^"]*)?$')
_UVICORN: Final = re.compile(rb"(?:TRACE|DEBUG|INFO|WARNING|ERROR|CRITICAL): {2,}")
_FOREIGN: Final = re.compile(
    # FlashInfer's JIT logger and others of that form
    rb"(?P<iso>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)"
    rb"(?: - [A-Z]+ - (?:[\w.]+:\d+ - )?(?:flashinfer[\w.]*: )?| )"
    # torch and glog: `[rank4]:[E210 02:06:33.643248754 ProcessGroupNCCL.cpp:616] `, `W0204 12:00:02.337000 2211 a.py:1] `
    rb"|(?:\[rank\d+\]:)?\[?[IWEF](?P<glog>\d{3,4} \d\d:\d\d:\d\d\.\d+) [^\]\n]{0,200}\] "
    # syslog and journalctl: `Mar 11 22:14:14 node-a kernel: `
    rb"|(?P<syslog>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?) \S+ [^\s:\[]+(?:\[\d+\])?: "
    # NCCL: `host:pid:tid [0] NCCL WARN `, without a stamp; dmesg: `[12345.678901] `
    rb"|[\w.-]+:\d+:\d+ \[\d+\] (?=NCCL )|\[ *\d+\.\d{6}\] "
)


class Form(StrEnum):
    """Whose line it is."""

    SGLANG = "sglang"  # carries the prefix
    UVICORN = "uvicorn"  # uvicorn's own message, with or without the prefix
    ACCESS = "access"  # an HTTP answer: its path is the user's
    REQUEST_LOG = "request-log"  # text of users: never searched, never quoted
    FOREIGN = "foreign"  # another writer's stamp or head
    BARE = "bare"


@dataclass(frozen=True, slots=True)
class Record:
    """One line, split. `text` is what is visible: the last drawing, without the bar that a record is glued to."""

    form: Form
    text: bytes
    message: bytes  # behind the prefix; the whole text where there is none
    stamp: bytes = b""  # raw; b"" where the line has none
    rank: str = ""  # "TP0", "DP1 TP3 EP3"
    inner: bytes = b""  # behind a foreign head or uvicorn's level word; b"" if there is none


_NOISE: Final = re.compile(rb"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b[@-Z\\^_]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x00")


def without_noise(text: bytes) -> bytes:
    """Remove terminal colours and NULs (a file truncated while its writer keeps its offset is filled with them)."""
    return _NOISE.sub(b"", text)


def visible(line: bytes) -> bytes:
    """Return what a terminal would show of a line: the text after the last carriage return."""
    line = line.rstrip(b"\r\n")
    return line[line.rfind(b"\r") + 1 :]


def is_request_log(text: bytes) -> bool:
    """Whether a message holds the text of users: SGLang's request log in any of its forms."""
    return _REQUEST_LOG.match(text) is not None


def split_record(line: bytes) -> Record:
    """Split a line, given with or without its line end, that went through no framing or was unwrapped from it."""
    text = visible(line)
    if len(text) < len(line) and any(is_request_log(part) for part in line.split(b"\r")):
        return Record(Form.REQUEST_LOG, text, text)
    if prefix := PREFIX.match(text):
        return _behind_prefix(text, prefix)
    if (bar := _BAR_BEFORE.match(text)) and (prefix := PREFIX.match(glued := text[bar.end() :])):
        return _behind_prefix(glued, prefix)
    return _without_prefix(text)


def _behind_prefix(text: bytes, prefix: re.Match[bytes]) -> Record:
    message, stamp, rank = text[prefix.end() :], prefix[1], prefix[2].strip().decode("ascii")
    form, inner = _message_form(message, Form.SGLANG)
    return Record(form, text, message, stamp, rank, inner)


def _without_prefix(text: bytes) -> Record:
    if _REQUEST_ANYWHERE.search(text) or is_request_log(text):
        return Record(Form.REQUEST_LOG, text, text)
    if head := _FOREIGN.match(text):
        stamp = head["iso"] or head["glog"] or head["syslog"] or b""
        inner = text[head.end() :]
        if prefix := PREFIX.match(inner):  # journalctl's or docker compose's own head before SGLang's prefix
            return _behind_prefix(inner, prefix)
        return Record(Form.FOREIGN, text, text, stamp, "", inner)
    form, inner = _message_form(text, Form.BARE)
    return Record(form, text, text, b"", "", inner)


def _message_form(message: bytes, otherwise: Form) -> tuple[Form, bytes]:
    if is_request_log(message):
        return Form.REQUEST_LOG, b""
    if level := _UVICORN.match(message):
        return (Form.ACCESS if ACCESS.match(message) else Form.UVICORN), message[level.end() :]
    return otherwise, b""


_ODD_BOUNDARY: Final = re.compile(rb'[\]|>:)]\s+|\s-\s+|\b(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL)\b\s+|"(?:message|msg)": ?"')
_ODD_HEAD: Final = re.compile(rb"(?:\S+\s+)?(?:\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d|\d\d:\d\d:\d\d|\[?(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL)\b)|\{\"")
_ODD_STAMP: Final = re.compile(rb"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?")
_ODD_RANK: Final = re.compile(rb"\b(?:DP|PP|ATTN_CP|MOE_DP|TP|EP)\d+\b")


@dataclass(frozen=True, slots=True)
class OddRecord:
    """A line of a server with its own logging configuration: where the message begins is a guess, so all are given."""

    text: bytes
    messages: tuple[bytes, ...]
    stamp: bytes
    rank: str


def split_odd(line: bytes) -> OddRecord | None:
    """Split a line that has a log head but not SGLang's; None if it has none or holds the text of users."""
    text = visible(line)
    if not _ODD_HEAD.match(text) or _REQUEST_ANYWHERE.search(text):
        return None
    boundaries = [found.end() for found in _odd_boundaries(text)]
    if not boundaries:
        return None
    head = text[: boundaries[-1]]
    stamp = _ODD_STAMP.search(head)
    rank = " ".join(found.decode("ascii") for found in _ODD_RANK.findall(head))
    return OddRecord(text, tuple(text[at:] for at in boundaries), stamp[0] if stamp else b"", rank)


def _odd_boundaries(text: bytes) -> Iterator[re.Match[bytes]]:
    """The places in a line's first 160 bytes where a message may begin."""
    for count, found in enumerate(_ODD_BOUNDARY.finditer(text, 0, 160)):
        if count == 12:
            return
        yield found
