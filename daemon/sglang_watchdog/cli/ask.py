"""`sglang-watchdog findings | runs | gpus | coverage | sources`: ask the running daemon."""

import argparse
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

from .explain import DEFAULT_URL
from .run_flags import flag_text
from .terminal import colour

_COLOUR = {"critical": "31;1", "warning": "33;1", "info": "36"}


def parser(name: str) -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog=f"sglang-watchdog {name}", description=f"Ask the running daemon for {name}.")
    p.add_argument("--url", default=os.environ.get("SGLANG_WATCHDOG_URL", DEFAULT_URL), help=f"the daemon (default {DEFAULT_URL})")
    p.add_argument("--token-file", metavar="FILE", help="file with a bearer token, where the daemon asks for one")
    p.add_argument("--format", choices=("text", "json"), default="text")
    p.add_argument("--watch", action="store_true", help="go on and follow")
    if name == "findings":
        for filter_ in ("server", "state", "severity", "topic", "signature", "run"):
            p.add_argument(f"--{filter_}")
    if name == "runs":
        p.add_argument("wanted_run", nargs="?", metavar="RUN", help="one run by its id (default: all)")
        p.add_argument("--flags", action="store_true", help="its launch flags, one by one (default: the newest run's): asked, runs with, why, what to do")
    if name == "coverage":
        p.add_argument("--verdict", choices=("yes", "no", "unknown", "not-applicable"))
    return p


def main(name: str, argv: list[str]) -> int:
    options = parser(name).parse_args(argv)
    try:
        while True:
            items = list(_items(options, name))
            if name == "runs":
                wanted = _wanted_runs(items, options)
                if options.wanted_run and not wanted:
                    print(f"sglang-watchdog runs: no run {options.wanted_run} is on record; `sglang-watchdog runs` lists them", file=sys.stderr)
                    return 2
                items = wanted
            if options.watch and sys.stdout.isatty():
                sys.stdout.write("\x1b[H\x1b[2J")
            _show(name, items, options)
            if not options.watch:
                return 0
            sys.stdout.flush()
            if name == "findings":
                return _follow(options)
            time.sleep(2)
    except urllib.error.HTTPError as error:
        detail = problem(error)
        print(f"sglang-watchdog {name}: {options.url}: {detail}", file=sys.stderr)
        return 4
    except BrokenPipeError:
        raise  # of standard output: `| head` has enough
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        print(f"sglang-watchdog {name}: no daemon answers at {options.url} ({getattr(error, 'reason', error)}); "
              "start one with `sglang-watchdog run`, or name it with --url", file=sys.stderr)  # fmt: skip
        return 4


