"""`sglang-watchdog explain`: a finding or signature in full."""

import argparse
import json
import sys
import textwrap
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

DEFAULT_URL = "http://127.0.0.1:17853"
_NOTHING_READ = 3


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="sglang-watchdog explain",
        description="Explain a signature, or a finding by its id: what it means, what it rests on, what to do, what it cannot see.",
    )
    p.add_argument("what", metavar="FINDING|SIGNATURE")
    p.add_argument("--log", type=Path, metavar="LOG", help="judge this log and explain what it has of that signature")
    p.add_argument("--telemetry", type=Path, metavar="FILE", help="with --log: its recording")
    p.add_argument("--timezone", metavar="TZ")
    p.add_argument("--url", default=DEFAULT_URL, help="the running daemon, for finding ids")
    return p


def main(name: str, argv: list[str]) -> int:  # noqa: ARG001 - one signature for all commands
    options = parser().parse_args(argv)
    from ..library.load import load

    loaded = load()
    report = None if options.log is None else _report(options)
    found = list(report.document()["findings"]) if report is not None else []
    signature = next((f for f in loaded.files if f.body.id == options.what), None)
    findings = [f for f in found if options.what in (f["id"], f["signature"], f["topic"])]
    if signature is None and not findings:
        findings = _from_daemon(options.url, options.what)
    if signature is None and not findings:
        signatures = [f for f in loaded.files if f.body.topic == options.what]
        if not signatures:
            from ..config.faults import nearest

            hint = nearest(options.what, [*(f.body.id for f in loaded.files), *loaded.library.topics])
            where = f"at {options.url}" + ("" if options.log is None else f" or in {options.log}")
            print(f"{options.what}: no signature or topic of that name, and no finding with that id {where}. {hint}".rstrip(), file=sys.stderr)
            return 2
        for one in signatures:
            print(f"{one.body.id:<52}{one.body.title}")
        return 0
    for finding in findings:
        _finding(finding)
    if signature is None:
        signature = next((f for f in loaded.files if f.body.id == findings[0]["signature"]), None)
    if signature is not None:
        _signature(signature)
    if report is None:
        return 0
    if not findings and report.sources:
        _coverage(report.document()["coverage"], options.what)
    return _NOTHING_READ if report.exit_code == _NOTHING_READ else 0


def _report(options: argparse.Namespace) -> Any:
    """The judged log, said once what could not be read of it."""
    from ..offline.check import Request, UsageError, run_check
    from ..triage.findings import flag_judge
    from .main import version

    try:
        report = run_check(Request(logs=[str(options.log)], telemetry=options.telemetry, timezone=options.timezone), version(), flags=flag_judge)
    except UsageError as error:
        print(f"sglang-watchdog explain: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    for message in report.messages:
        print(message, file=sys.stderr)
    return report


def _from_daemon(url: str, what: str) -> list[dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"{url}/api/v1/findings/{urllib.parse.quote(what, safe='')}", timeout=3) as answer:  # noqa: S310
            return [json.load(answer)]
    except (urllib.error.URLError, TimeoutError, ValueError):
        return []


def _finding(finding: dict[str, Any]) -> None:
    print(f"{finding['severity'].upper()} {finding['title']} [{finding['state']}]")
    _wrap(finding["summary"])
    print(f"  first seen {finding['first_seen']}, last {finding['last_seen']}, {finding['count']} times; run {finding['run']}")
    for item in finding["evidence"]:
        match item["kind"]:
            case "line":
                print(f"  {item['source']}:{item['line']}: {item['text'][:160]}")
            case "absence":
                witness = item.get("witness") or {}
                print(f"  not said from {item['from']} to {item['until']}: {item['awaited']}"
                      + (f" (witness: line {witness['line']})" if witness else ""))  # fmt: skip
            case "samples":
                print(f"  {item['metric']} of GPU {item['gpus']}: median {item['median']} over {item['n']} samples")
            case "fact":
                print(f"  {item['name']} = {item['value']} ({item['source']}:{item['line']})")
    print()


def _signature(file: Any) -> None:
    s = file.signature
    print(f"{s.id} (revision {s.revision}, {s.status.value}): {s.title}")
    print(f"  {s.kind.value}, topic {s.topic}, {s.severity.value}, releases {s.releases or 'any'}")
    for label, text in (("What it means", s.explanation), ("What to do", s.remediation), ("What it cannot see", s.blind_spots)):
        if text.strip():
            print(f"\n{label}")
            for line in text.strip().splitlines():
                _wrap(line)
    for condition in s.applies_when:
        print(f"\nApplies when {condition.expression}" + (f" ({condition.because})" if condition.because else ""))
    if s.references:
        print("\nSources: " + ", ".join(s.references))
    print(f"\nFile: {file.document.path}")


def _coverage(entries: list[dict[str, Any]], what: str) -> None:
    print("\nIn this log")
    for entry in entries:
        if what in (entry["signature"], entry["topic"]):
            cure = f" To know: {entry['do']}." if entry["do"] else ""
            print(f"  {entry['signature']}: {entry['verdict']}: {entry['because']}.{cure}")


def _wrap(text: str) -> None:
    print("\n".join(textwrap.wrap(text, 100, initial_indent="  ", subsequent_indent="  ")))
