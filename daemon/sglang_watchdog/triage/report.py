"""Shows judgements: a table for people, the contract's JSON, markdown for an issue or a chat."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from .verdicts import Axes, FlagVerdict, Judgement

SCHEMA = 1
AXES = ("compatible", "condition_met", "auto_enabled", "functional", "already_set")
_wrapped = partial(textwrap.wrap, break_on_hyphens=False)  # an option is copied whole
_MARKS: Mapping[bool | None, str] = {True: "yes", False: "no", None: "?"}
_STARTS: Mapping[tuple[bool | None, bool], str] = {
    (True, False): "starts, by all that is checked",
    (True, True): "nothing known stops the start",
    (None, True): "not known whether it starts",
}
_COLOURS = {
    "acts": "32",
    "redundant": "33",
    "no-op": "33",
    "dead": "33",
    "condition-unmet": "33",
    "overridden": "35",
    "deprecated": "33",
    "removed": "31",
    "unrecognised": "31",
    "conflict": "31",
    "unknown": "36",
}


@dataclass(frozen=True, slots=True)
class Range:
    """Consecutive sampled releases in which the same launch comes to the same."""

    first: str
    last: str
    judgement: Judgement

    @property
    def title(self) -> str:
        return self.first if self.first == self.last else f"{self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class Told:
    """All that a report shows."""

    ranges: tuple[Range, ...]
    gpu: str
    model: str
    command: str
    how: str = ""  # where release, GPU and model are from
    described: int = 0  # flags of the last range's release that the library describes
    undescribed: tuple[str, ...] = ()  # and those it does not

    @property
    def exit_code(self) -> int:
        return 0 if all(one.judgement.is_clean for one in self.ranges) else 1


def group(judgements: Sequence[Judgement]) -> tuple[Range, ...]:
    """Join neighbours that differ in nothing a reader acts on."""
    ranges: list[Range] = []
    for one in judgements:
        if ranges and _key(ranges[-1].judgement) == _key(one):
            ranges[-1] = Range(ranges[-1].first, one.read_at, one)
        else:
            ranges.append(Range(one.read_at, one.read_at, one))
    return tuple(ranges)


def _key(one: Judgement) -> tuple[Any, ...]:
    return one.starts, tuple((flag.flag, flag.verdict, str(flag.resolved)) for flag in one.flags)


def to_json(told: Told) -> str:
    """The contract's document; with several releases a list of them under `releases`."""
    documents = [_document(told, one) for one in told.ranges]
    known = {"flags_described": told.described, "flags_not_described": list(told.undescribed)}
    if len(documents) == 1:
        document = documents[0] | known
    else:
        document = {"schema": SCHEMA, "gpu": told.gpu or None, "model": told.model or None, "releases": documents} | known
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _document(told: Told, one: Range) -> dict[str, Any]:
    judgement = one.judgement
    release = judgement.release if one.first == one.last else f"{one.first}..{one.last}"
    return {
        "schema": SCHEMA,
        "sglang": release,
        "read_at": judgement.read_at,
        "gpu": told.gpu or None,
        "model": told.model or None,
        "starts": judgement.starts,
        "starts_unless": [asdict(item) for item in judgement.open],
        "flags": [_flag(flag) for flag in judgement.flags],
        "suggestions": [{"flag": item.flag, "because": item.because, "source": item.source} for item in judgement.suggestions],
        "decisions": [asdict(item) for item in judgement.decisions],
        "notes": list(judgement.notes),
    }


def _flag(flag: FlagVerdict) -> dict[str, Any]:
    return {
        "flag": flag.flag,
        "field": flag.field,
        "value": flag.value,
        "verdict": flag.verdict,
        "axes": axes_of(flag.axes),
        "because": flag.because,
        "do": flag.do,
        "source": flag.source,
        "becomes": flag.resolved,
    }


def axes_of(axes: Axes) -> dict[str, bool | None]:
    return {name: getattr(axes, name) for name in AXES}


def to_text(told: Told, *, colour: bool = False, width: int = 110) -> str:
    """A table for each range of releases."""
    lines: list[str] = []
    for one in told.ranges:
        lines += [*_head(told, one), ""]
        for flag in one.judgement.flags:
            lines += _flag_lines(flag, colour, width)
        lines += _tail(one, width)
    lines += _known_by_declaration(told)
    return "\n".join(lines).rstrip() + "\n"


