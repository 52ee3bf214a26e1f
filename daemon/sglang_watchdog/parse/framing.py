"""Unwraps what containers and the journal put around a server's lines.

Docker's json-file, CRI (Kubernetes), journald as JSON and in its export form; and the heads that tools put before each line
when they print logs, in a file of their own or inside one of the former. Long lines come split, so parts are joined; a joined
line stands where its first part stands. The format is found from the lines themselves: the first line that has one decides,
and a line that carries SGLang's prefix decides for plain.
"""

import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from .record import PREFIX, without_noise

LONGEST_LINE: Final = 256 * 1024  # an argument dump has 5 to 64 kB; beyond this a joined line is cut
_CRI: Final = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) (stdout|stderr) ([FP])(?::[^ \n]*)? ?")
_DOCKER: Final = re.compile(rb'\{"log":"|.*"stream":"std(?:out|err)"(?:,"attrs":\{[^}]*\})?,"time":"[^"]+"\}\r?$')
_JOURNAL: Final = re.compile(rb'\{.*"(?:__REALTIME_TIMESTAMP|__CURSOR|_SYSTEMD_UNIT|MESSAGE)" ?: ?')
_EXPORT: Final = re.compile(rb"__(?:CURSOR|REALTIME_TIMESTAMP)=")


UNDECIDED_LINES: Final = 500  # lines without a sign of any format before a source counts as plain for good
FORMATS: Final = ("plain", "docker", "cri", "journal", "export", "syslog", "compose", "stamped", "prefixed", "labelled")


@dataclass(slots=True)
class Unwrapped:
    """Lines as the server wrote them, joined by newlines, and for each where it stands and when it was written.

    `times` are Unix seconds from the framing, None where a line was not framed.
    """

    text: bytearray = field(default_factory=bytearray)
    starts: list[int] = field(default_factory=list)  # index into text
    offsets: list[int] = field(default_factory=list)  # byte offset in the source
    numbers: list[int] = field(default_factory=list)  # line number in the source
    times: list[float | None] = field(default_factory=list)

    def add(self, line: bytes, offset: int, number: int, at_s: float | None) -> None:
        """Add one message; one that holds line breaks becomes several lines at the same place."""
        if b"\x1b" in line or b"\0" in line:
            line = without_noise(line)
        for piece in line[:LONGEST_LINE].split(b"\n"):
            self.starts.append(len(self.text))
            self.offsets.append(offset)
            self.numbers.append(number)
            self.times.append(at_s)
            self.text += piece
            self.text += b"\n"


class Unframer(Protocol):
    """Takes whole physical lines, gives the server's; keeps parts of unfinished lines between calls."""

    name: str

    def line(self, line: bytes, offset: int, number: int, out: Unwrapped) -> None:
        """Take one physical line without its line end."""

    def finish(self, out: Unwrapped) -> None:
        """Give what was held back for a part that will not come."""


def detect(line: bytes) -> str | None:
    """Return the format that a line shows, plain if it begins with SGLang's own prefix, or None if it shows none.

    A head alone shows nothing: it counts if SGLang's prefix stands behind it.
    """
    if _CRI.match(line):
        return "cri"
    if line.startswith(b"{"):
        if _DOCKER.match(line):
            return "docker"
        return "journal" if _JOURNAL.match(line) else None
    if _EXPORT.match(line):
        return "export"
    if PREFIX.match(line):
        return "plain"
    if line.endswith(b'"}') and _DOCKER.match(line):
        return "docker"
    for name, head in _HEADS.items():
        if (found := head.match(line)) and PREFIX.match(line[found.end() :]):
            return name
    return None


def unframer(name: str) -> Unframer:
    """Build the unframer of a format. Raises KeyError for a name that is none of FORMATS, or plain."""
    if name in _HEADS:
        return Headed(name)
    kinds: dict[str, type[Unframer]] = {"docker": Docker, "cri": Cri, "journal": Journal, "export": Export}
    return Nested(kinds[name]())


# What `journalctl` and syslog, `docker compose logs` and pm2, `docker logs -t` and moreutils' `ts`, `kubectl logs --prefix` and stern,
# Ray, `srun --label`, torchrun's tee and `mpirun --tag-output` print before a line. Kernel lines in a journal keep their head: it
# says whose they are.
_PAINT: Final = rb"(?:\x1b\[[\d;]*m)*"
_HEADS: Final = {
    "syslog": re.compile(
        rb"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d))"
        rb" \S+ [^\s:\[]+\[\d+\]: ?"
    ),
    "compose": re.compile(_PAINT + rb"(?:\[[\w.-]+\]|\d+\|[\w.-]+|[\w.-]+) +\|" + _PAINT + rb" ?" + _PAINT),
    "stamped": re.compile(
        rb"(?:(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?) "
    ),
    "prefixed": re.compile(
        _PAINT + rb"(?:\[(?:pod/)?[\w.-]+(?:/[\w.-]+)+\]|[a-z0-9][\w.-]*" + _PAINT + rb" " + _PAINT + rb"[a-z0-9][\w.-]*)" + _PAINT + rb" "
        rb"(?:(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z) )?"
    ),
    "labelled": re.compile(
        _PAINT + rb"(?:(?:\((?:[\w.:-]+ )?pid=\d+(?:, ip=[\w.:]+)?\)| *\d{1,4}:)" + _PAINT + rb" |\[(?:default)?\d+\]:|\[rank\d+\]: |"
        rb"\[\d+,\d+\]<std(?:out|err)>:)"
    ),
}


