"""How much one client may ask, so that nobody can keep the daemon from its log."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    body_bytes: int = 64 * 1024
    header_bytes: int = 16 * 1024  # request line and headers together
    connections: int = 256
    connections_per_client: int = 64
    streams: int = 32  # open /api/v1/changes
    request_s: float = 10.0  # to send a request completely
    stream_stall_s: float = 15.0  # a stream's client that takes nothing for so long is cut off
    heartbeat_s: float = 15.0
    requests_per_s: float = 100.0  # of one client address
    burst: int = 400
    failures_per_s: float = 1.0  # wrong tokens of one client address
    failures_burst: int = 20


class Buckets:
    """Token buckets by client, of which only the most recent `clients` are remembered."""

    def __init__(self, per_s: float, burst: int, *, now: Callable[[], float], clients: int = 1024) -> None:
        self._per_s, self._burst, self._now, self._clients = per_s, float(burst), now, clients
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """Take one. Returns 0.0 if there was one, else the seconds until there is."""
        left, now_s = self._level(client)
        wait_s = 0.0 if left >= 1.0 else (1.0 - left) / self._per_s
        self._left[client] = (left if wait_s else left - 1.0, now_s)
        self._left.move_to_end(client)
        if len(self._left) > self._clients:
            self._left.popitem(last=False)
        return wait_s

    def wait_s(self, client: str) -> float:
        """As `take`, without taking."""
        left, _ = self._level(client)
        return 0.0 if left >= 1.0 else (1.0 - left) / self._per_s

    def _level(self, client: str) -> tuple[float, float]:
        now_s = self._now()
        left, at_s = self._left.get(client, (self._burst, now_s))
        return min(self._burst, left + max(0.0, now_s - at_s) * self._per_s), now_s
