"""Bounded series of (time, value) pairs and the functions that reduce a window of them to one number."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise

Points = list[tuple[float, float]]


_PER_STAMP = 64  # a log may print thousands of lines in one second; so many of them are sample enough for a median


class Series:
    """Values in time order, kept for `keep_s` seconds at most, at most `limit` of them, at most 64 of one stamp."""

    __slots__ = ("_at", "_keep_s", "_limit", "_same", "_value", "newest")

    def __init__(self, keep_s: float = 900.0, limit: int = 20_000) -> None:
        self._at: list[float] = []
        self._value: list[float] = []
        self._keep_s = keep_s
        self._limit = limit
        self._same = 0  # values of the newest stamp
        self.newest: tuple[float, float] | None = None

    def __len__(self) -> int:
        return len(self._at)

    def add(self, at_s: float, value: float) -> None:
        """Add a value; one that comes late is put in its place in time."""
        at = self._at
        if at and at_s < at[-1]:
            place = bisect_right(at, at_s)
            at.insert(place, at_s)
            self._value.insert(place, value)
            return
        self.newest = (at_s, value)
        self._same = self._same + 1 if at and at_s == at[-1] else 1
        if self._same > _PER_STAMP:
            self._value[-1] = value  # the newest value of the stamp is the one in force
            return
        at.append(at_s)
        self._value.append(value)
        if self._at[0] < self._at[-1] - 2 * self._keep_s or len(self._at) > 2 * self._limit:
            self._drop(self._at[-1] - self._keep_s)

    def add_to_second(self, at_s: float, value: float) -> None:
        """Add to the value of the same second: for counts that arrive in parts."""
        if self._at and self._at[-1] == at_s:
            self._value[-1] += value
            self.newest = (at_s, self._value[-1])
        else:
            self.add(at_s, value)

    def window(self, from_s: float, to_s: float) -> list[float]:
        """Values with from_s < time <= to_s."""
        return self._value[bisect_right(self._at, from_s) : bisect_right(self._at, to_s)]

    def points(self, from_s: float, to_s: float) -> Points:
        low, high = bisect_right(self._at, from_s), bisect_right(self._at, to_s)
        return list(zip(self._at[low:high], self._value[low:high], strict=True))

    def last_at(self, to_s: float) -> tuple[float, float] | None:
        """The newest point at or before `to_s`, however old."""
        high = bisect_right(self._at, to_s)
        return (self._at[high - 1], self._value[high - 1]) if high else None

    def _drop(self, before_s: float) -> None:
        keep_from = max(bisect_left(self._at, before_s), len(self._at) - self._limit)
        del self._at[:keep_from]
        del self._value[:keep_from]


def median(values: Collection[float]) -> float:
    """The median; raises ValueError on no values."""
    if not values:
        raise ValueError("median of nothing")
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest-rank percentile, `share` 0 to 1."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def reduce(function: str, values: Sequence[float], over_s: float | None, argument: float | None) -> float | None:
    """One number for a window, or None if the values do not suffice. `sum`, `count` and `rate` of nothing are 0."""
    if function == "count":
        return float(len(values))
    if function == "sum":
        return float(sum(values))
    if function == "rate":
        return float(sum(values)) / over_s if over_s else None
    if not values:
        return None
    if function in _SIMPLE:
        return float(_SIMPLE[function](values))
    if function == "share_above" and argument is not None:
        return sum(value > argument for value in values) / len(values)
    if function == "share_below" and argument is not None:
        return sum(value < argument for value in values) / len(values)
    if function == "increase":
        return _increase(values)
    return None


def _increase(values: Sequence[float]) -> float:
    """Growth of a counter; where it falls it began anew, so what it shows then is growth too."""
    grown = 0.0
    for before, after in pairwise(values):
        grown += after - before if after >= before else after
    return grown


_SIMPLE: Mapping[str, Callable[[Sequence[float]], float]] = {
    "median": median,
    "mean": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "p10": lambda values: percentile(values, 0.10),
    "p90": lambda values: percentile(values, 0.90),
}