class _Parts:
    """The unfinished line of each stream."""

    def __init__(self) -> None:
        self._open: dict[object, tuple[list[bytes], int, int, float | None, int]] = {}

    def add(self, key: object, part: bytes, offset: int, number: int, at_s: float | None, *, is_last: bool, out: Unwrapped) -> None:
        held = self._open.get(key)
        if held is None:
            if is_last:
                out.add(part, offset, number, at_s)
            else:
                self._open[key] = ([part], offset, number, at_s, len(part))
            return
        parts, first_offset, first_number, first_s, size = held
        if size < LONGEST_LINE:
            parts.append(part)
        self._open[key] = (parts, first_offset, first_number, first_s, size + len(part))
        if is_last:
            del self._open[key]
            out.add(b"".join(parts), first_offset, first_number, first_s)

    def finish(self, out: Unwrapped) -> None:
        for parts, offset, number, at_s, _ in self._open.values():
            out.add(b"".join(parts), offset, number, at_s)
        self._open.clear()


class _Times:
    """RFC 3339 times with any number of fraction digits; the minute is remembered."""

    def __init__(self) -> None:
        self._minute = ""
        self._minute_s = 0.0

    def read(self, text: str) -> float | None:
        try:
            if text.endswith("Z") and text[:16] == self._minute:
                return self._minute_s + float(text[17:-1])
            digits = re.fullmatch(r"(\S{16}):(\d\d(?:\.\d+)?)(Z|[+-]\d\d:\d\d)", text)
            if digits is None:
                return None
            minute_s = datetime.fromisoformat(digits[1] + ":00" + digits[3].replace("Z", "+00:00")).timestamp()
        except ValueError:
            return None
        if digits[3] == "Z":
            self._minute, self._minute_s = digits[1], minute_s
        return minute_s + float(digits[2])


class Docker:
    """`{"log":"text\\n","stream":"stderr","time":"2026-01-02T03:04:05.678901234Z"}`; a part lacks the final `\\n`."""

    name = "docker"

    def __init__(self) -> None:
        self._parts = _Parts()
        self._times = _Times()

    def line(self, line: bytes, offset: int, number: int, out: Unwrapped) -> None:
        try:
            entry = json.loads(line)
            log = entry["log"].encode("utf-8", "surrogatepass")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            # The rest of an entry that was cut may be anything, the text of users included.
            out.add(b"" if line.startswith(b"{") or line.endswith(b"}") else line, offset, number, None)
            return
        at_s = self._times.read(str(entry.get("time", "")))
        is_last = log.endswith(b"\n")
        self._parts.add(entry.get("stream"), log.removesuffix(b"\n"), offset, number, at_s, is_last=is_last, out=out)

    def finish(self, out: Unwrapped) -> None:
        self._parts.finish(out)


class Cri:
    """`2026-01-02T03:04:05.678901234Z stderr F text`; P marks a part."""

    name = "cri"

    def __init__(self) -> None:
        self._parts = _Parts()
        self._times = _Times()

    def line(self, line: bytes, offset: int, number: int, out: Unwrapped) -> None:
        head = _CRI.match(line)
        if head is None:
            out.add(line, offset, number, None)
            return
        at_s = self._times.read(head[1].decode("ascii"))
        self._parts.add(head[2], line[head.end() :], offset, number, at_s, is_last=head[3] == b"F", out=out)

    def finish(self, out: Unwrapped) -> None:
        self._parts.finish(out)


class Headed:
    """A head before each line, as tools print it; a time in it is UTC or has its offset."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._head = _HEADS[name]
        self._times = _Times()

    def line(self, line: bytes, offset: int, number: int, out: Unwrapped) -> None:
        text, at_s = self.behind(line)
        out.add(text, offset, number, at_s)

    def behind(self, line: bytes) -> tuple[bytes, float | None]:
        """Return what stands behind the head, and the head's time in Unix seconds if it has one."""
        head = self._head.match(line)
        if head is None:
            return line, None
        time = head.groupdict().get("time")
        return line[head.end() :], self._times.read(time.decode("ascii")) if time else None

    def finish(self, out: Unwrapped) -> None:
        """Nothing is ever held back."""


