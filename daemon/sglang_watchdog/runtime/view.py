"""Puts what sources and scanners count together for the board."""

from collections.abc import Mapping

from ..sinks.state import SourceStatus
from .feeds import Feed, GpuFeed
from .watch import ServerWatch


def source_statuses(watches: Mapping[str, ServerWatch], feeds: Mapping[str, Feed], gpus: GpuFeed | None) -> list[SourceStatus]:
    """One status a source, logs first."""
    out = []
    for name, feed in feeds.items():
        watch, status = watches[feed.server], feed.source.status()
        log = watch.logs[name]
        out.append(
            SourceStatus(
                name=name,
                kind=feed.kind,
                server=feed.server,
                format=log.scanner.format,
                state="reading" if status.readable else "waiting",
                why=status.why_not,
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
        out.append(SourceStatus(name="gpus", kind="nvml", state="reading" if gpus.is_up else "waiting", why=gpus.why))
    return out