def _head(told: Told, one: Range) -> list[str]:
    read = "" if one.judgement.read_at == one.judgement.release or one.first != one.last else f" (read in {one.judgement.read_at})"
    starts = "does NOT start" if one.judgement.starts is False else _STARTS[one.judgement.starts, bool(one.judgement.open)]
    return [
        f"SGLang {one.title if one.first != one.last else one.judgement.release}{read} · {told.gpu or 'GPU not known'} · "
        f"{told.model or 'model not known'}: {starts}"
    ]


def _flag_lines(flag: FlagVerdict, colour: bool, width: int) -> list[str]:
    value = "" if flag.value is True or flag.value is None else f" {_value(flag.value)}"
    verdict = f"{flag.verdict:<15}"
    if colour:
        verdict = f"\033[{_COLOURS.get(flag.verdict, '0')}m{verdict}\033[0m"
    lines = [f"  {verdict} {flag.flag}{value}"]
    text = flag.because + (f". {flag.do}" if flag.do else "")
    lines += _wrapped(text, width - 18, initial_indent=" " * 18, subsequent_indent=" " * 18)
    axes = ", ".join(f"{name.replace('_', ' ')} {_MARKS[getattr(flag.axes, name)]}" for name in AXES)
    return [*lines, f"{' ' * 18}{axes}", f"{' ' * 18}{flag.source}"]


def _value(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(str(item) for item in value)
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _tail(one: Range, width: int) -> list[str]:
    lines: list[str] = []
    if one.judgement.suggestions:
        lines += ["", "Helpful here and not set:"]
        for item in one.judgement.suggestions:
            lines += _wrapped(f"{item.flag}: {item.because} ({item.source})", width, initial_indent="  ", subsequent_indent="      ")
    known = [item for item in one.judgement.decisions if item.value is not None]
    if known:
        lines += ["", "What the server decides without saying it in its dump:"]
        for decision in known:
            name = decision.name.removeprefix("run.")
            lines += _wrapped(f"{name} = {decision.value}: {decision.because}", width, initial_indent="  ", subsequent_indent="      ")
    open_ = _open(one.judgement)
    if open_:
        lines += ["", "Not known, and it may stop the start:"]
        for text in open_:
            lines += _wrapped(text, width, initial_indent="  ", subsequent_indent="      ")
    if one.judgement.notes:
        lines.append("")
    for note in one.judgement.notes:
        lines += _wrapped(f"Note: {note}", width, subsequent_indent="      ")
    return [*lines, ""]


def _open(judgement: Judgement) -> list[str]:
    """The open questions, one line for each missing fact with the flags that wait for it."""
    waiting: dict[tuple[str, str], list[str]] = {}
    for item in judgement.open:
        flags = waiting.setdefault((item.because, item.do), [])
        if item.flag not in flags:
            flags.append(item.flag)
    return [f"{', '.join(flags)}: {because}. {do}" for (because, do), flags in waiting.items()]


def to_markdown(told: Told) -> str:
    """One table for each range of releases."""
    lines: list[str] = []
    for one in told.ranges:
        lines += [
            f"### {_head(told, one)[0]}",
            "",
            "| flag | verdict | why | what to do | " + " | ".join(AXES) + " |",
            "|---|---|---|---|" + "---|" * len(AXES),
        ]
        for flag in one.judgement.flags:
            value = "" if flag.value is True or flag.value is None else f" {_value(flag.value)}"
            cells = [
                f"`{flag.flag}{value}`",
                flag.verdict,
                f"{flag.because} ({flag.source})",
                flag.do,
                *(_MARKS[getattr(flag.axes, name)] for name in AXES),
            ]
            lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
        lines += [
            "",
            *(f"- Helpful: `{item.flag}`: {item.because} ({item.source})" for item in one.judgement.suggestions),
            *(
                f"- Decided by the server: {item.name.removeprefix('run.')} = {item.value}: {item.because}"
                for item in one.judgement.decisions
                if item.value is not None
            ),
            *(f"- Not known, and it may stop the start: {text}" for text in _open(one.judgement)),
            *(f"- Note: {note}" for note in one.judgement.notes),
            "",
        ]
    lines += _known_by_declaration(told)
    return "\n".join(lines).rstrip() + "\n"


def _known_by_declaration(told: Told) -> list[str]:
    """How much of the release is described, so that silence about a flag is not taken for approval."""
    if not told.undescribed:
        return []
    rest = len(told.undescribed)
    return [f"The library describes {told.described} flags of this release; {rest} are known by declaration only."]