class Nested:
    """A container's or the journal's lines that may carry a tool's head of their own.

    Ray's in Kubernetes, `docker compose` run by systemd, `srun --label` in the journal. Found as in a bare file: the first
    line with SGLang's prefix decides. The outer time stays, as the clock of the machine that is watched.
    """

    def __init__(self, outer: Unframer) -> None:
        self.name = outer.name
        self._outer = outer
        self._inner: Headed | None = None
        self._undecided = UNDECIDED_LINES

    def line(self, line: bytes, offset: int, number: int, out: Unwrapped) -> None:
        if not self._undecided and self._inner is None:
            self._outer.line(line, offset, number, out)
            return
        framed = Unwrapped()
        self._outer.line(line, offset, number, framed)
        self._pass_on(framed, out)

    def finish(self, out: Unwrapped) -> None:
        framed = Unwrapped()
        self._outer.finish(framed)
        self._pass_on(framed, out)

    def _pass_on(self, framed: Unwrapped, out: Unwrapped) -> None:
        texts = bytes(framed.text).split(b"\n")[:-1]
        for text, offset, number, at_s in zip(texts, framed.offsets, framed.numbers, framed.times, strict=True):
            if self._undecided:
                self._decide(text)
            bare, inner_s = self._inner.behind(text) if self._inner is not None else (text, None)
            out.add(bare, offset, number, inner_s if at_s is None else at_s)

    def _decide(self, text: bytes) -> None:
        found = detect(text)
        self._undecided = 0 if found == "plain" or found in _HEADS else self._undecided - 1
        if found in _HEADS:
            self._inner = Headed(found)


def _journal_parts(entry: dict[str, object], message: bytes, offset: int, number: int, parts: _Parts, out: Unwrapped) -> None:
    """Add one journal entry; journald breaks lines at 48 KiB and says so in _LINE_BREAK."""
    try:
        at_s = int(str(entry.get("_SOURCE_REALTIME_TIMESTAMP") or entry["__REALTIME_TIMESTAMP"])) / 1e6
    except (KeyError, ValueError):
        at_s = None
    key = (entry.get("_STREAM_ID"), entry.get("_PID"))
    is_last = entry.get("_LINE_BREAK") != "line-max"
    parts.add(key, message, offset, number, at_s, is_last=is_last, out=out)


class Journal:
    """`journalctl -o json`: MESSAGE is a text, a list of bytes if it holds unprintable ones, or null if it is too long."""

    name = "journal"

    def __init__(self) -> None:
        self._parts = _Parts()

    def line(self, line: bytes, offset: int, number: int, out: Unwrapped) -> None:
        try:
            entry = json.loads(line)
            message = entry["MESSAGE"]
            if isinstance(message, list):
                message = bytes(message) if all(isinstance(byte, int) for byte in message) else str(message[-1]).encode()
            elif isinstance(message, str):
                message = message.encode("utf-8", "surrogatepass")
            elif message is None:
                message = b""
            else:
                raise ValueError("MESSAGE")
        except (ValueError, KeyError, TypeError, RecursionError):
            out.add(b"" if line.startswith(b"{") else line, offset, number, None)
            return
        _journal_parts(entry, message, offset, number, self._parts, out)

    def finish(self, out: Unwrapped) -> None:
        self._parts.finish(out)


class Export:
    """`journalctl -o export`: one field a line, entries end with an empty line.

    A field with unprintable bytes is its name alone, then eight bytes of length, the bytes, and a newline: they may hold
    newlines, so physical lines are put together again until the length is there.
    """

    name = "export"

    def __init__(self) -> None:
        self._parts = _Parts()
        self._entry: dict[str, object] = {}
        self._message = b""
        self._at: tuple[int, int] | None = None
        self._binary: tuple[str, bytearray] | None = None

    def line(self, line: bytes, offset: int, number: int, out: Unwrapped) -> None:
        if self._binary is not None:
            self._more(line)
        elif not line:
            self._emit(out)
        elif b"=" in line:
            name, _, value = line.partition(b"=")
            self._field(name.decode("ascii", "replace"), value, offset, number)
        else:
            self._binary = (line.decode("ascii", "replace"), bytearray())
            if line == b"MESSAGE":
                self._at = (offset, number)

    def _field(self, name: str, value: bytes, offset: int, number: int) -> None:
        if name == "MESSAGE":
            self._message, self._at = value, (offset, number)
        else:
            self._at = self._at or (offset, number)
            self._entry[name] = value[:200].decode("utf-8", "replace")

    def _more(self, line: bytes) -> None:
        assert self._binary is not None
        name, data = self._binary
        data += line + b"\n"
        if len(data) < 8:
            return
        length = int.from_bytes(data[:8], "little")
        if len(data) >= 8 + length + 1 or len(data) > 8 * LONGEST_LINE:
            self._binary = None
            if name == "MESSAGE":
                self._message = bytes(data[8 : 8 + length])
            else:
                self._entry[name] = bytes(data[8 : 8 + min(length, 200)]).decode("utf-8", "replace")

    def _emit(self, out: Unwrapped) -> None:
        if self._at is not None and (self._entry or self._message):
            _journal_parts(self._entry, self._message, *self._at, self._parts, out)
        self._entry, self._message, self._at = {}, b"", None

    def finish(self, out: Unwrapped) -> None:
        self._emit(out)
        self._parts.finish(out)
