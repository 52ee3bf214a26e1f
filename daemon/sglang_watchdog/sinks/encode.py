"""What the product says as JSON: one explicit function for each type, the same for `check`, the API, the ledger and the
stream.

Byte for byte deterministic: keys in a fixed order, mappings sorted by name, times RFC 3339 UTC (whole seconds, or
milliseconds when there is a fraction), None as null, no NaN. Nothing here knows HTTP or files.
"""

import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from ..model.finding import (
    AbsenceEvidence,
    Coverage,
    Evidence,
    FactEvidence,
    Finding,
    LineEvidence,
    Release,
    Roofline,
    Run,
    SamplesEvidence,
)
from ..model.flags import DecisionRow, FlagRow, FlagTable
from ..model.observation import Gap, Json, Sample
from ..model.readings import SAMPLE_FIELDS
from ..model.signature import Signature

Document: TypeAlias = dict[str, Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS: Final = -62_135_596_800_000  # 0001-01-01, what datetime can hold
_LAST_MS: Final = 253_402_300_799_999  # 9999-12-31T23:59:59.999


def time(at_s: float | None) -> str | None:
    """Unix seconds as RFC 3339 UTC, rounded to the millisecond; None for None and for what is no time (NaN,
    infinity)."""
    if at_s is None or not math.isfinite(at_s):
        return None
    at_ms = min(max(round(at_s * 1000), _FIRST_MS), _LAST_MS)
    moment = _EPOCH + timedelta(milliseconds=at_ms)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")  # glibc prints years below 1000 without leading zeros
    return f"{text}.{at_ms % 1000:03d}Z" if at_ms % 1000 else f"{text}Z"


def value(item: Json) -> Json:
    """A value from a log or a probe made safe for JSON: infinities and NaN become text, mappings are sorted."""
    if isinstance(item, float) and not math.isfinite(item):
        return str(item)
    if isinstance(item, Mapping):
        return {str(name): value(item[name]) for name in sorted(item, key=str)}
    if isinstance(item, list | tuple):
        return [value(each) for each in item]
    return item


def number(item: float | None) -> float | None:
    """A measured number; None where it was not read or is no number."""
    return item if item is not None and math.isfinite(item) else None


def numbers(items: Mapping[str, float]) -> Document:
    return {name: number(items[name]) for name in sorted(items)}


def evidence(item: Evidence) -> Document:
    if isinstance(item, LineEvidence):
        return {
            "kind": "line",
            "source": item.source,
            "line": item.line,
            "offset": item.offset,
            "text": item.text,
            "at": time(item.at_s),
        }
    if isinstance(item, AbsenceEvidence):
        return {
            "kind": "absence",
            "awaited": item.awaited,
            "from": time(item.from_s),
            "until": time(item.until_s),
            "witness": _pointer(item.witness),
            "opportunity": _pointer(item.opportunity),
        }
    if isinstance(item, SamplesEvidence):
        return {
            "kind": "samples",
            "metric": item.metric,
            "gpus": list(item.gpus),
            "from": time(item.from_s),
            "until": time(item.until_s),
            "median": number(item.median),
            "n": item.n,
        }
    return {"kind": "fact", "name": item.name, "value": value(item.value), "source": item.source, "line": item.line}


def _pointer(line: LineEvidence | None) -> Document | None:
    if line is None:
        return None
    return {"source": line.source, "line": line.line, "offset": line.offset, "text": line.text}


def finding(item: Finding) -> Document:
    """Acknowledgement and silence are not part of it: they belong to the people, not to the evidence (ledger_reads.py
    adds them)."""
    return {
        "id": item.id,
        "signature": item.signature,
        "revision": item.revision,
        "topic": item.topic,
        "severity": item.severity.value,
        "state": item.state.value,
        "server": item.server,
        "run": item.run,
        "scope": {
            "kind": item.scope.value,
            "ranks": list(item.ranks),
            "gpus": list(item.gpus),
            "gpu_uuid": item.gpu_uuid,
        },
        "title": item.title,
        "summary": item.summary,
        "first_seen": time(item.first_seen_s),
        "last_seen": time(item.last_seen_s),
        "resolved_at": time(item.resolved_s),
        "count": item.count,
        "reopened": item.reopened,
        "evidence": [evidence(each) for each in item.evidence],
        "explains": list(item.explains),
        "explained_by": item.explained_by,
        "explanation": item.explanation,
        "remediation": item.remediation,
        "references": list(item.references),
    }


def release(item: Release) -> Document:
    return {"min": item.min, "max": item.max, "source": item.source}


def run(item: Run) -> Document:
    return {
        "id": item.id,
        "server": item.server,
        "started_at": time(item.started_at_s),
        "ended_at": time(item.ended_at_s),
        "phase": item.phase.value,
        "sglang_version": release(item.release),
        "model": item.model,
        "args": {name: value(item.args[name]) for name in sorted(item.args)},
        "facts": {name: value(item.facts[name].value) for name in sorted(item.facts)},
        "timings_s": numbers(item.timings_s),
        "load": numbers(item.load),
        "ranks": {rank: item.ranks[rank].value for rank in sorted(item.ranks)},
        "placement": {
            "gpus": [{"gpu": gpu, "rank": item.gpus[gpu]} for gpu in sorted(item.gpus)],
            "source": item.placement_source,
        },
        "sources": list(item.sources),
        "roofline": None if item.roofline is None else roofline(item.roofline),
    }


def roofline(item: Roofline) -> Document:
    """The ceiling of decode with its inputs, and the run's own bests. Numbers to four digits: they are no better known."""
    return {
        "at": time(item.at_s),
        "running": rounded(item.running),
        "tokens_per_s": rounded(item.tokens_per_s),
        "ceiling_tokens_per_s": {"low": rounded(item.ceiling_low), "high": rounded(item.ceiling_high)},
        "share": {"low": rounded(item.share_low), "high": rounded(item.share_high)},
        "step_bytes": {"low": rounded(item.step_bytes_low), "high": rounded(item.step_bytes_high)},
        "precision": item.precision,
        "inputs": [
            {
                "name": each.name, "low": rounded(each.low), "high": rounded(each.high), "unit": each.unit, "source": each.source,
                "assumed": each.is_assumed,
            }
            for each in item.inputs
        ],
        "missing": list(item.missing),
        "do": list(item.do),
        "assumptions": list(item.assumptions),
        "own_best": [
            {
                "running": [each.running_from, each.running_to], "context": [each.context_from, each.context_to],
                "tokens_per_s": rounded(each.tokens_per_s), "windows": each.windows,
            }
            for each in item.own_best
        ],
        "text": item.text,
    }  # fmt: skip


def rounded(item: float | None) -> float | None:
    """Four significant digits; None where it is not known or no number."""
    return None if item is None or not math.isfinite(item) else float(f"{item:.4g}")


def facts(item: Run) -> list[Document]:
    """Every fact of a run with where it is from, by name."""
    return [fact(item.facts[name]) for name in sorted(item.facts)]


def fact(item: FactEvidence) -> Document:
    return {"name": item.name, "value": value(item.value), "source": item.source, "line": item.line}


def flags(item: FlagTable | None) -> Document | None:
    """What is said about the launch flags of a run; null before it was judged."""
    if item is None:
        return None
    launch = item.launch
    return {
        "launch": None if launch is None else {"arguments": list(launch.words), "source": launch.source},
        "releases": list(item.releases),
        "because": item.because,
        "flags": [_flag(each) for each in item.rows],
        "decisions": [_decision(each) for each in item.decisions],
        "suggestions": [
            {"flag": each.flag, "because": each.because, "do": each.do, "source": each.source} for each in item.suggestions
        ],
        "flags_described": item.described,
        "flags_declared_only": item.undescribed,
    }


def _flag(item: FlagRow) -> Document:
    return {
        "flag": item.flag,
        "field": item.field,
        "was_asked": item.was_asked,
        "asked": value(item.asked),
        "runs_with": value(item.runs_with),
        "verdict": item.verdict,
        "because": item.because,
        "do": item.do,
        "source": item.source,
    }


def _decision(item: DecisionRow) -> Document:
    return {
        "name": item.name,
        "about": item.about,
        "argument": item.argument,
        "in_dump": value(item.in_dump),
        "value": value(item.value),
        "how": item.how,
        "because": item.because,
        "source": item.source,
        "seen_by": item.seen_by,
        "evidence": [evidence(each) for each in item.evidence],
    }


def coverage(item: Coverage) -> Document:
    return {
        "signature": item.signature,
        "topic": item.topic,
        "run": item.run,
        "verdict": item.verdict.value,
        "because": item.because,
        "do": item.do,
    }


def gap(item: Gap) -> Document:
    return {
        "from": time(item.from_s),
        "until": time(item.to_s),
        "reason": item.reason,
        "from_offset": item.from_offset,
        "to_offset": item.to_offset,
    }


def source(name: str, *, format: str, lines: int, bytes: int, sglang_lines: int, timezone: str, gaps: Iterable[Gap] = ()) -> Document:
    return {
        "name": name,
        "format": format,
        "lines": lines,
        "bytes": bytes,
        "gaps": [gap(each) for each in gaps],
        "sglang_lines": sglang_lines,
        "timezone": timezone,
    }


def sample(item: Sample) -> Document:
    """One reading with the names and units of the telemetry recording; what was not read is null, never 0. Processes of
    the machine are left out: their names are nobody's business on a page."""
    document: Document = {"at": time(item.at_s), "gpu": item.gpu}
    for name in SAMPLE_FIELDS:
        reading = getattr(item, name)
        document[name] = number(reading) if isinstance(reading, float) else reading
    document["throttle_reasons"] = None if item.throttle_reasons is None else list(item.throttle_reasons)
    return document


def signature(item: Signature) -> Document:
    return {
        "id": item.id,
        "revision": item.revision,
        "status": item.status.value,
        "kind": item.kind.value,
        "topic": item.topic,
        "severity": item.severity.value,
        "releases": item.releases,
        "scope": item.scope.value,
        "title": item.title,
        "explanation": item.explanation,
        "remediation": item.remediation,
        "references": list(item.references),
        "applies_when": [{"when": each.expression, "because": each.because} for each in item.applies_when],
        "explains": list(item.explains),
        "blind_spots": item.blind_spots,
        "tags": list(item.tags),
    }


def report(
    *,
    version: str,
    library: str,
    sources: Iterable[Document],
    runs: Iterable[Run],
    findings: Iterable[Finding],
    verdicts: Iterable[Coverage],
) -> Document:
    """The whole answer of `check --format json`."""
    return {
        "schema": 1,
        "tool": {"name": "sglang-watchdog", "version": version, "library": library},
        "sources": list(sources),
        "runs": [{**run(each), "flags": flags(each.flags)} for each in runs],
        "findings": [finding(each) for each in findings],
        "coverage": [coverage(each) for each in verdicts],
    }


def dumps(document: Any, *, indent: int | None = None) -> str:
    """Compact JSON text (or indented for people). Text that is no valid Unicode (lone surrogates of undecodable log
    bytes) comes out with `?`, so that the result can always be written as UTF-8."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=separators, indent=indent)
    return text.encode("utf-8", "replace").decode("utf-8")
