"""JSON of what is only on the board: GPUs, sources, servers and the daemon itself."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ...model.finding import Release
from ...model.words import Phase, Severity, State
from .. import encode
from ..encode import Document
from ..ledger import Ledger
from ..metrics import Health
from ..state import Gpu, Reload, SourceStatus, View


def index(openapi: Mapping[str, Any], prefix: str) -> Document:
    """The API's addresses with their methods, out of its description."""
    resources = [
        {"path": prefix + path, "methods": [method.upper() for method in operations], "summary": _first_sentence(operations)}
        for path, operations in openapi["paths"].items()
        if path.startswith("/api/v1/") and path != "/api/v1/"
    ]
    return {"resources": resources, "description": f"{prefix}/openapi.json", "documentation": f"{prefix}/docs"}


def _first_sentence(operations: Mapping[str, Any]) -> str:
    first = next(iter(operations.values()))
    return str(first.get("description", "")).partition(".")[0].replace("\n", " ") or str(first["summary"])


def gpu(item: Gpu) -> Document:
    return {
        "gpu": item.gpu,
        "uuid": item.uuid,
        "name": item.name,
        "power_ratio": encode.number(item.power_ratio),
        "placements": [{"server": server, "rank": rank} for server, rank in item.placements],
        "latest": encode.sample(item.latest),
    }


def source(item: SourceStatus) -> Document:
    return {
        **encode.source(
            item.name,
            format=item.format,
            lines=item.lines,
            bytes=item.bytes,
            sglang_lines=item.sglang_lines,
            timezone=item.timezone,
            gaps=item.gaps,
        ),
        "kind": item.kind,
        "server": item.server,
        "state": item.state,
        "why": item.why,
        "do": item.do,
        "path": item.path,
        "offset": item.offset,
        "size_bytes": item.size_bytes,
        "lag_bytes": item.lag_bytes,
        "rotations": item.rotations,
        "gap_count": item.gap_count,
        "from_start": item.from_start,
        "last_line_at": encode.time(item.last_line_at_s),
        "watermark": encode.time(item.watermark_s),
    }


def server(view: View, name: str) -> Document:
    run = view.runs.get(name)
    firing = Counter(each.severity for each in view.findings if each.server == name and each.state is State.FIRING)
    return {
        "name": name,
        "phase": (run.phase if run else Phase.UNKNOWN).value,
        "run": run.id if run else None,
        "model": run.model if run else "",
        "sglang_version": encode.release(run.release if run else Release()),
        "firing": {each.value: firing[each] for each in (Severity.CRITICAL, Severity.WARNING, Severity.INFO)},
    }


def reload(item: Reload) -> Document:
    return {
        "successful": item.was_successful,
        "at": encode.time(item.at_s),
        "error": item.error,
        "changed": list(item.changed),
        "needs_restart": list(item.needs_restart),
    }


def daemon(view: View, ledger: Ledger, health: Health, token_fault: str, now_s: float) -> Document:
    oldest, newest = ledger.change_range()
    return {
        "version": view.version,
        "library": view.library_version,
        "started_at": encode.time(view.started_at_s),
        "now": encode.time(now_s),
        "clock": view.clock,
        "ready": not view.ready_because,
        "awaited": view.ready_because,
        "servers": [server(view, name) for name in view.servers],
        "ledger": {
            "durable": ledger.state.is_durable,
            "because": ledger.state.because,
            "do": ledger.state.do,
            "bytes": ledger.used_bytes(),
            "backlog": ledger.backlog,
            "oldest_change": oldest,
            "newest_change": newest,
        },
        "reload": reload(view.reload),
        "notifications": [
            {
                "channel": name,
                "sent": one.sent,
                "failed": one.failed,
                "waiting": one.waiting,
                "dead_letters": one.dead,
                "error": one.error,
                "sent_at": encode.time(one.sent_s),
            }
            for name, one in sorted(health.notifications.items())
        ],
        "tokens_fault": token_fault,
        "engine_errors": view.engine_errors,
        "nvml_up": bool(view.nvml_up),
    }
