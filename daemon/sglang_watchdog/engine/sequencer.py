"""Puts observations of several sources into one order that does not depend on when they arrived.

A log line is dated by its stamp, an undated line by the newest stamp before it in its source, so the order within a source is
kept. Something is released once every other source has delivered up to its time; ties go by source name.
"""

import heapq
import math
from collections import deque
from collections.abc import Iterator

from ..model.observation import Observation, Watermark

_UNDATED = float("-inf")
_WITHDRAWN = float("inf")


class Sequencer:
    """Merges by event time. Sources must be announced; one that is silent holds the others back until its watermark moves."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[tuple[float, Observation]]] = {}
        self._reached: dict[str, float] = {}  # delivered up to
        self._clock: dict[str, float] = {}  # newest stamp, so that order within a source is kept
        self.released_s = _UNDATED

    def announce(self, source: str) -> None:
        """From now on nothing is released that this source might still precede."""
        self._queues.setdefault(source, deque())
        if self._reached.get(source, _WITHDRAWN) == _WITHDRAWN:
            self._reached[source] = self.released_s
        self._clock.setdefault(source, _UNDATED)

    def withdraw(self, source: str) -> Iterator[Observation]:
        """The source ended or is stuck: it holds nobody back any more. What it had is still released in order."""
        self._queues.setdefault(source, deque())
        self._clock.setdefault(source, _UNDATED)
        self._reached[source] = _WITHDRAWN
        yield from self._release()

    def feed(self, source: str, at_s: float | None, observation: Observation) -> Iterator[Observation]:
        """Take one observation and give back what may be acted on now, in order."""
        if source not in self._queues:
            self.announce(source)
        if isinstance(observation, Watermark):
            self._reached[source] = max(self._reached[source], observation.at_s)
        key = max(self._clock[source], at_s if at_s is not None else _UNDATED)
        self._clock[source] = key
        if len(self._queues) == 1:  # nobody to wait for
            self.released_s = max(self.released_s, key)
            yield observation
            return
        self._queues[source].append((key, observation))
        yield from self._release()

    @property
    def low_s(self) -> float:
        """Every source has delivered everything up to here, this moment included."""
        return min((self._delivered(source) for source in self._queues), default=_UNDATED)

    def drain(self) -> Iterator[Observation]:
        """Every source is quiet or has ended: release all that is held, in order. What comes later is ordered as before."""
        yield from self._release(hold_back=False)

    @property
    def waiting(self) -> int:
        return sum(len(queue) for queue in self._queues.values())

    def _delivered(self, source: str) -> float:
        """More of the newest stamp's second may follow, so only a watermark closes it."""
        queue, reached = self._queues[source], self._reached[source]
        newest = queue[0][0] if queue else self._clock[source]
        return max(reached, math.nextafter(newest, _UNDATED)) if not queue else math.nextafter(newest, _UNDATED)

    def _release(self, *, hold_back: bool = True) -> Iterator[Observation]:
        heap = [(queue[0][0], source) for source, queue in self._queues.items() if queue]
        heapq.heapify(heap)
        while heap:
            key, source = heap[0]
            if hold_back and any(self._blocks(other, key) for other in self._queues if other != source):
                return
            heapq.heappop(heap)
            queue = self._queues[source]
            _, observation = queue.popleft()
            self.released_s = max(self.released_s, key)
            if queue:
                heapq.heappush(heap, (queue[0][0], source))
            yield observation

    def _blocks(self, other: str, key: float) -> bool:
        """Whether `other` might still deliver something before `key`: it is empty and has not reached it."""
        return not self._queues[other] and max(self._reached[other], self._clock[other]) < key
