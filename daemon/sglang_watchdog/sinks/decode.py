"""The way back: a finding as the ledger wrote it, read into its type again (times to the millisecond)."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ..model.finding import AbsenceEvidence, Evidence, FactEvidence, Finding, LineEvidence, SamplesEvidence
from ..model.words import ScopeKind, Severity, State


def time(text: str | None) -> float | None:
    """Unix seconds of an RFC 3339 time with an offset.

    Raises:
        ValueError: it is no such time, or it has no offset and so could mean any zone.
    """
    if text is None:
        return None
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no zone: end it with Z or an offset such as +02:00")
    return moment.timestamp()


def _must(text: str | None) -> float:
    at_s = time(text)
    if at_s is None:
        raise ValueError("a time is missing")
    return at_s


def evidence(document: Mapping[str, Any]) -> Evidence:
    match document["kind"]:
        case "line":
            return LineEvidence(
                source=document["source"],
                line=document["line"],
                offset=document["offset"],
                text=document["text"],
                at_s=time(document["at"]),
            )
        case "absence":
            return AbsenceEvidence(
                awaited=document["awaited"],
                from_s=time(document["from"]),
                until_s=time(document["until"]),
                witness=_pointer(document["witness"]),
                opportunity=_pointer(document["opportunity"]),
            )
        case "samples":
            median = document["median"]
            return SamplesEvidence(
                metric=document["metric"],
                gpus=tuple(document["gpus"]),
                from_s=_must(document["from"]),
                until_s=_must(document["until"]),
                median=float("nan") if median is None else median,
                n=document["n"],
            )
        case "fact":
            return FactEvidence(name=document["name"], value=document["value"], source=document["source"], line=document["line"])
    raise ValueError(f"unknown kind of evidence: {document['kind']!r}")


def _pointer(document: Mapping[str, Any] | None) -> LineEvidence | None:
    if document is None:
        return None
    return LineEvidence(source=document["source"], line=document["line"], offset=document["offset"], text=document["text"])


def finding(document: Mapping[str, Any], *, historic: bool = False) -> Finding:
    scope = document["scope"]
    return Finding(
        id=document["id"],
        signature=document["signature"],
        revision=document["revision"],
        topic=document["topic"],
        severity=Severity(document["severity"]),
        state=State(document["state"]),
        server=document["server"],
        run=document["run"],
        scope=ScopeKind(scope["kind"]),
        ranks=tuple(scope["ranks"]),
        gpus=tuple(scope["gpus"]),
        gpu_uuid=scope["gpu_uuid"],
        title=document["title"],
        summary=document["summary"],
        first_seen_s=time(document["first_seen"]),
        last_seen_s=time(document["last_seen"]),
        count=document["count"],
        evidence=tuple(evidence(each) for each in document["evidence"]),
        explains=tuple(document["explains"]),
        explained_by=document["explained_by"],
        explanation=document["explanation"],
        remediation=document["remediation"],
        references=tuple(document["references"]),
        resolved_s=time(document["resolved_at"]),
        reopened=document["reopened"],
        historic=historic,
    )
