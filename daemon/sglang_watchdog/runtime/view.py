"""Puts what sources and scanners count together for the board."""

from collections.abc import Mapping

from ..sinks.state import SourceStatus
from ..sources.status import NOT_STARTED
from ..sources.status import SourceStatus as Read
from .feeds import Feed, GpuFeed
from .watch import ServerWatch


def source_statuses(watches: Mapping[str, ServerWatch], feeds: Mapping[str, Feed], gpus: GpuFeed | None) -> list[SourceStatus]:
    """One status a source, logs first."""
    out = []
    for feed in feeds.values():
        watch = watches[feed.server]
        for status in _statuses(feed):
            log = watch.logs.get(status.name)
            state = _state(status)
            if log is None:
                out.append(
                    SourceStatus(
                        name=status.name, kind=feed.kind, server=feed.server, state=state, why=status.why_not, do=status.do, path=status.path
                    )
                )  # fmt: skip
                continue
            out.append(
                SourceStatus(
                    name=status.name,
                    kind=feed.kind,
                    server=feed.server,
                    format=log.scanner.format,
                    state=state,
                    why=status.why_not,
                    do=status.do,
                    path=status.path,
                    timezone=watch.zone_text,
                    lines=log.lines,
                    bytes=log.bytes,
                    sglang_lines=log.sglang_lines,
                    offset=status.offset,
                    size_bytes=status.size_bytes,
                    lag_bytes=status.lag_bytes,
                    rotations=status.rotations,
                    gaps=tuple(log.gaps),
                    gap_count=status.gaps,
                    from_start=log.from_start,
                    last_line_at_s=log.last_line_s,
                )
            )
    if gpus is not None:
        out.append(SourceStatus(name="gpus", kind=gpus.kind, state="reading" if gpus.is_up else "waiting", why=gpus.why, do=gpus.do))
    return out


def _state(status: Read) -> str:
    if status.has_ended:
        return "ended"
    if status.readable:
        return "reading"
    return "waiting" if status.is_late or status.why_not in ("", NOT_STARTED) else "failed"


def _statuses(feed: Feed) -> list[Read]:
    """One status a file: a pattern has several."""
    each = getattr(feed.source, "statuses", None)
    if each is not None:
        return list(each()) or [feed.source.status()]
    one = getattr(feed.source, "status", None)
    return [one()] if one is not None else []
