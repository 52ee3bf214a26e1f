"""Telemetry recordings: JSON lines, one object per GPU and time, plain or gzip, to observations and back.

The schema is the contract's "Telemetry recording". Decoding is one pure function per line, shared by `check` (a plain
iterator) and by the live `replay:` source. What a recording does not hold stays None; it is never read as 0.
"""

import gzip
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Final, TypeAlias, cast

from ..model.observation import Gap, GpuEvent, GpuProcess, Json, Sample
from ..model.readings import SAMPLE_FIELDS, THROTTLE_BITS, names_of
from ..parse.redact import redact

TelemetryObservation: TypeAlias = Sample | GpuEvent | Gap

_FLOATS: Final = names_of(float)
_INTS: Final = names_of(int)
_TEXTS: Final = names_of(str)
_KNOWN: Final = frozenset((*SAMPLE_FIELDS, "ts", "gpu", "throttle_reasons", "processes"))
_LONGEST_LINE: Final = 1 << 20
_ERRORS_KEPT: Final = 20


class MalformedSample(ValueError):
    """A line of a recording is no sample, event or gap. The text says where and what."""


def decode_line(line: bytes, *, source: str = "gpus", where: str = "recording") -> TelemetryObservation | None:
    """Return what one line of a recording says; None for an empty line.

    `where` (file:line) begins the message of the error.

    Raises:
        MalformedSample: not a JSON object, a required key is missing, or a value has the wrong type.
    """
    if not line.strip():
        return None
    if len(line) > _LONGEST_LINE:
        raise MalformedSample(f"{where}: line of {len(line):,} bytes is no telemetry sample; is this the right file?")
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise MalformedSample(
            f'{where}: not JSON ({error}); a recording has one JSON object on each line, such as {{"ts": 1796053575.2, "gpu": 0, "power_w": 77.8}}'
        ) from None
    if not isinstance(entry, dict):
        raise MalformedSample(f"{where}: a JSON {type(entry).__name__} where an object with ts and gpu belongs")
    return _decode(entry, source, where)


def _decode(entry: dict[str, Json], source: str, where: str) -> TelemetryObservation:
    at_s = _float(entry, "ts", where)
    if at_s is None:
        raise MalformedSample(f'{where}: no "ts" (Unix seconds)')
    if entry.get("gap") is not None:
        return Gap(
            source=source,
            from_s=_either(_float(entry, "from", where), at_s),
            to_s=_float(entry, "until", where),
            reason=str(entry.get("reason") or entry["gap"]),
        )
    gpu = _int(entry, "gpu", where)
    if gpu is None:
        raise MalformedSample(f'{where}: no "gpu" (NVML index)')
    if entry.get("event") is not None:
        return GpuEvent(
            at_s=at_s,
            gpu=gpu,
            event=str(entry["event"]),
            source=source,
            uuid=_text(entry, "uuid", where),
            xid=_int(entry, "xid", where),
            reason=str(entry.get("reason") or ""),
        )
    values: dict[str, object] = {name: _float(entry, name, where) for name in _FLOATS}
    values.update((name, _int(entry, name, where)) for name in _INTS)
    values.update((name, _text(entry, name, where)) for name in _TEXTS)
    return Sample(
        at_s=at_s,
        gpu=gpu,
        source=source,
        throttle_reasons=_reasons(entry.get("throttle_reasons"), where),
        processes=_processes(entry.get("processes"), where),
        extra=_extra(entry),
        **values,  # type: ignore[arg-type]  # the three tables above are Sample's own fields
    )


