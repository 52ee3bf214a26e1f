"""The zone in which a log's stamps are written. SGLang prints local time without a zone, so somebody has to say it."""

import re
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?([0-5]\d))?")
_QUARTER_S = 900  # every zone in use since 1972 lies at a multiple of 15 minutes
_FARTHEST_S = 14 * 3600 + 60  # UTC+14, and a minute of slack


class UnknownZone(ValueError):
    """The name is neither an offset such as +08:00 nor a zone of the IANA database."""


@dataclass(frozen=True, slots=True)
class Zone:
    """Turns naive local times into Unix seconds.

    `certain` is False for a guess, which a source whose framing carries UTC times may correct. `day` dates the first
    stamp of a log that prints the time of day alone (0.3.0); without it such stamps stay undated.
    """

    name: str
    info: tzinfo
    certain: bool = True
    day: date | None = None

    @classmethod
    def utc(cls, *, certain: bool = True) -> "Zone":
        return cls("UTC", UTC, certain)

    @classmethod
    def named(cls, name: str) -> "Zone":
        """Read `UTC`, `+08:00`, `UTC+8` or an IANA name.

        Raises:
            UnknownZone: with what may be written instead.
        """
        text = name.strip()
        if text.upper() in {"UTC", "Z", "GMT"}:
            return cls.utc()
        if offset := _OFFSET.fullmatch(text):
            sign = 1 if offset[1] == "+" else -1
            minutes = int(offset[2]) * 60 + int(offset[3] or 0)
            if minutes * 60 <= _FARTHEST_S:
                return cls(text, timezone(timedelta(minutes=sign * minutes)))
        try:
            return cls(text, ZoneInfo(text))
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise UnknownZone(f"no time zone called {name!r}: give an offset (+08:00) or a name such as Asia/Shanghai") from None

    def unix(self, local: datetime, *, after_s: float | None = None) -> float:
        """Return the Unix seconds of a naive local time.

        In the hour that a clock passes twice the first pass is meant, unless `after_s`, the time of the line before,
        shows that it is over.
        """
        first = local.replace(tzinfo=self.info, fold=0).timestamp()
        second = local.replace(tzinfo=self.info, fold=1).timestamp()
        if second > first and after_s is not None and after_s > first + 1800:
            return second
        return first

    def dated(self, day: date) -> "Zone":
        return replace(self, day=day)


def measured(stamp_s: float, true_s: float, *, within_s: float = 300) -> Zone | None:
    """Return the zone that explains why a stamp read as UTC gives `stamp_s` for a line known to be of `true_s`.

    None if no offset of whole quarters of an hour does within `within_s`: then the times have nothing to do with
    each other.
    """
    quarters = round((stamp_s - true_s) / _QUARTER_S)
    off_s = quarters * _QUARTER_S
    if abs(off_s) > _FARTHEST_S or abs(stamp_s - true_s - off_s) > within_s:
        return None
    sign = "-" if off_s < 0 else "+"
    hours, minutes = divmod(abs(off_s) // 60, 60)
    name = f"{sign}{hours:02}:{minutes:02}" if off_s else "UTC"
    return Zone(name, timezone(timedelta(seconds=off_s)) if off_s else UTC, certain=False)
