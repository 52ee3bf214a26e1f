"""The report as Markdown, to paste into a ticket. Log text stands in code spans that it cannot leave."""

from collections.abc import Iterator

from ..model.finding import Finding, LineEvidence
from ..model.words import Answer
from ..sinks.encode import time
from .check import Report
from .report_text import describe


def render(report: Report) -> str:
    lines = ["# SGLang Watchdog report", ""]
    lines += [f"- `{_code(s.name)}`: {s.lines:,} lines, {s.sglang_lines:,} of SGLang's ({s.format}, {report.timezone})" for s in report.sources]
    for run in report.runs:
        version = run.release.min if run.release.min == run.release.max else f"{run.release.min} to {run.release.max}"
        lines += [
            "",
            f"## Run `{run.id[:8]}`: {_text(run.model or 'unknown model')}",
            "",
            f"SGLang {version} ({run.release.source}), started {time(run.started_at_s) or 'unknown'}, {run.phase.value}",
        ]
        for finding in (f for f in report.findings if f.run == run.id):
            lines += _finding(finding, report)
    loose = [finding for finding in report.findings if finding.run is None]
    if loose:
        lines += ["", "## Not tied to a run"]
        for finding in loose:
            lines += _finding(finding, report)
    if not report.findings:
        lines += ["", "Nothing found."]
    unknown = sum(entry.verdict is Answer.UNKNOWN for entry in report.coverage)
    lines += ["", f"{len(report.coverage)} verdicts, {unknown} of them unknown."]
    return "\n".join(lines) + "\n"


def _finding(finding: Finding, report: Report) -> Iterator[str]:
    yield ""
    yield f"### {finding.severity.value.upper()}: {_text(finding.title)}"
    yield ""
    yield _text(finding.summary)
    yield ""
    cause = next((f for f in report.findings if f.id == finding.explained_by), None)
    if cause is not None:
        yield f"Explained by: {_text(cause.title)}"
        yield ""
    first = time(finding.first_seen_s) or "unknown"
    yield f"`{finding.topic}` · `{finding.signature}` · {finding.state.value} · first seen {first}"
    yield ""
    for item in finding.evidence:
        text = f"{item.source}:{item.line}: {item.text}" if isinstance(item, LineEvidence) else describe(item)
        yield f"- `{_code(text[:300])}`"
    yield ""
    yield from (_text(line) for line in finding.remediation.strip().splitlines())


def _code(text: str) -> str:
    """Safe inside single backticks: no backtick, no line end."""
    return "".join(c if c.isprintable() else " " for c in text).replace("`", "'")


def _text(text: str) -> str:
    """Safe as running text: nothing becomes a link, an image or markup."""
    for character in "\\`*_[]<>#|!":
        text = text.replace(character, "\\" + character)
    return " ".join(text.split())
