"""The daemon's own log: structured, JSON where no terminal reads it, the same message at most a few times a minute."""

import logging
import sys
import time
from collections.abc import MutableMapping
from typing import Any

import structlog

_BURST = 5  # of one message
_WINDOW_S = 60.0


class RateLimit:
    """Drops a message that was said too often, and says how often when it is said again."""

    def __init__(self, clock: Any = time.monotonic) -> None:
        self._clock = clock
        self._said: dict[tuple[str, str], tuple[float, int]] = {}

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ARG002
        key = (str(event.get("event")), str(event.get("part") or event.get("source") or ""))
        now = self._clock()
        since, count = self._said.get(key, (now, 0))
        if now - since > _WINDOW_S:
            if count > _BURST:
                event["suppressed"] = count - _BURST
            since, count = now, 0
        self._said[key] = (since, count + 1)
        if len(self._said) > 1000:
            self._said.pop(next(iter(self._said)))
        if count >= _BURST:
            raise structlog.DropEvent
        return event


def configure(level: str = "info") -> None:
    """Messages of `level` (debug, info, warning, error) and above, to standard error. Callable again, for another level."""
    terminal = sys.stderr.isatty()
    renderer: Any = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback) if terminal else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            RateLimit(),
            *([] if terminal else [structlog.processors.format_exc_info]),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_Bridge()]
    root.setLevel(logging.WARNING)


class _Bridge(logging.Handler):
    """What libraries say through the standard library's logging, in our form and under our limit: a stranger's malformed
    requests must not fill the log."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(record.levelno, record.getMessage(), part=record.name, exc_info=record.exc_info)
