"""Reads the time stamps of a log's lines: SGLang's own, and those of the other writers in the same stream."""

import re
from datetime import datetime, timedelta

from .zone import Zone

_MONTHS = {name: at + 1 for at, name in enumerate((b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"))}
_FULL = re.compile(rb"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")
_CLOCK = re.compile(rb"(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_GLOG = re.compile(rb"(\d{1,2})(\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?)")  # torch writes [E210 for February 10, W0204 for February 4
_SYSLOG = re.compile(rb"([A-Z][a-z]{2}) +(\d{1,2}) (\d\d:\d\d:\d\d(?:\.\d+)?)")
_HALF_DAY_S = 43200
_HALF_YEAR_S = 183 * 86400


def needs_context(raw: bytes) -> bool:
    """Whether a raw stamp lacks its year or its day, so that the stamps before it must have been read."""
    return raw[4:5] != b"-"


class StampReader:
    """Turns raw stamps into Unix seconds; remembers the last one, which dates those without a year or a day."""

    def __init__(self, zone: Zone) -> None:
        self.zone = zone
        self.latest_s: float | None = None
        self._raw = b""
        self._minute = b""
        self._minute_s = 0.0
        self._day = zone.day

    def read(self, raw: bytes) -> float | None:
        """Return the Unix seconds of a raw stamp, or None if it cannot be dated (no day, or no such date)."""
        if raw == self._raw:
            return self.latest_s
        read_s = self._read(raw)
        if read_s is not None:
            self._raw, self.latest_s = raw, read_s
        return read_s

    def _read(self, raw: bytes) -> float | None:
        if raw[:16] == self._minute and len(raw) == 19:  # the common case: the minute is known, seconds follow
            try:
                return self._minute_s + int(raw[17:19])
            except ValueError:
                return None
        try:
            if full := _FULL.fullmatch(raw):
                return self._full(raw, full)
            if clock := _CLOCK.fullmatch(raw):
                return self._time_of_day(clock)
            if glog := _GLOG.fullmatch(raw):
                return self._yearless(int(glog[1]), int(glog[2]), glog[3])
            if (syslog := _SYSLOG.fullmatch(raw)) and syslog[1] in _MONTHS:
                return self._yearless(_MONTHS[syslog[1]], int(syslog[2]), syslog[3])
        except (ValueError, OverflowError):  # the 31st of February, the year 0
            return None
        return None

    def _full(self, raw: bytes, full: re.Match[bytes]) -> float:
        year, month, day, hour, minute, second = (int(full[at]) for at in range(1, 7))
        fraction = _fraction(full[7])
        if full[8]:
            return datetime.fromisoformat(f"{raw[:10].decode()}T{raw[11:19].decode()}{full[8].decode()}").timestamp() + fraction
        base = self.zone.unix(datetime(year, month, day, hour, minute), after_s=self.latest_s)  # naive on purpose
        self._minute, self._minute_s = raw[:16], base
        return base + second + fraction

    def _time_of_day(self, clock: re.Match[bytes]) -> float | None:
        if self._day is None:
            return None
        midnight = datetime(self._day.year, self._day.month, self._day.day)  # naive on purpose
        of_day = timedelta(hours=int(clock[1]), minutes=int(clock[2]), seconds=int(clock[3]))
        at_s = self.zone.unix(midnight + of_day)
        if self.latest_s is not None and at_s < self.latest_s - _HALF_DAY_S:  # past midnight
            self._day += timedelta(days=1)
            at_s = self.zone.unix(midnight + timedelta(days=1) + of_day)
        return at_s + _fraction(clock[4])

    def _yearless(self, month: int, day: int, clock: bytes) -> float | None:
        if self.latest_s is None:
            return None
        year = datetime.fromtimestamp(self.latest_s, self.zone.info).year
        hour, minute, second = int(clock[:2]), int(clock[3:5]), int(clock[6:8])
        if (month, day) == (2, 29):
            year -= year % 4
        at_s = self.zone.unix(datetime(year, month, day, hour, minute, second))  # naive on purpose
        for other in (year - 1, year + 1):  # around New Year the nearer one is meant
            if abs(at_s - self.latest_s) > _HALF_YEAR_S and (month, day) != (2, 29):
                at_s = self.zone.unix(datetime(other, month, day, hour, minute, second))
        return at_s + _fraction(clock[9:])


def _fraction(digits: bytes | None) -> float:
    return int(digits) / 10 ** len(digits) if digits else 0.0
