"""The status page: each server with its phase, findings with evidence and remedy, GPUs, what could not be judged,
sources.

Rendered here, whole, so that it also works without script; with script it follows the stream of changes.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

from fastapi import FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from ...model.finding import Coverage, Roofline, Run
from ...model.words import Answer, Phase, Severity, State
from .. import encode, metrics
from ..ledger_reads import FindingFilter, FindingRow
from ..state import Gpu, RankLoad, SourceStatus, View
from . import frame, page_flags
from .html import Markup, join, link, tag
from .parts import Parts

_SHOWN: Final = 300  # open findings on the page; all are in the API
_CLOSED_SHOWN: Final = 20
_OVER: Final = frozenset({Phase.STOPPED, Phase.CRASHED})
_LOW_POWER: Final = 0.45  # below it the bar takes the warning colour
Document = Mapping[str, Any]


def install(app: FastAPI, parts: Parts) -> None:
    @app.get("/", include_in_schema=False)
    async def status_page(request: Request) -> Response:
        if request.scope["state"].get("is_stranger"):
            return frame.stranger("SGLang Watchdog")
        return await run_in_threadpool(lambda: frame.respond("SGLang Watchdog", render(parts), follows=True))


def render(parts: Parts) -> Markup:
    """The page's main part."""
    view = parts.board.view()
    open_ones = parts.ledger.findings(FindingFilter(state=(State.FIRING.value, State.PENDING.value)), limit=_SHOWN)
    closed = parts.ledger.findings(FindingFilter(state=(State.RESOLVED.value, State.EXPIRED.value)), limit=_CLOSED_SHOWN)
    rows = [row for row in open_ones.items if row.server in view.servers]
    return tag(
        "main",
        _notices(view, parts),
        *(_server(view, name, [row for row in rows if row.server == name]) for name in view.servers),
        tag(
            "section",
            tag("h2", "No server is watched yet"),
            tag("p", view.ready_because or "None was found or configured."),
        )
        if not view.servers
        else None,
        _gpus(view.gpus),
        _sources(view.sources),
        _closed(closed.items),
        tag(
            "p",
            f"Release {view.version}, library {view.library_version or '(none)'}, clock {view.clock}, times UTC.",
            class_="soft",
        ),
    )


def _notices(view: View, parts: Parts) -> Markup | None:
    notices = [
        text
        for text in (
            view.ready_because and f"Not ready: {view.ready_because}",
            "" if parts.ledger.state.is_durable and not parts.ledger.state.because else f"{parts.ledger.state.because} {parts.ledger.state.do}",
            "" if view.reload.was_successful else f"The newest configuration was refused: {view.reload.error}",
            view.reload.needs_restart and f"Changed in the configuration, needs a restart: {', '.join(view.reload.needs_restart)}",
            *(
                f"Notifications to {name} fail: {channel.error}"
                for name, channel in sorted(parts.health().notifications.items())
                if channel.error
            ),
            parts.tokens.fault,
        )
        if text and text.strip()
    ]
    return tag("section", *(tag("p", notice, class_="stale") for notice in notices)) if notices else None


def _server(view: View, name: str, rows: list[FindingRow]) -> Markup:
    run = view.runs.get(name)
    version = metrics.version(run.release) if run else ""
    facts = [
        ("SGLang", version or "release unknown"),
        ("model", run.model if run and run.model else "unknown"),
        ("run since", _clock(encode.time(run.started_at_s) if run else None)),
    ]
    ready_s = run.timings_s.get("ready") if run else None
    if ready_s is not None:
        facts.append(("ready after", f"{ready_s:.0f} s"))
    return tag(
        "section",
        tag(
            "div",
            tag("h2", name),
            _badge(run.phase.value if run else "unknown", run.phase.value if run else ""),
            class_="head",
        ),
        _numbers(facts),
        _numbers(_as_of(run, _load(view.load.get(name, {})))),
        _roofline(run.roofline if run is not None else None),
        tag("h4", "Findings"),
        _findings(rows),
        page_flags.section(name, run) if run is not None else None,
        _unknowns(view.coverage.get(name, ())),
    )


