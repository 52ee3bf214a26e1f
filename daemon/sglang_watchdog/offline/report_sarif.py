"""The report as SARIF 2.1.0: signatures are rules, findings results with the log lines as locations."""

from typing import Any

from ..model.finding import Finding, LineEvidence
from ..model.words import Severity
from ..sinks.encode import dumps
from .check import Report

_LEVEL = {Severity.CRITICAL: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def render(report: Report) -> str:
    rules: dict[str, dict[str, Any]] = {}
    for finding in report.findings:
        rules.setdefault(
            finding.signature,
            {
                "id": finding.signature,
                "shortDescription": {"text": finding.title},
                "fullDescription": {"text": finding.explanation.strip() or finding.title},
                "help": {"text": finding.remediation.strip() or finding.title},
                "defaultConfiguration": {"level": _LEVEL[finding.severity]},
                "properties": {"topic": finding.topic},
            },
        )
    order = sorted(rules)
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "sglang-watchdog", "version": report.version, "rules": [rules[name] for name in order]}},
                "results": [_result(finding, order) for finding in report.findings],
                "columnKind": "utf16CodeUnits",
            }
        ],
    }
    return dumps(document, indent=2) + "\n"


def _result(finding: Finding, order: list[str]) -> dict[str, Any]:
    return {
        "ruleId": finding.signature,
        "ruleIndex": order.index(finding.signature),
        "level": _LEVEL[finding.severity],
        "message": {"text": finding.summary or finding.title},
        "partialFingerprints": {"sglangWatchdog/v1": finding.id},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": item.source},
                    "region": {"startLine": item.line, "snippet": {"text": item.text}},
                }
            }
            for item in finding.evidence
            if isinstance(item, LineEvidence)
        ],
        "properties": {"topic": finding.topic, "state": finding.state.value, "run": finding.run},
    }
