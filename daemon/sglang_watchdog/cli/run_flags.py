"""The launch flags of one run as text: the document of `/api/v1/runs/{id}/flags` for people."""

import json
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

_COLOURS = {"acts": "32", "unknown": "36", "overridden": "35", "conflict": "31"}
_INDENT = 18
_WIDTH = 110


def flag_text(document: Mapping[str, Any], *, is_colour: bool = False) -> str:
    """Flags, what the server decided by itself, and what would help."""
    lines: list[str] = []
    launch = document["launch"]
    if launch is not None:
        source = launch["source"] if launch["source"].startswith("--") else f"the {launch['source']}"
        lines += [f"Asked (from {source}): {' '.join(launch['arguments']) or 'nothing'}"]
    elif document["releases"]:
        lines += ["The launch command is not known: flags are shown that the dump gives away."]
    if document["because"]:
        lines += [f"{document['because'][:1].upper()}{document['because'][1:]}."]
    for flag in document["flags"]:
        lines += _flag(flag, is_colour)
    lines += _decisions(document["decisions"])
    if document["suggestions"]:
        lines += ["", "Would help here and is not set:"]
        lines += [line for one in document["suggestions"] for line in _wrapped(f"{one['flag']}: {one['because']} ({one['source']})", 2, 6)]
    if document["releases"]:
        lines += ["", f"The library describes {document['flags_described']} flags of SGLang {document['releases'][-1]}; "
                  f"{document['flags_declared_only']} are known by declaration only."]  # fmt: skip
    return "\n".join(lines)


def _flag(flag: Mapping[str, Any], is_colour: bool) -> list[str]:
    verdict = f"{flag['verdict']:<16}"
    if is_colour:
        verdict = f"\x1b[{_COLOURS.get(flag['verdict'], '33')}m{verdict}\x1b[0m"
    given = flag["asked"] if flag["was_asked"] else flag["runs_with"]
    runs = f"  (runs with {_value(flag['runs_with'])})" if flag["was_asked"] and flag["runs_with"] not in (None, flag["asked"]) else ""
    text = flag["because"] + (f". {flag['do']}" if flag["do"] else "")
    head = f"  {verdict}{flag['flag']}{'' if given is True or given is None else ' ' + _value(given)}{runs}"
    return [head, *_wrapped(text, _INDENT, _INDENT), f"{'':{_INDENT}}{flag['source']}"]


def _decisions(decisions: Iterable[Mapping[str, Any]]) -> list[str]:
    lines: list[str] = []
    for one in decisions:
        value = "not known" if one["value"] is None else _value(one["value"])
        dump = f" (the dump says {one['argument']}={_value(one['in_dump'])})" if one["argument"] else ""
        lines += _wrapped(f"{one['name']} = {value}: {one['about']}{dump}; {one['how']}: {one['because']}{_where(one)}", 2, 6)
    return ["", "Decided by the server:", *lines] if lines else []


def _where(decision: Mapping[str, Any]) -> str:
    places = [f"{item['source']}:{item['line']}" if item.get("line") is not None else item["source"] for item in decision["evidence"]]
    return f" ({', '.join(places)})" if places else f" ({decision['source']})" if decision["source"] else ""


def _wrapped(text: str, first: int, rest: int) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=" " * first, subsequent_indent=" " * rest, break_on_hyphens=False)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
