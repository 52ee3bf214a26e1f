"""How long a source waits before it tries again."""

from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Waiting times in seconds: doubling from `first_s` to `most_s` with each failure, back after success."""

    first_s: float = 0.25
    most_s: float = 30.0
    _next_s: float = 0.0

    def wait_s(self) -> float:
        """Return how long to wait now, and wait longer the next time."""
        now_s = self._next_s or self.first_s
        self._next_s = min(self.most_s, now_s * 2)
        return now_s

    def reset(self) -> None:
        """It works again."""
        self._next_s = 0.0
