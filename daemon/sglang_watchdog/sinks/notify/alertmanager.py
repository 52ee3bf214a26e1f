"""Alertmanager's v2 API, with the duties of its clients: send firing alerts again and again with an end in the near
future, so that a dead sender resolves by itself; send resolved ones for a while; never change an alert's labels; tell
every peer.

What each peer was told is in the ledger, so that a restart of either side loses nothing.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from ...model.words import State
from .. import encode, ledger_reads
from ..ledger_reads import FindingFilter, FindingRow
from . import http, message
from .settings import AlertmanagerSettings

_BATCH: Final = 200
_MOST: Final = 5_000  # alerts of one daemon
_ENDS_AFTER_RESENDS: Final = 4
WITHDRAWN: Final = "withdrawn"  # what a peer was told of a finding that goes on firing, but that people have taken or silenced
ALIVE: Final = "SGLangWatchdogAlive"


@dataclass(frozen=True, slots=True)
class Alert:
    key: str  # the finding; "" for the alert that says we are alive
    state: str
    document: dict[str, Any]


def channel(settings: AlertmanagerSettings, url: str) -> str:
    """The name under which the ledger keeps what this peer was told."""
    return f"{settings.name} {url}"


def alerts(connection: sqlite3.Connection, settings: AlertmanagerSettings, url: str, *, now_s: float, external_url: str) -> list[Alert]:
    """What this peer must hear now: what is firing, and what was firing when it last heard. An alert whose finding was
    acknowledged or silenced since is ended there, as Alertmanager knows neither of ours; it comes back when the silence ends."""
    told = {
        str(key): (str(state), float(at))
        for key, state, at in connection.execute("SELECT key, state, at FROM delivered WHERE channel = ?", (channel(settings, url),))
    }
    firing = ledger_reads.findings(connection, FindingFilter(state=(State.FIRING.value,)), now_s=now_s, limit=_MOST).items
    heard = [key for key, (state, at_s) in told.items() if state == State.FIRING.value or now_s <= at_s + settings.resolved_for_s]
    over = [
        row
        for part in _parts(heard, 500)
        for row in ledger_reads.findings(
            connection,
            FindingFilter(id=tuple(part), state=(State.RESOLVED.value, State.EXPIRED.value)),
            now_s=now_s,
            limit=500,
        ).items
    ]
    ends_s = now_s + settings.resend_s * _ENDS_AFTER_RESENDS
    of_server = {name: dict(labels) for name, labels in settings.of_server}

    def told_now(row: FindingRow, ends_s: float | None) -> dict[str, Any]:
        return alert(row, ends_s, external_url, {**dict(settings.labels), **of_server.get(row.server, {})})

    result = []
    for row in firing:
        state, at_s = told.get(row.id, ("", 0.0))
        if not _is_taken(row) and (state == State.FIRING.value or _is_for(row, settings)):
            result.append(Alert(row.id, State.FIRING.value, told_now(row, ends_s)))
        elif _is_taken(row) and (state == State.FIRING.value or (state == WITHDRAWN and now_s <= at_s + settings.resolved_for_s)):
            result.append(Alert(row.id, WITHDRAWN, told_now(row, at_s if state == WITHDRAWN else now_s)))
    result += [Alert(row.id, row.state, told_now(row, None)) for row in over]
    if settings.alive_alert:
        result.append(Alert("", State.FIRING.value, alive(now_s, ends_s, external_url)))
    return result


def _is_for(row: FindingRow, settings: AlertmanagerSettings) -> bool:
    return not (row.is_historic or row.is_folded or settings.wanted.why_not(row))


def _is_taken(row: FindingRow) -> bool:
    return row.silence is not None or row.acknowledgement is not None


def alert(row: FindingRow, ends_s: float | None, external_url: str, further: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """One alert. Labels hold only what never changes while the finding lives; `further` never takes the place of one of ours."""
    document = json.loads(row.doc)
    starts = str(document["first_seen"] or document["last_seen"] or encode.time(0.0))
    ends = str(encode.time(ends_s) or document["resolved_at"] or document["last_seen"] or starts)
    labels = {
        **further,
        "alertname": "SGLangWatchdogFinding",
        "server": row.server,
        "topic": row.topic,
        "signature": row.signature,
        "severity": row.severity,
        "finding": row.id,
    }
    if document["scope"]["gpu_uuid"]:
        labels["gpu_uuid"] = document["scope"]["gpu_uuid"]
    return {
        "labels": labels,
        "annotations": {
            name: text
            for name, text in (
                ("summary", f"{row.server}: {document['title']}"),
                ("description", document["summary"]),
                ("evidence", message.first_evidence(document)),
                ("remediation", document["remediation"]),
            )
            if text
        },
        "startsAt": min(starts, ends),
        "endsAt": ends,
        **({"generatorURL": message.link(external_url, row.id)} if external_url else {}),
    }


def alive(now_s: float, ends_s: float, external_url: str) -> dict[str, Any]:
    """Always firing: route it to a dead man's switch, which pages when it stops coming."""
    return {
        "labels": {"alertname": ALIVE, "severity": "none"},
        "annotations": {"summary": "SGLang Watchdog is alive."},
        "startsAt": encode.time(now_s),
        "endsAt": encode.time(ends_s),
        **({"generatorURL": external_url} if external_url else {}),
    }


def push(settings: AlertmanagerSettings, url: str, batch: Sequence[Alert], *, timeout_s: float) -> None:
    """Raises:
    DeliveryFailed: this peer did not take them.
    """
    headers = {"content-type": "application/json", "user-agent": "sglang-watchdog"}
    if settings.token_file is not None:
        try:
            headers["authorization"] = "Bearer " + settings.token_file.read_text(encoding="utf-8").strip()
        except OSError as fault:
            raise http.DeliveryFailed(f"{settings.token_file}: {fault.strerror}") from fault
    for part in _parts(batch, _BATCH):
        body = encode.dumps([each.document for each in part]).encode()
        http.post(url.rstrip("/") + "/api/v2/alerts", body, headers, timeout_s=timeout_s, ca_file=settings.ca_file)


def remember(connection: sqlite3.Connection, settings: AlertmanagerSettings, url: str, batch: Iterable[Alert], now_s: float) -> None:
    """Keep what the peer heard; only a new state is written, so a quiet daemon writes nothing."""
    name = channel(settings, url)
    connection.executemany(
        "INSERT INTO delivered (channel, key, state, at) VALUES (?,?,?,?) ON CONFLICT (channel, key) DO UPDATE"
        " SET state = excluded.state, at = excluded.at WHERE delivered.state <> excluded.state",
        [(name, each.key, each.state, now_s) for each in batch if each.key],
    )
    connection.execute(
        "DELETE FROM delivered WHERE channel = ? AND state <> 'firing' AND at < ?",
        (name, now_s - settings.resolved_for_s - 3600.0),
    )


def _parts(items: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    return (items[start : start + size] for start in range(0, len(items), size))