def _wanted_runs(items: list[dict[str, Any]], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The run that was named, with its flags where they are asked for."""
    if options.wanted_run:
        items = [item for item in items if item["id"].startswith(options.wanted_run)]
    if not options.flags:
        return items
    return [{**item, "flags": _get(options, f"/api/v1/runs/{item['id']}/flags")} for item in items[:1]]


def _get(options: argparse.Namespace, path: str) -> Any:
    with urllib.request.urlopen(request_to(options, path), timeout=10) as answer:  # noqa: S310 - the person names it
        return json.load(answer)


def request_to(options: argparse.Namespace, path: str) -> urllib.request.Request:
    request = urllib.request.Request(options.url.rstrip("/") + path)  # noqa: S310 - the person names it
    if options.token_file:
        with open(options.token_file, encoding="utf-8") as file:
            request.add_header("Authorization", f"Bearer {file.read().strip()}")
    return request


def _items(options: argparse.Namespace, name: str) -> Iterator[dict[str, Any]]:
    wanted = {key: getattr(options, key, None) for key in ("server", "state", "severity", "topic", "signature", "run", "verdict")}
    query = {key: value for key, value in wanted.items() if value is not None}
    while True:
        with urllib.request.urlopen(request_to(options, f"/api/v1/{name}?{urllib.parse.urlencode(query)}"), timeout=10) as answer:  # noqa: S310
            document = json.load(answer)
        yield from document[name]
        if not document.get("next_cursor"):
            return
        query["cursor"] = document["next_cursor"]


def _show(name: str, items: list[dict[str, Any]], options: argparse.Namespace) -> None:
    if options.format == "json":
        print(json.dumps({name: items}, indent=1, ensure_ascii=False))
        return
    if not items:
        print(f"no {name}")
    for item in items:
        print(_LINES[name](item))


def _finding(item: dict[str, Any]) -> str:
    word = f"{item['severity'].upper():<9}"
    if colour(sys.stdout):
        word = f"\x1b[{_COLOUR[item['severity']]}m{word}\x1b[0m"
    folded = "  (explained by another)" if item.get("explained_by") else ""
    head = f"{item['id']}  {item.get('display_state', item['state']):<13}{word}{item['server']:<12}{item['title']}{folded}"
    is_new = item["summary"].rstrip(".") != item["title"].rstrip(".")
    return f"{head}\n{'':18}{item['summary']}" if is_new else head


def _run(item: dict[str, Any]) -> str:
    release = item["sglang_version"]
    version = release["min"] if release["min"] == release["max"] else f"{release['min']}..{release['max']}"
    what = f"{version or 'unknown':<14}{item.get('model') or '':<30}{item['started_at']}"
    head = f"{item['id']}  {item['server']:<12}{item['phase']:<10}{what}"
    return f"{head}\n\n{flag_text(item['flags'], is_colour=colour(sys.stdout))}" if "flags" in item else head


def _gpu(item: dict[str, Any]) -> str:
    sample = item.get("latest") or item.get("sample") or item

    def shown(key: str, unit: str, width: int = 6) -> str:
        value = sample.get(key)
        return f"  {'-' if value is None else f'{value:.0f}{unit}':>{width}}"

    limit = sample.get("power_limit_w")
    power = f"{shown('power_w', ' W')} of {'-' if limit is None else f'{limit:.0f} W':<6}"
    rest = f"{shown('sm_util', ' %')}{shown('temp_c', ' °C')}{shown('mem_used_mib', ' MiB', 11)}"
    return f"GPU {item['gpu']:<3}{(item.get('name') or '')[:34]:<36}{power}{rest}"


def _coverage(item: dict[str, Any]) -> str:
    cure = f"  → {item['do']}" if item["do"] else ""
    return f"{item['verdict']:<15}{item['signature']:<52}{item['because']}{cure}"


def _source(item: dict[str, Any]) -> str:
    lag = item.get("lag_bytes")
    head = f"{item['name']:<24}{item.get('state', ''):<10}{item.get('format', ''):<9}{item.get('lines', 0):>10} lines"
    why, do = item.get("why", ""), item.get("do", "")
    return f"{head}  lag {'-' if lag is None else lag}  {len(item.get('gaps', []))} gaps  {why}{'  → ' if why and do else ''}{do}".rstrip()


_LINES = {"findings": _finding, "runs": _run, "gpus": _gpu, "coverage": _coverage, "sources": _source}


def _follow(options: argparse.Namespace) -> int:
    """Server-sent events, resumed where the stream broke off."""
    last = ""
    while True:
        request = request_to(options, "/api/v1/changes")
        if last:
            request.add_header("Last-Event-ID", last)
        try:
            with urllib.request.urlopen(request, timeout=60) as stream:  # noqa: S310
                for raw in stream:
                    line = raw.decode("utf-8", "replace").rstrip("\n")
                    if line.startswith("id:"):
                        last = line[3:].strip()
                    elif line.startswith("data:"):
                        _print_change(json.loads(line[5:]), options)
        except BrokenPipeError:
            raise  # of standard output
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(1)


def _print_change(change: dict[str, Any], options: argparse.Namespace) -> None:
    if options.format == "json":
        print(json.dumps(change, ensure_ascii=False), flush=True)
        return
    finding = change.get("finding") or (change if "signature" in change else None)
    if finding is not None and change.get("was") != finding["state"]:  # else only its count or evidence grew
        print(f"{change['at']}  {_finding(finding)}", flush=True)


def problem(error: urllib.error.HTTPError) -> str:
    """What a problem document says, each fault in it with what would be valid."""
    try:
        document = json.load(error)
    except ValueError:
        return f"{error.code} {error.reason}"
    faults = "".join(f"\n  {one['where'].removeprefix('query.')}: {one['message']}" for one in document.get("errors") or ())
    return f"{document.get('title', error.reason)}: {document.get('detail', '')}{faults}"
