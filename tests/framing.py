"""Puts a log into what containers and the journal make of it: each line dated by its own stamp, long ones in parts."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from sglang_watchdog.parse.zone import Zone

_STAMP = re.compile(rb"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)")
_PART = 120  # runtimes cut at 16 KiB; here nearly every line is cut, the argument dump many times


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its newline, and when it reached the runtime (Unix seconds)."""

    text: bytes
    at_s: float
    is_whole: bool  # its newline was written


def lines(data: bytes, zone: Zone) -> Iterator[Line]:
    """A line without a stamp came with the one before it; those before the first stamp came with the first."""
    texts = data.split(b"\n")
    first = _STAMP.search(data)
    at_s = _seconds(first, zone) if first else 1_771_000_000.0
    for number, text in enumerate(texts):
        if number == len(texts) - 1 and not text:
            return
        found = _STAMP.search(text[:120])
        at_s = max(at_s, _seconds(found, zone)) if found else at_s
        yield Line(text, at_s, number < len(texts) - 1)


def _seconds(found: re.Match[bytes], zone: Zone) -> float:
    return zone.unix(datetime.fromisoformat(f"{found[1].decode()} {found[2].decode()}"))


def _rfc3339(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%S}.123456789Z"


def _parts(text: str) -> list[str]:
    return [text[at : at + _PART] for at in range(0, len(text), _PART)] or [""]


def docker(data: bytes, zone: Zone) -> bytes:
    """json-file; a part is an entry whose text lacks the newline."""
    out = []
    for line in lines(data, zone):
        *parts, last = _parts(line.text.decode("utf-8", "replace"))
        for part in [*parts, last + "\n" * line.is_whole]:
            out.append(json.dumps({"log": part, "stream": "stderr", "time": _rfc3339(line.at_s)}, separators=(",", ":"), ensure_ascii=False))
    return "".join(f"{entry}\n" for entry in out).encode()


def cri(data: bytes, zone: Zone) -> bytes:
    """containerd and CRI-O; parts are marked P, the last one F."""
    out = []
    for line in lines(data, zone):
        cut = [line.text[at : at + _PART] for at in range(0, len(line.text), _PART)] or [b""]
        out += [_rfc3339(line.at_s).encode() + b" stderr " + (b"F " if at == len(cut) - 1 else b"P ") + part for at, part in enumerate(cut)]
    return b"".join(entry + b"\n" for entry in out)


def journal(data: bytes, zone: Zone) -> bytes:
    """`journalctl -o json`: journald keeps no empty lines, and a text with control characters is a list of bytes."""
    out = []
    for line in lines(data, zone):
        if line.text:
            is_text = all(byte >= 0x20 or byte == 0x09 for byte in line.text)
            message = line.text.decode("utf-8", "replace") if is_text else list(line.text)
            out.append(json.dumps({**_fields(line.at_s), "MESSAGE": message}))
    return "".join(f"{entry}\n" for entry in out).encode()


def export(data: bytes, zone: Zone) -> bytes:
    """`journalctl -o export`: a text with control characters comes with its length in front."""
    out = bytearray()
    for line in lines(data, zone):
        if line.text:
            out += b"".join(f"{name}={value}\n".encode() for name, value in _fields(line.at_s).items())
            is_text = all(byte >= 0x20 or byte == 0x09 for byte in line.text)
            head = b"MESSAGE=" if is_text else b"MESSAGE\n" + len(line.text).to_bytes(8, "little")
            out += head + line.text + b"\n\n"
    return bytes(out)


def _fields(at_s: float) -> dict[str, str]:
    return {
        "__CURSOR": f"s=0;i={int(at_s):x}", "__REALTIME_TIMESTAMP": str(int(at_s * 1e6) + 123456), "_PID": "4711", "_TRANSPORT": "stdout",
        "_SYSTEMD_UNIT": "sglang.service", "SYSLOG_IDENTIFIER": "python3", "PRIORITY": "6", "_STREAM_ID": "a1b2",
    }  # fmt: skip


FORMATS: dict[str, Callable[[bytes, Zone], bytes]] = {"docker": docker, "cri": cri, "journal": journal, "export": export}
