"""What the daemon does not see, in words: in its log once for each reason, and for whoever asks whether it is ready."""

from collections.abc import Iterable
from typing import Final

import structlog

from ..sinks.state import SourceStatus
from ..sources.status import NOT_STARTED

_SURE_AFTER: Final = 2  # looks: a file that is being replaced is missing for a moment

log = structlog.get_logger()


class Sight:
    """Says which sources are not read and why, once each, and that they are read again."""

    def __init__(self) -> None:
        self._reasons: dict[str, tuple[str, int]] = {}
        self._said: dict[str, str] = {}

    @property
    def unseen(self) -> frozenset[str]:
        """The sources that are not read now, by name."""
        return frozenset(name for name, why in self._said.items() if why)

    def look(self, sources: Iterable[SourceStatus]) -> None:
        """To be called every second with all of them."""
        for each in sources:
            why = each.why if each.state in ("waiting", "failed") and each.why != NOT_STARTED else ""
            before, times = self._reasons.get(each.name, ("", 0))
            times = times + 1 if why == before else 1
            self._reasons[each.name] = (why, times)
            if times >= _SURE_AFTER and why != self._said.get(each.name, ""):
                self._said[each.name] = why
                _say(each, why)


def _say(source: SourceStatus, why: str) -> None:
    if not why:
        log.info("source is read", source=source.name, place=source.path)
    else:
        words = "source is not there yet" if source.state == "waiting" and source.kind != "nvml" else "source cannot be read"
        log.warning(words, source=source.name, place=source.path, why=why, do=source.do)


def unready(sources: Iterable[SourceStatus]) -> str:
    """Why the daemon is not ready: logs that cannot be read, or were not looked at yet. One that is late, a GPU, and a pipe that ended
    are none: what waits for them would wait for ever.
    """
    logs = [each for each in sources if each.server]
    faults = [each.fault for each in logs if each.state == "failed"]
    unseen = [f"{each.name} is not open yet" for each in logs if each.state == "waiting" and each.why in ("", NOT_STARTED)]
    return "; ".join([*faults, *unseen])
