"""The report for people: on a terminal in colour, the worst first, causes above their symptoms."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ..engine.words import gpus_named
from ..model.finding import AbsenceEvidence, Evidence, FactEvidence, Finding, LineEvidence, Run, SamplesEvidence
from ..model.words import Answer, Phase, Severity, State
from ..sinks.encode import time
from .check import Report

WIDTH: Final = 100
_HANGS: Final = ("hang.no-progress", "hang.health-check", "hang.gpu-spin", "hang.rank-missing", "hang.watchdog")  # of these a run does nothing more
_SHOWN: Final = 6  # pieces of evidence
_MARK: Final = {Severity.CRITICAL: "✖ CRITICAL", Severity.WARNING: "▲ WARNING", Severity.INFO: "• INFO"}
_COLOUR: Final = {Severity.CRITICAL: "31;1", Severity.WARNING: "33;1", Severity.INFO: "36"}


def render(report: Report, *, colour: bool) -> str:
    """The whole text, ended by a newline."""
    lines: list[str] = []
    for source in report.sources:
        lines.append(
            f"{source.name}: {source.lines:,} lines, {source.sglang_lines:,} of SGLang's, {source.format}, stamps read as {report.timezone}"
        )
    for run in report.runs:
        lines += ["", *_run(run, report.findings, colour)]
    loose = [finding for finding in report.findings if finding.run is None]
    if loose:
        lines += ["", _paint("Not tied to a run", "1", colour)]
        lines += _findings(loose, report.findings, colour)
    if not report.findings:
        lines += ["", "Nothing found." if report.runs else "No SGLang record found."]
    lines += ["", *_coverage(report)]
    lines.append(
        f"{sum(s.bytes for s in report.sources) / 1e6:.1f} MB judged in {report.seconds:.2f} s "
        f"with {len({c.signature for c in report.coverage})} signatures (library {report.library})."
    )
    return "\n".join(lines) + "\n"


def _run(run: Run, findings: Sequence[Finding], colour: bool) -> Iterator[str]:
    release = run.release
    version = (
        "release unknown"
        if release.min is None
        else (f"SGLang {release.min}" if release.min == release.max else f"SGLang {release.min} to {release.max}")
    )
    started = time(run.started_at_s) or "unknown start"
    yield _paint(
        f"Run {run.id[:8]}: {run.model or 'unknown model'}, {version} ({release.source}), from {started}, {_now(run, findings)}",
        "1",
        colour,
    )
    facts = []
    if "ready" in run.timings_s:
        facts.append(f"ready after {run.timings_s['ready']:.0f} s")
    if run.load.get("running_requests_max"):
        facts.append(f"at most {run.load['running_requests_max']:.0f} running requests")
    if run.load.get("decode_tokens_per_s"):
        facts.append(f"{run.load['decode_tokens_per_s']:,.0f} tokens/s (median of the Decode lines at full load)")
    if run.gpus:
        facts.append(f"{gpus_named(list(run.gpus))} ({run.placement_source})")
    if facts:
        yield "  " + "; ".join(facts)
    own = [finding for finding in findings if finding.run == run.id]
    if run.roofline is not None:
        if not any(finding.topic.endswith("-roofline") for finding in own):  # such a finding says the sentence itself
            yield from _wrapped(f"Roofline: {run.roofline.text}.", "  ")
        if run.roofline.do:
            yield from _wrapped(f"To know it better: {'; '.join(run.roofline.do)}.", "  ")
    yield from _findings(own, findings, colour)


def _now(run: Run, findings: Sequence[Finding]) -> str:
    """Where the run is. One that hangs prints what an idle one prints, nothing; the findings tell them apart."""
    hung = [f.first_seen_s for f in findings if f.run == run.id and f.topic.startswith(_HANGS) and f.state is State.FIRING]
    if run.phase not in (Phase.SERVING, Phase.IDLE) or not hung:
        return f"now {run.phase.value}"
    return f"now hung, as found at {time(min((at for at in hung if at is not None), default=None)) or 'an unknown time'}"


def _findings(findings: Sequence[Finding], every: Iterable[Finding], colour: bool) -> Iterator[str]:
    """Causes first, each with what it explains below it; alone standing ones by severity.

    A symptom whose cause stands elsewhere (its GPU's finding, the restart loop) is told under that; here is where to look.
    """
    own, by_id = {finding.id for finding in findings}, {finding.id: finding for finding in every}
    tops = [finding for finding in findings if finding.explained_by not in own]
    for finding in sorted(tops, key=lambda f: -_weight(f, by_id)):
        yield ""
        cause = by_id.get(finding.explained_by or "")
        if cause is None:
            yield from _finding(finding, "  ", colour)
            yield from _symptoms(finding, by_id, "    ", colour, {finding.id})
        else:
            yield f"  {_paint(_MARK[finding.severity], _COLOUR[finding.severity], colour)} {finding.title} (part of: {cause.title})"


def _symptoms(cause: Finding, by_id: dict[str, Finding], indent: str, colour: bool, seen: set[str]) -> Iterator[str]:
    for name in cause.explains:
        symptom = by_id.get(name)
        if symptom is None or name in seen:
            continue
        seen.add(name)
        yield f"{indent}└ explains {_paint(_MARK[symptom.severity], _COLOUR[symptom.severity], colour)} {symptom.topic}"
        yield from _wrapped(symptom.summary, indent + "  ")
        yield from _evidence(symptom.evidence[:3], indent + "  ")
        yield from _symptoms(symptom, by_id, indent + "  ", colour, seen)


def _weight(finding: Finding, by_id: dict[str, Finding]) -> int:
    """A cause counts as much as the worst thing it explains."""
    explained = [by_id[name].severity.rank for name in finding.explains if name in by_id]
    return max([finding.severity.rank, *explained])


def _finding(finding: Finding, indent: str, colour: bool) -> Iterator[str]:
    state = "" if finding.state.value == "firing" else f" [{finding.state.value}]"
    yield f"{indent}{_paint(_MARK[finding.severity], _COLOUR[finding.severity], colour)} {finding.title}{state}"
    if finding.summary.rstrip(".") != finding.title.rstrip("."):
        yield from _wrapped(finding.summary, indent + "  ")
    where = [f"ranks {', '.join(finding.ranks)}"] if finding.ranks else []
    where += [gpus_named(finding.gpus)] if finding.gpus else []
    counted = f", seen {finding.count} times" if finding.count > 1 else ""
    yield f"{indent}  {finding.topic} · {finding.signature}{' · ' + ' · '.join(where) if where else ''}{counted}"
    yield from _evidence(finding.evidence[:_SHOWN], indent + "  ")
    if len(finding.evidence) > _SHOWN:
        yield f"{indent}  | … {len(finding.evidence) - _SHOWN} more (--format json shows all)"
    for line in finding.remediation.strip().splitlines():
        yield from _wrapped(line, indent + "  ", indent + "     ")


def _evidence(evidence: Iterable[Evidence], indent: str) -> Iterator[str]:
    for item in evidence:
        yield f"{indent}| {describe(item)}"


def describe(item: Evidence) -> str:
    """One piece of evidence in one line, with where it stands."""
    match item:
        case LineEvidence():
            return f"{item.source}:{item.line}: {_short(item.text)}"
        case AbsenceEvidence():
            witness = f"; such lines do reach this log: {item.witness.source}:{item.witness.line}" if item.witness else ""
            return f"not said from {time(item.from_s) or '?'} to {time(item.until_s) or '?'}: {item.awaited}{witness}"
        case SamplesEvidence():
            gpus = ", ".join(map(str, item.gpus))
            return f"{item.metric} of GPU {gpus}: median {item.median:g} over {item.n} samples to {time(item.until_s)}"
        case FactEvidence():
            where = f"{item.source}:{item.line}" if item.line else item.source
            return f"{item.name} = {_short(str(item.value))} ({where})"


def _coverage(report: Report) -> Iterator[str]:
    unknown = [entry for entry in report.coverage if entry.verdict is Answer.UNKNOWN]
    judged = sum(entry.verdict in (Answer.YES, Answer.NO) for entry in report.coverage)
    aside = sum(entry.verdict is Answer.NOT_APPLICABLE for entry in report.coverage)
    yield f"Coverage: {judged} verdicts, {aside} not applicable, {len(unknown)} unknown."
    cures: dict[str, int] = {}
    told = {"; ".join(run.roofline.do) for run in report.runs if run.roofline is not None}
    for entry in unknown:
        if entry.do and entry.do not in told:
            cures[entry.do] = cures.get(entry.do, 0) + 1
    for cure, count in sorted(cures.items(), key=lambda item: (-item[1], item[0]))[:3]:
        yield f"  {count} could be told: {cure}."


def _wrapped(text: str, first: str, rest: str | None = None) -> Iterator[str]:
    yield from textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest if rest is not None else first)


def _short(text: str, most: int = 150) -> str:
    clean = "".join(character if character.isprintable() else "·" for character in text)
    return clean if len(clean) <= most else clean[: most - 1] + "…"


def _paint(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text
