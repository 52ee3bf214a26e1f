"""The launch flags of a server's current run, as a folded part of the status page."""

from collections.abc import Iterable
from typing import Final

from ...model.finding import LineEvidence, Run
from ...model.flags import DecisionRow, FlagRow, FlagTable, SuggestionRow
from ...model.observation import Json
from .. import encode
from .html import Markup, join, tag

_WORSE: Final = ("overridden", "conflict", "dead", "no-op", "condition-unmet", "deprecated", "redundant", "unknown", "acts")  # first what needs a look
_IDLE: Final = frozenset({"acts", "unknown"})


def section(server: str, run: Run) -> Markup | None:
    """Flags, decisions and suggestions; None before they were judged."""
    table = run.flags
    if table is None:
        return None
    spoken = sum(row.verdict not in _IDLE for row in table.rows)
    head = f"Launch flags: {len(table.rows)} set" if table.rows else "Launch flags"
    return tag(
        "details",
        tag("summary", head + (f", {spoken} to look at" if spoken else "")),
        tag("p", _known_from(table), class_="soft"),
        _flags(table.rows),
        _decisions(table.decisions),
        _suggestions(table.suggestions),
        id=f"flags-{server}",
    )


def _known_from(table: FlagTable) -> Markup:
    launch = table.launch
    told = f"Asked: from the {launch.source}." if launch is not None else "The launch command is not known: flags are shown that the dump gives away."
    releases = f" Judged by SGLang {' to '.join(dict.fromkeys((table.releases[0], table.releases[-1])))}." if table.releases else ""
    rest = f" {table.described} flags of it are described, {table.undescribed} known by declaration only." if table.releases else ""
    because = f" {table.because[:1].upper()}{table.because[1:]}." if table.because else ""
    return join([told, because, releases, rest])


def _flags(rows: Iterable[FlagRow]) -> Markup | None:
    ordered = sorted(rows, key=lambda row: (_WORSE.index(row.verdict) if row.verdict in _WORSE else 0, row.flag))
    if not ordered:
        return None
    return _table(
        ("flag", "asked", "runs with", "verdict", "why", "what to do"),
        (
            (
                tag("code", row.flag, title=row.source),
                _value(row.asked) if row.was_asked else "–",
                _value(row.runs_with),
                tag("span", row.verdict, class_="badge" if row.verdict in _IDLE else "badge waiting"),
                row.because,
                row.do,
            )
            for row in ordered
        ),
    )


def _decisions(rows: Iterable[DecisionRow]) -> Markup | None:
    shown = [
        (
            row.about,
            join([tag("code", f"{row.argument} = {_value(row.in_dump)}")]) if row.argument else "–",
            _value(row.value) if row.value is not None else "not known",
            row.how,
            join([row.because, *(part for item in row.evidence for part in (" ", _place(item))), f" ({row.source})" if row.source else ""]),
        )
        for row in rows
    ]
    if not shown:
        return None
    return join([tag("h4", "Decided by the server"), _table(("what", "dump says", "in use", "known by", "how we know"), shown)])


def _place(item: object) -> Markup:
    if isinstance(item, LineEvidence):
        return join([tag("code", f"{item.source}:{item.line}", class_="place"), tag("pre", item.text)])
    return tag("code", f"{getattr(item, 'source', '')}:{getattr(item, 'line', None) or ''}".rstrip(":"), class_="place")


def _suggestions(rows: Iterable[SuggestionRow]) -> Markup | None:
    shown = [(tag("code", row.flag, title=row.source), row.because, row.do) for row in rows]
    return join([tag("h4", "Would help here and is not set"), _table(("flag", "helps because", "what to do"), shown)]) if shown else None


def _table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> Markup:
    body = [tag("tr", *(tag("td", cell, class_="free") for cell in row)) for row in rows]
    return tag("div", tag("table", tag("tr", *(tag("th", word) for word in head)), *body), class_="wide")


def _value(value: Json) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else encode.dumps(encode.value(value))