def _as_of(run: Run | None, load: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Numbers of a server that is gone are the last it said, and say when that was."""
    if run is None or run.phase not in _OVER or not load:
        return load
    return [("last load, until", _clock(encode.time(run.ended_at_s))), *load]


def _load(load: Mapping[str, RankLoad]) -> list[tuple[str, str]]:
    ranks = list(load.values())

    def total(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    kv = [rank.kv_used_ratio for rank in ranks if rank.kv_used_ratio is not None]
    shown = [
        ("running", total(rank.running_requests for rank in ranks), "{:.0f}"),
        ("queued", total(rank.queue_requests for rank in ranks), "{:.0f}"),
        ("output tok/s", total(rank.decode_tokens_per_s for rank in ranks), "{:,.0f}"),
        ("KV used", max(kv) if kv else None, "{:.0%}"),
    ]
    return [(name, form.format(value)) for name, value, form in shown if value is not None]


def _roofline(known: Roofline | None) -> Markup | None:
    """One line: what was reached of what the memory allows; the sentence with all inputs stands behind it."""
    if known is None:
        return None
    if known.ceiling_low is None or known.share_high is None:
        short = f"unknown: {' and '.join(known.missing)}"
    elif known.share_low is None or known.ceiling_high is None:
        short = f"at most {known.share_high:.0%}"
    else:
        short = f"{known.share_low:.0%} to {known.share_high:.0%} of {known.ceiling_low:,.0f} to {known.ceiling_high:,.0f} tok/s"
    cure = f" Cure: {'; '.join(known.do)}." if known.do else ""
    line = tag("span", tag("span", "memory roofline", class_="soft"), " ", tag("b", short))
    return tag("details", tag("summary", line), tag("p", f"{known.text}.{cure}", class_="soft"))


def _numbers(facts: Iterable[tuple[str, str]]) -> Markup | None:
    shown = [tag("span", tag("span", name, class_="soft"), " ", tag("b", value)) for name, value in facts]
    return tag("div", *shown, class_="numbers") if shown else None


def _badge(word: str, kind: str = "") -> Markup:
    return tag("span", word, class_=f"badge {kind}".strip())


# --- findings -------------------------------------------------------------------------------------------------------


def _findings(rows: list[FindingRow]) -> Markup:
    documents = {row.id: json.loads(row.json()) for row in rows}
    folded: dict[str, list[Document]] = {}
    top: list[Document] = []
    for document in documents.values():
        cause = document["explained_by"]
        (folded.setdefault(cause, []) if cause in documents and cause != document["id"] else top).append(document)
    if not top and documents:  # causes that explain each other: show them all rather than none
        top, folded = list(documents.values()), {}
    if not top:
        return tag("p", "Nothing is firing.", class_="quiet")
    return join(finding(document, folded) for document in sorted(top, key=_worst_first))


def _worst_first(document: Document) -> tuple[int, str]:
    return -Severity(document["severity"]).rank, document["title"]


def finding(document: Document, folded: Mapping[str, list[Document]], depth: int = 0) -> Markup:
    """One finding as a card; what it explains lies folded inside."""
    id, is_over = document["id"], document["state"] in ("resolved", "expired")
    effects = sorted(folded.get(id, ()), key=_worst_first) if depth < 5 else []
    word = document["acknowledgement"]
    return tag(
        "article",
        tag(
            "div",
            tag("h3", document["title"]),
            _badge(document["severity"], "severity"),
            _badge(document["display_state"]),
            *(_badge(rank) for rank in document["scope"]["ranks"][:8]),
            *(_badge(f"GPU {gpu}") for gpu in document["scope"]["gpus"][:8]),
            class_="head",
        ),
        tag("p", document["summary"]) if document["summary"] and document["summary"] != document["title"] else None,
        tag("p", f"Taken by {word['by'] or 'somebody'} at {_clock(word['at'])}. {word['note']}", class_="soft") if word else None,
        _evidence(document["evidence"]),
        tag(
            "details",
            tag("summary", "What to do"),
            tag("p", document["remediation"], class_="steps"),
            tag("p", document["explanation"], class_="steps soft"),
            tag("p", *(join([link(each, each), " "]) for each in document["references"]), class_="soft"),
            id=f"do-{id}",
        ),
        tag(
            "details",
            tag("summary", f"Explains {len(effects)} more"),
            *(finding(each, folded, depth + 1) for each in effects),
            id=f"folded-{id}",
        )
        if effects
        else None,
        tag(
            "p",
            f"{_clock(document['first_seen'])} to {_clock(document['last_seen'])}, seen {document['count']}×, ",
            link(f"./api/v1/findings/{quote(id, safe='')}", document["signature"]),
            " ",
            None if is_over or word else tag("button", "Acknowledge", class_="take", data_take=id),
            class_="soft",
        ),
        class_=document["severity"] + (" over" if is_over else ""),
        id=f"f-{id}",
    )


def _evidence(items: Iterable[Document]) -> Markup:
    return tag("ul", *(tag("li", evidence(each)) for each in items), class_="evidence")


def evidence(item: Document) -> Markup:
    """A piece of evidence in words, with the place where it can be looked up."""
    if item["kind"] == "line":
        return join([_place(item), tag("pre", item["text"])])
    if item["kind"] == "absence":
        witness = item["witness"]
        return join(
            [
                f"Not said from {_clock(item['from'])} to {_clock(item['until'])}: ",
                str(item["awaited"]),
                join([", though such lines reach us: ", _place(witness)]) if witness else None,
            ]
        )
    if item["kind"] == "samples":
        gpus = ", ".join(str(gpu) for gpu in item["gpus"])
        median = "unknown" if item["median"] is None else f"{item['median']:.4g}"
        return join(
            [
                tag("code", item["metric"]),
                f" of GPU {gpus}: median {median} of {item['n']} samples, {_clock(item['from'])} to {_clock(item['until'])}",
            ]
        )
    place = _place(item) if item["line"] is not None else tag("code", item["source"], class_="place")
    return join([tag("code", f"{item['name']} = {encode.dumps(item['value'])}"), " ", place])


def _place(item: Document) -> Markup:
    return tag("code", f"{item['source']}:{item['line']}", class_="place")


def _closed(rows: Iterable[FindingRow]) -> Markup | None:
    cards = [finding(json.loads(row.json()), {}) for row in rows]
    if not cards:
        return None
    return tag(
        "section",
        tag(
            "details",
            tag("summary", f"{_count(len(cards), 'finding')} already over (newest first)"),
            *cards,
            id="closed",
        ),
    )


# --- machine ---------------------------------------------------------------------------------------------------------


def _unknowns(verdicts: Iterable[Coverage]) -> Markup | None:
    """What could not be judged, by its cure: many signatures often lack the same thing."""
    cures: dict[tuple[str, str], list[str]] = {}
    counted: dict[Answer, int] = dict.fromkeys(Answer, 0)
    for each in verdicts:
        counted[each.verdict] += 1
        if each.verdict is Answer.UNKNOWN:
            cures.setdefault((each.do, each.because), []).append(each.signature)
    if not cures:
        return None
    ranked = sorted(cures.items(), key=lambda entry: (not entry[0][0], -len(entry[1]), entry[0]))
    return tag(
        "details",
        tag("summary", f"{_count(counted[Answer.UNKNOWN], 'signature')} could not judge this run"),
        tag(
            "div",
            tag(
                "table",
                tag("tr", tag("th", "signatures"), tag("th", "because"), tag("th", "do")),
                *(
                    tag(
                        "tr",
                        tag("td", len(signatures), title=", ".join(signatures[:50])),
                        tag("td", because, class_="free"),
                        tag("td", do, class_="free"),
                    )
                    for (do, because), signatures in ranked[:30]
                ),
            ),
            class_="wide",
        ),
        id="unknown",
    )


def _gpus(gpus: Iterable[Gpu]) -> Markup | None:
    rows = [_gpu(each) for each in gpus]
    if not rows:
        return None
    head = tag("tr", *(tag("th", word) for word in ("GPU", "rank", "power", "SM", "memory", "°C", "held back by")))
    return tag("section", tag("h2", "GPUs"), tag("div", tag("table", head, *rows), class_="wide"))


def _gpu(gpu: Gpu) -> Markup:
    latest = gpu.latest
    if latest.error:
        return tag("tr", tag("td", f"{gpu.gpu} {gpu.name or ''}"), tag("td", latest.error, class_="free stale", colspan=6))
    reasons = [each for each in latest.throttle_reasons or () if each != "GpuIdle"]
    return tag(
        "tr",
        tag("td", f"{gpu.gpu} {gpu.name or ''}", title=gpu.uuid),
        tag("td", ", ".join(f"{server} {rank}".strip() for server, rank in gpu.placements) or "–"),
        tag(
            "td",
            _bar(gpu.power_ratio, is_used=bool(gpu.placements)),
            " ",
            f"{_whole(latest.power_w)} / {_whole(latest.power_limit_w)} W",
        ),
        tag("td", "–" if latest.sm_util is None else f"{latest.sm_util:.0f} %"),
        tag(
            "td",
            "–"
            if latest.mem_used_mib is None
            else f"{latest.mem_used_mib / 1024:.0f}"
            + ("" if latest.mem_total_mib is None else f" / {latest.mem_total_mib / 1024:.0f}")
            + " GiB",
        ),
        tag("td", _whole(latest.temp_c)),
        tag("td", ", ".join(reasons) or "–"),
    )


def _bar(ratio: float | None, *, is_used: bool) -> Markup | None:
    if ratio is None:
        return None
    width = min(max(ratio, 0.0), 1.0) * 100
    return tag(
        "svg",
        tag("rect", width=f"{width:.0f}", height="10"),
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{ratio:.0%} of the power limit",
        class_="bar low" if is_used and ratio < _LOW_POWER else "bar",
    )


def _whole(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f}"


def _sources(sources: Iterable[SourceStatus]) -> Markup | None:
    rows = [
        tag(
            "tr",
            tag("td", each.name, tag("div", "; ".join(part for part in (each.why, each.do) if part), class_="soft") if each.why else None, class_="free"),
            tag("td", _badge(each.state, each.state)),
            tag("td", f"{each.lines:,} lines, {each.bytes / 1e6:,.1f} MB" if each.server else "–"),
            tag("td", "–" if each.lag_bytes is None else f"{each.lag_bytes:,} B behind"),
            tag("td", _count(each.gap_count, "gap")),
            tag("td", "–" if each.last_line_at_s is None else _clock(encode.time(each.last_line_at_s))),
        )
        for each in sources
    ]
    return tag("section", tag("h2", "Sources"), tag("div", tag("table", *rows), class_="wide")) if rows else None


def _clock(time: str | None) -> str:
    return "an unknown time" if time is None else time.replace("T", " ").removesuffix("Z")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