def _either(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _float(entry: Mapping[str, Json], key: str, where: str) -> float | None:
    value = entry.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise MalformedSample(f"{where}: {key} is {value!r}, not a number")
    return float(value) if math.isfinite(value) else None


def _int(entry: Mapping[str, Json], key: str, where: str) -> int | None:
    value = entry.get(key)
    if key == "pstate" and isinstance(value, str) and value[:1] in "Pp" and value[1:].isdigit():
        return int(value[1:])  # nvidia-smi's way of writing it
    number = _float(entry, key, where)
    if number is None:
        return None
    if number != int(number):
        raise MalformedSample(f"{where}: {key} is {value!r}, not a whole number")
    return int(number)


def _text(entry: Mapping[str, Json], key: str, where: str) -> str | None:
    value = entry.get(key)
    if value is not None and not isinstance(value, str):
        raise MalformedSample(f"{where}: {key} is {value!r}, not text")
    return value


def reason_names(mask: int) -> tuple[str, ...]:
    """Name the bits of a clocks-event-reasons mask; bits without a name in the contract are left out."""
    return tuple(name for bit, name in THROTTLE_BITS.items() if mask & bit)


def _reasons(value: Json, where: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return reason_names(value)
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return tuple(cast("list[str]", value))
    raise MalformedSample(f"{where}: throttle_reasons is {value!r}, not a list of names")


def _title(entry: Mapping[str, Json], where: str) -> str | None:
    """A process's name: other tools' recordings hold whole command lines there, keys and all."""
    name = _text(entry, "name", where)
    return None if name is None else redact(name)


def _processes(value: Json, where: str) -> tuple[GpuProcess, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise MalformedSample(f"{where}: processes is {value!r}, not a list of objects")
    found = []
    for each in value:
        pid = _int(each, "pid", where) if isinstance(each, dict) else None
        if not isinstance(each, dict) or pid is None:
            raise MalformedSample(f"{where}: processes holds {each!r}, not an object with a pid")
        found.append(
            GpuProcess(
                pid=pid,
                ppid=_int(each, "ppid", where),
                mem_mib=_float(each, "mem_mib", where),
                name=_title(each, where),
            )
        )
    return tuple(found)


def _extra(entry: Mapping[str, Json]) -> dict[str, float]:
    return {
        key: float(value)
        for key, value in entry.items()
        if key not in _KNOWN and isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    }


def encode(observation: TelemetryObservation) -> bytes:
    """Return the recording line of an observation, newline included. None fields are left out."""
    if isinstance(observation, Sample):
        entry = _encode_sample(observation)
    elif isinstance(observation, GpuEvent):
        entry = {
            "ts": observation.at_s,
            "gpu": observation.gpu,
            "event": observation.event,
            "uuid": observation.uuid,
            "xid": observation.xid,
            "reason": observation.reason or None,
        }
    else:
        at_s = observation.from_s if observation.from_s is not None else observation.to_s
        entry = {"ts": at_s, "gap": "nvml", "reason": observation.reason, "until": observation.to_s}
    kept = {key: value for key, value in entry.items() if value is not None}
    return json.dumps(kept, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode() + b"\n"


def _encode_sample(sample: Sample) -> dict[str, Json]:
    entry: dict[str, Json] = {"ts": round(sample.at_s, 3), "gpu": sample.gpu}
    for name in (*_TEXTS, *_FLOATS, *_INTS):
        value = getattr(sample, name)
        entry[name] = round(value, 4) if isinstance(value, float) else value
    if sample.throttle_reasons is not None:
        entry["throttle_reasons"] = list(sample.throttle_reasons)
    if sample.processes is not None:
        entry["processes"] = [
            {
                key: value
                for key, value in (
                    ("pid", each.pid),
                    ("ppid", each.ppid),
                    ("mem_mib", each.mem_mib),
                    ("name", each.name),
                )
                if value is not None
            }
            for each in sample.processes
        ]
    entry.update({key: round(value, 4) for key, value in sample.extra.items() if key not in _KNOWN})
    return entry


def open_recording(path: Path) -> IO[bytes]:
    """Open a recording for reading, unpacked; gzip is recognised by its first bytes, not by the name.

    Raises:
        OSError: it cannot be opened.
    """
    with path.open("rb") as probe:
        packed = probe.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(path, "rb")) if packed else path.open("rb")


class Recording:
    """A finished recording as an iterable of observations in file order, each line decoded as it is reached.

    Bad lines are skipped and counted in `bad_lines`; the first 20 messages are kept in `errors`.
    """

    def __init__(self, path: Path, *, source: str = "gpus", on_bad: Callable[[str], None] | None = None) -> None:
        self.path = path
        self.source = source
        self.lines = 0
        self.bad_lines = 0
        self.errors: list[str] = []
        self._on_bad = on_bad

    def __iter__(self) -> Iterator[TelemetryObservation]:
        """Yield samples, events and gaps.

        Raises:
            OSError: the file cannot be opened. A file that ends in the middle of its compressed stream ends in a Gap.
        """
        newest_s: float | None = None
        with open_recording(self.path) as stream:
            try:
                for line in stream:
                    self.lines += 1
                    observation = self.decode(line)
                    if observation is not None:
                        newest_s = getattr(observation, "at_s", newest_s)
                        yield observation
            except (EOFError, OSError, zlib.error) as error:
                self._bad(f"{self.path}:{self.lines + 1}: unreadable from here on ({error}); was the copy cut short?")
                yield Gap(source=self.source, from_s=newest_s, to_s=None, reason=f"unreadable: {error}")

    def decode(self, line: bytes) -> TelemetryObservation | None:
        """Decode the line that `lines` counts; a bad one is noted and None."""
        try:
            return decode_line(line, source=self.source, where=f"{self.path}:{self.lines}")
        except MalformedSample as error:
            self._bad(str(error))
            return None

    def _bad(self, message: str) -> None:
        self.bad_lines += 1
        if len(self.errors) < _ERRORS_KEPT:
            self.errors.append(message)
            if self._on_bad is not None:
                self._on_bad(message)
