"""Reads the labels of cases and captures and says where a judgement differs from them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sglang_watchdog.model.finding import AbsenceEvidence, FactEvidence, Finding, LineEvidence
from sglang_watchdog.model.words import Answer, Severity
from sglang_watchdog.offline.pipeline import Judged

FOLDERS = (Path(__file__).parent / "cases", Path(__file__).parent / "captures")


@dataclass(frozen=True, slots=True)
class Case:
    """One labelled folder."""

    folder: Path
    labels: dict[str, Any] = field(hash=False)

    @property
    def logs(self) -> list[Path]:
        names = self.labels.get("files") or ["server.log"]
        return [path for name in names for path in (self.folder / name, self.folder / f"{name}.gz") if path.is_file()]

    @property
    def telemetry(self) -> Path | None:
        return next((path for name in ("nvml.jsonl", "nvml.jsonl.gz") if (path := self.folder / name).is_file()), None)

    @property
    def zone(self) -> str:
        zone = self.labels.get("timezone") or self.labels.get("log_timezone") or "UTC"
        return str(zone) if " " not in str(zone) else "UTC"

    def topics(self, key: str) -> set[str]:
        return set(self.labels.get(key) or ())


def all_cases() -> list[Case]:
    found = [path for root in FOLDERS for path in sorted(root.glob("*/case.yaml"))]
    return [Case(path.parent, yaml.safe_load(path.read_text("utf-8"))) for path in found]


def differences(case: Case, judged: Judged) -> list[str]:
    """Everything in which findings and coverage differ from the labels, in words; empty if nothing does."""
    findings = judged.engine.findings.all()
    return [*_missed(case, findings), *_too_much(case, findings), *_silences(case, judged, findings)]


def _missed(case: Case, findings: list[Finding]) -> list[str]:
    out, free = [], list(findings)
    for expected in case.labels.get("expected_findings") or ():
        hits = [f for f in free if f.topic in expected["topics"]]
        if not hits:
            out.append(f"missed: {expected['severity']} {' | '.join(expected['topics'])}: {expected['what']}")
            continue
        best = max(hits, key=lambda f: (_cites(f, expected), -_steps(f, expected)))
        free.remove(best)
        if _steps(best, expected) > 1:
            out.append(f"severity of {best.signature} is {best.severity}, due is {expected['severity']}")
        lines = (expected.get("evidence") or {}).get("lines")
        if lines and _lines(best) and not _cites(best, expected):
            out.append(f"{best.signature} cites lines {sorted(_lines(best))}, none of {lines}")
    return out


def _steps(finding: Finding, expected: dict[str, Any]) -> int:
    return abs(finding.severity.rank - Severity(expected["severity"]).rank)


def _lines(finding: Finding) -> set[int]:
    lines: set[int] = set()
    for item in finding.evidence:
        if isinstance(item, LineEvidence | FactEvidence) and item.line:
            lines.add(item.line)
        if isinstance(item, AbsenceEvidence) and item.witness is not None:
            lines.add(item.witness.line)
    return lines


def _cites(finding: Finding, expected: dict[str, Any]) -> bool:
    evidence = expected.get("evidence") or {}
    wanted = list(evidence.get("lines") or ())
    if wanted and evidence.get("lines_more"):
        wanted += range(wanted[-1], wanted[-1] + int(evidence["lines_more"]) + 1)
    return any(abs(line - due) <= 1 for line in _lines(finding) for due in wanted)


def _too_much(case: Case, findings: list[Finding]) -> list[str]:
    expected = {topic for e in case.labels.get("expected_findings") or () for topic in e["topics"]}
    fine = expected | case.topics("allowed_topics") | case.topics("must_conclude")
    false = [f for f in findings if f.severity is not Severity.INFO and f.topic not in fine]
    wrong = [f for f in findings if f.topic in case.topics("forbidden_topics")]
    return [f"false alarm: {f.severity} {f.topic} ({f.signature}): {f.summary}" for f in false] + [
        f"forbidden: {f.topic} ({f.signature}): {f.summary}" for f in wrong
    ]


def _silences(case: Case, judged: Judged, findings: list[Finding]) -> list[str]:
    said = {f.topic for f in findings}
    out = [f"not concluded: {topic}" for topic in sorted(case.topics("must_conclude") - said)]
    coverage = judged.engine.coverage()
    for topic in sorted(case.topics("coverage_unknown")):
        verdicts = {entry.verdict for entry in coverage if entry.topic == topic}
        if verdicts != {Answer.UNKNOWN}:
            out.append(f"coverage of {topic} is {', '.join(sorted(verdicts)) or 'unstated'}, must be unknown")
    return out
