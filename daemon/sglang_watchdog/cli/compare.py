"""`sglang-watchdog compare A B`: what is different between two runs, from the daemon's ledger or from two log files."""

import argparse
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .ask import problem, request_to
from .explain import DEFAULT_URL

_SECTIONS = (("args", "arguments"), ("facts", "facts"), ("timings_s", "start, in seconds"), ("load", "load"))


class NotComparable(Exception):
    """The message says which side cannot be compared, and why."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="sglang-watchdog compare",
        description="Two runs side by side: release, arguments, what is known of them, speed, findings. A and B are ids of runs that "
        "the daemon knows (`sglang-watchdog runs`), or two log files; of a log with several runs the last one counts.",
    )
    p.add_argument("a", metavar="A")
    p.add_argument("b", metavar="B")
    p.add_argument("--url", default=os.environ.get("SGLANG_WATCHDOG_URL", DEFAULT_URL), help=f"the daemon (default {DEFAULT_URL})")
    p.add_argument("--token-file", metavar="FILE", help="file with a bearer token, where the daemon asks for one")
    p.add_argument("--format", choices=("text", "json"), default="text")
    return p


def main(name: str, argv: list[str]) -> int:  # noqa: ARG001 - one signature for all commands
    options = parser().parse_args(argv)
    files = [Path(side).is_file() for side in (options.a, options.b)]
    try:
        if any(files) and not all(files):
            missing = options.b if files[0] else options.a
            raise NotComparable(f"{missing}: no such file, and a log file is compared with a log file only", 2)
        document = _of_logs(options.a, options.b) if all(files) else _of_daemon(options)
    except NotComparable as error:
        print(f"sglang-watchdog compare: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(document, indent=1, ensure_ascii=False) if options.format == "json" else render(document))
    return 0


def _of_daemon(options: argparse.Namespace) -> dict[str, Any]:
    path = f"/api/v1/runs/{urllib.parse.quote(options.a, safe='')}/compare/{urllib.parse.quote(options.b, safe='')}"
    try:
        with urllib.request.urlopen(request_to(options, path), timeout=10) as answer:  # noqa: S310 - the person names it
            document: dict[str, Any] = json.load(answer)
            return document
    except urllib.error.HTTPError as error:
        raise NotComparable(f"{options.url}: {problem(error)}", 4) from error
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise NotComparable(
            f"{options.a} and {options.b} are no files here, and no daemon answers at {options.url} ({getattr(error, 'reason', error)}); "
            "name two log files, or a daemon with --url",
            4,
        ) from error


def _of_logs(a: str, b: str) -> dict[str, Any]:
    from ..offline.check import Request, run_check
    from ..sinks import compare, encode
    from ..triage.findings import flag_judge
    from .main import version

    sides = []
    for log in (a, b):
        report = run_check(Request(logs=[log]), version(), flags=flag_judge)
        for message in report.messages:
            print(message, file=sys.stderr)
        if not report.runs:
            raise NotComparable(f"{log}: no run of an SGLang server in it", 3)
        run = report.runs[-1]
        found = [encode.finding(finding) for finding in report.findings if finding.run == run.id]
        sides.append((encode.run(run), encode.facts(run), found))
    (run_a, facts_a, found_a), (run_b, facts_b, found_b) = sides
    return compare.runs(run_a, run_b, facts_a=facts_a, facts_b=facts_b, findings_a=found_a, findings_b=found_b)


def render(document: Mapping[str, Any]) -> str:
    """A table: name, A, B and how many times larger B is, where both are numbers."""
    lines = [f"A  {document['a']}", f"B  {document['b']}"]
    release = {each["name"]: each for each in document["sglang_version"]}
    if release:
        lines += ["", f"SGLang: {_release(release, 'a')} → {_release(release, 'b')}"]
    for section, heading in _SECTIONS:
        if not document[section]:
            continue
        lines += ["", f"{heading}:"]
        for each in document[section]:
            times = f"  ({each['ratio']:.2f} ×)" if each["ratio"] is not None else ""
            lines.append(f"  {each['name']:<40} {_short(each['a'])} → {_short(each['b'])}{times}")
    for side, label in (("a", "only A"), ("b", "only B")):
        for finding in document[f"findings_only_{side}"]:
            lines += [f"\n{label}: {finding['severity'].upper()}  {finding['title']}  ({finding['topic']}, {finding['id']})"]
    if len(lines) == 2:
        lines += ["", "no difference"]
    return "\n".join(lines)


def _release(differences: Mapping[str, Mapping[str, Any]], side: str) -> str:
    lowest, highest = (differences.get(name, {}).get(side) for name in ("min", "max"))
    return str(lowest or highest or "unknown") if lowest == highest or None in (lowest, highest) else f"{lowest}..{highest}"


def _short(value: object, most: int = 60) -> str:
    text = "not known" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= most else text[: most - 1] + "…"
