"""In which zone a log's stamps are, when nobody says: told by its telemetry or its file's time, else the machine's."""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, timezone

from ..parse.zone import Zone
from ..sources.block import Block
from ..sources.machine import machine_zone
from ..sources.telemetry_recording import TelemetryObservation
from .inputs import Input, Unreadable, blocks

_STAMP = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")
_HOUR_S = 3600.0
_MTIME_SLACK_S = 30.0


def infer(inputs: Iterable[Input], samples: list[TelemetryObservation] | None) -> tuple[Zone, str]:
    """The zone and how it is known: "telemetry", "file time" or "machine"."""
    machine = machine_zone()
    span = _stamps(inputs)
    if span is None:
        return machine, "machine"
    first, last, mtime_s = span
    if samples:
        zone = _by_telemetry(first, last, samples, machine)
        if zone is not None:
            return zone, "telemetry"
    if mtime_s is not None:
        zone = _by_mtime(last, mtime_s, machine)
        if zone is not None:
            return zone, "file time"
    return machine, "machine"


def _by_telemetry(first: datetime, last: datetime, samples: list[TelemetryObservation], machine: Zone) -> Zone | None:
    """The offset under which log and telemetry lie upon each other; the machine's own is tried first."""
    times = [observation.to_s if hasattr(observation, "to_s") else observation.at_s for observation in samples]
    known = [time for time in times if time is not None]
    if not known:
        return None
    begin, end = min(known), max(known)

    def overlap(offset_s: float) -> float:
        low = first.replace(tzinfo=UTC).timestamp() - offset_s
        high = last.replace(tzinfo=UTC).timestamp() - offset_s
        return min(high, end) - max(low, begin)

    own = machine.info.utcoffset(first) or timedelta(0)
    offsets = [own.total_seconds(), 0.0, *(quarter * 900.0 for quarter in range(-48, 57))]
    best = max(offsets, key=lambda offset: (min(overlap(offset), 1.0), -offsets.index(offset)))
    if overlap(best) <= 0:
        return None
    return _fixed(best)


def _by_mtime(last: datetime, mtime_s: float, machine: Zone) -> Zone | None:
    """A log is last written at its newest stamp: a difference of whole hours is the zone, anything else says nothing."""
    ahead = last.replace(tzinfo=UTC).timestamp() - mtime_s
    hours = round(ahead / _HOUR_S)
    if timedelta(hours=hours) == machine.info.utcoffset(last) or abs(hours) > 14 or abs(ahead - hours * _HOUR_S) > _MTIME_SLACK_S:
        return None
    return _fixed(hours * _HOUR_S)


def _fixed(offset_s: float) -> Zone:
    if not offset_s:
        return Zone.utc(certain=False)
    sign, minutes = ("-" if offset_s < 0 else "+"), abs(int(offset_s)) // 60
    return Zone(f"{sign}{minutes // 60:02}:{minutes % 60:02}", timezone(timedelta(seconds=offset_s)), certain=False)


def _stamps(inputs: Iterable[Input]) -> tuple[datetime, datetime, float | None] | None:
    """First and newest stamp of all inputs and the file time of the one that ends last; standard input cannot be read twice."""
    found: list[tuple[datetime, datetime, float | None]] = []
    for one in inputs:
        if one.path is None:
            continue
        first = last = None
        for block in _readable(one):
            stamps = _STAMP.findall(block.data[:65536]) if first is None else None
            first = first or (_read(stamps[0]) if stamps else None)
            newest = block.data.rfind(b"[20")
            while newest >= 0 and not (match := _STAMP.match(block.data, newest)):
                newest = block.data.rfind(b"[20", 0, newest)
            if newest >= 0 and match:
                last = _read(match[1]) or last
        if first and last:
            found.append((first, last, one.mtime_s))
    if not found:
        return None
    return min(f for f, _, _ in found), max(last for _, last, _ in found), max(found, key=lambda item: item[1])[2]


def _readable(one: Input) -> Iterator[Block]:
    """The blocks up to where reading fails; the run itself reports the failure."""
    try:
        yield from blocks(one)
    except Unreadable:
        return


def _read(text: bytes) -> datetime | None:
    try:
        return datetime.strptime(text.decode("ascii"), "%Y-%m-%d %H:%M:%S")
    except ValueError:
        return None
