"""How event time moves on when nothing is written: with the wall clock, or only with the newest stamp of any source."""

from collections import deque
from typing import Final

from ..model.observation import Watermark

# A line is stamped with the second in which it was made and reaches the file a little later: what is read at 12:00:06.5 may be
# stamped 12:00:05, but hardly 12:00:04.
WRITE_LAG_S: Final = 1.5


STEP_S: Final = 5.0  # slewing moves a clock by half a millisecond a second at most


class ClockSteps:
    """Notices that the wall clock was set, by its distance from the monotonic one."""

    def __init__(self, distance_s: float) -> None:
        self._distance_s = distance_s

    def look(self, distance_s: float) -> float:
        """Seconds by which the clock was set since the last look, 0.0 if it was not."""
        step_s, self._distance_s = distance_s - self._distance_s, distance_s
        return step_s if abs(step_s) >= STEP_S else 0.0


class WallClock:
    """`--clock wall`: a source that was read to its end at t has delivered everything stamped up to shortly before t."""

    def newest(self, at_s: float, wall_s: float) -> None:
        """Nothing to remember."""

    def watermark(self, source: str, read_s: float) -> Watermark | None:
        return Watermark(source=source, at_s=read_s - WRITE_LAG_S)


class LogClock:
    """`--clock log`: time is the newest stamp of any source, so that a replay gives what `check` gives.

    A source read to its end at t holds nothing older than the newest stamp that anybody had shown before that reading began,
    because whoever writes the sources writes in the order of time.
    """

    def __init__(self) -> None:
        self._shown: deque[tuple[float, float]] = deque(maxlen=10_000)  # (wall clock, newest stamp by then)

    def newest(self, at_s: float, wall_s: float) -> None:
        """A stamp was seen at `wall_s`."""
        if not self._shown or at_s > self._shown[-1][1]:
            self._shown.append((wall_s, at_s))

    def watermark(self, source: str, read_s: float) -> Watermark | None:
        before = [stamp for wall, stamp in self._shown if wall < read_s]
        while len(self._shown) > 1 and self._shown[1][0] < read_s:
            self._shown.popleft()
        return Watermark(source=source, at_s=before[-1]) if before else None
