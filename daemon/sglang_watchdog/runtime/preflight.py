"""What a plan asks for that can never work, found before anything is started, and what it may not mean. A log that is late is not among it."""

import os
import shlex
import time
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from .plan import Plan

_OLD_S: Final = 3600.0  # a server that serves or is asked for its health writes more often


def refusals(plan: Plan) -> list[str]:
    """One text for each fault: what, where, what to do."""
    return [*_signatures(plan), *_recording(plan), *_logs(plan)]


def _signatures(plan: Plan) -> list[str]:
    out = []
    for folder in plan.signatures.folders:
        if not folder.is_dir():
            state = "is a file" if folder.exists() else "does not exist"
            out.append(f"signatures: the folder {folder} {state}; make it, or take it out of --signatures and `signatures: {{paths: […]}}`")
        elif not os.access(folder, os.R_OK | os.X_OK):
            out.append(f"signatures: the folder {folder} may not be read by this user; give it the right, or take it out")
    return out


def _recording(plan: Plan) -> list[str]:
    if not plan.telemetry.startswith("replay:"):
        return []
    path = Path(plan.telemetry.removeprefix("replay:"))
    help_ = "name a recording (sglang-watchdog run --record FILE makes one), or --telemetry nvml|none; `touch` it if it is yet to be written"
    if not path.exists():
        return [f"telemetry: the recording {path} does not exist; {help_}"]
    if path.is_dir() or not os.access(path, os.R_OK):
        return [f"telemetry: the recording {path} {'is a folder' if path.is_dir() else 'may not be read by this user'}; {help_}"]
    return []


def _logs(plan: Plan) -> list[str]:
    return [
        f"server {server.name}: the log {log.where} is a folder; name the file in it, or a pattern: {log.where.rstrip('/')}/*.log"
        for server in plan.servers
        for log in server.logs
        if os.path.isdir(log.where)
    ]


def doubts(plan: Plan) -> list[str]:
    """What can be done and is hardly meant: an address that is never asked, one log for two servers, logs that nobody writes any more."""
    return [*_unasked(plan), *_shared(plan), *_old(plan)]


def _unasked(plan: Plan) -> list[str]:
    return [
        f"server {server.name}: {server.url} is not on this machine, and only servers on loopback are asked; take `url` out, or "
        "run a watchdog beside that server"
        for server in plan.servers
        if server.url is not None and (server.probe or server.metrics) and not _is_here(urlsplit(server.url).hostname or "")
    ]


def _is_here(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _shared(plan: Plan) -> list[str]:
    owners: dict[str, list[str]] = {}
    for server in plan.servers:
        for log in server.logs:
            owners.setdefault(log.where, []).append(server.name)
    return [
        f"{where} is the log of {' and '.join(names)}: each will be judged by it; give each server a log of its own"
        for where, names in owners.items()
        if len(set(names)) > 1
    ]


def _old(plan: Plan) -> list[str]:
    """Live, silence is taken for a server that hangs."""
    if plan.clock != "wall":
        return []
    out = []
    for log in [log.where for server in plan.servers for log in server.logs if os.path.isfile(log.where)]:
        age_s = time.time() - os.path.getmtime(log)
        if age_s > _OLD_S and os.path.getsize(log):
            age = f"{age_s / 86_400:.0f} days" if age_s > 2 * 86_400 else f"{age_s / 3600:.0f} hours"
            out.append(f"{log} was last written {age} ago; if its server has ended, this judges it better: sglang-watchdog check {shlex.quote(log)}")
    return out
