"""What people are told of a finding: the server, the cause, the first evidence, and where to read on."""

import json
from typing import Any

from .. import encode
from ..ledger_reads import FindingRow


def link(external_url: str, finding: str) -> str:
    """The finding on the status page; empty when nobody said how the page is reached."""
    return f"{external_url.rstrip('/')}/#f-{finding}" if external_url else ""


def first_evidence(document: encode.Document) -> str:
    """The first line quoted, with its place; else the first piece of evidence of any kind, in words."""
    for item in document["evidence"]:
        if item["kind"] == "line":
            return f"{item['source']}:{item['line']}: {item['text']}"
    for item in document["evidence"]:
        if item["kind"] == "absence":
            return f"not said: {item['awaited']}"
        if item["kind"] == "samples":
            return f"{item['metric']} of GPU {', '.join(str(gpu) for gpu in item['gpus'])}: median {item['median']}"
        return f"{item['name']} = {json.dumps(item['value'])} ({item['source']})"
    return ""


def payload(row: FindingRow, external_url: str, *, told_before: bool) -> dict[str, Any]:
    """The body of a webhook."""
    document = json.loads(row.json())
    return {
        "schema": 1,
        "event": {"firing": "finding.firing", "resolved": "finding.resolved", "expired": "finding.expired"}[row.state],
        "is_repeat": told_before and row.state == "firing",
        "server": row.server,
        "link": link(external_url, row.id),
        "text": headline(document),
        "first_evidence": first_evidence(document),
        "finding": document,
    }


def headline(document: encode.Document) -> str:
    """One line for a chat."""
    word = document["severity"].upper() if document["state"] == "firing" else document["state"].upper()
    return f"[{word}] {document['server']}: {document['title']}"


def prose(row: FindingRow, external_url: str) -> tuple[str, str]:
    """Title and text for a chat."""
    document = json.loads(row.doc)
    parts = [document["summary"], first_evidence(document), document["remediation"], link(external_url, row.id)]
    return headline(document), "\n\n".join(part for part in parts if part)[:3500]
