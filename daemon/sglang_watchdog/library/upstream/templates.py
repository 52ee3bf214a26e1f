"""Message templates: what is fixed in a message, what is filled in, what may be missing."""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Fixed:
    text: str


@dataclass(frozen=True, slots=True)
class Hole:
    """A value; `spec` is its format (".2f", "d"), `name` the identifiers it comes from."""

    name: str
    spec: str = ""


@dataclass(frozen=True, slots=True)
class Maybe:
    """Appended only under a condition."""

    pieces: "Template"


@dataclass(frozen=True, slots=True)
class Choice:
    options: "tuple[Template, ...]"


Piece: TypeAlias = Fixed | Hole | Maybe | Choice
Template: TypeAlias = tuple[Piece, ...]

PERCENT: Final = re.compile(r"%(?:\((?P<name>\w+)\))?[#0\- +]*(?:\*|\d+)?(?:\.(?P<digits>\*|\d+))?(?P<type>[diouxXeEfFgGcrsa%])")
BRACE: Final = re.compile(r"\{\{|\}\}|\{(?P<name>[^{}:!]*)(?:![rsa])?(?::(?P<spec>[^{}]*))?\}")
NUMBER_NAME: Final = re.compile(
    r"(num|len|size|count|bytes|_gb|_mb|usage|rate|time|latency|tokens?|mem|rank|id|port|ratio|max|min|bs|idx|step|sec"
    r"|dur|throughput|elapsed|code|pid|version)",
    re.I,
)
WORDS: Final = {
    "number": "7", "decimal": "3.14", "word": "triton", "path": "/data/model-x/E=8,N=14,device_name=Some_GPU.json",
    "flag": "True",
}  # fmt: skip
STYLES: Final = (*WORDS, "guess")
NAMELESS: Final = "…"


def merged(pieces: Sequence[Piece]) -> Template:
    """Neighbouring fixed texts joined, empty pieces dropped."""
    out: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, Fixed):
            if not piece.text:
                continue
            if out and isinstance(out[-1], Fixed):
                out[-1] = Fixed(out[-1].text + piece.text)
                continue
        if isinstance(piece, Maybe) and not piece.pieces:
            continue
        out.append(piece)
    return tuple(out)


def percent_template(text: str, names: Sequence[str]) -> Template:
    """`"%d of %s"` with the names of its values."""
    out: list[Piece] = []
    position, index = 0, 0
    for found in PERCENT.finditer(text):
        out.append(Fixed(text[position : found.start()]))
        position = found.end()
        if found["type"] == "%":
            out.append(Fixed("%"))
            continue
        name = found["name"] or (names[index] if index < len(names) else NAMELESS)
        index += 0 if found["name"] else 1
        digits = f".{found['digits']}" if found["digits"] else ""
        out.append(Hole(name, digits + found["type"] if found["type"] not in "sra" else ""))
    return (*out, Fixed(text[position:]))


def brace_template(text: str) -> Template:
    """`"{a:.2f} of {}".format(…)`."""
    out: list[Piece] = []
    position = 0
    for found in BRACE.finditer(text):
        out.append(Fixed(text[position : found.start()]))
        position = found.end()
        if found[0] in ("{{", "}}"):
            out.append(Fixed(found[0][0]))
        else:
            name = re.match(r"[\w.]*", found["name"] or "")
            out.append(Hole((name[0] if name else "") or NAMELESS, found["spec"] or ""))
    return (*out, Fixed(text[position:]))


def render(template: Template) -> str:
    """Readable: {name}, {name:.2f}, [?optional part?], (this|that)."""
    out = []
    for piece in template:
        match piece:
            case Fixed(text):
                out.append(text)
            case Hole(name, spec):
                out.append("{" + name + (f":{spec}" if spec else "") + "}")
            case Maybe(pieces):
                out.append("[?" + render(pieces) + "?]")
            case Choice(options):
                out.append("(" + "|".join(render(option) for option in options) + ")")
    return "".join(out)


def fixed_length(template: Template) -> int:
    """Letters and digits that are always in the message."""
    total = 0
    for piece in template:
        if isinstance(piece, Fixed):
            total += sum(character.isalnum() for character in piece.text)
        elif isinstance(piece, Choice):
            total += min((fixed_length(option) for option in piece.options), default=0)
    return total


def longest_fixed(template: Template) -> str:
    """The longest text that is always in the message."""
    return max((piece.text for piece in template if isinstance(piece, Fixed)), key=len, default="")


def regex_of(template: Template) -> str:
    """A Python regex that every message of the template matches."""
    out = []
    for piece in template:
        match piece:
            case Fixed(text):
                out.append(re.escape(text))
            case Hole(_, spec) if re.search(r"[dxo]$", spec):
                out.append(r"\s*-?[\w,]+")
            case Hole(_, spec) if re.search(r"[fFeEgG%]$", spec):
                out.append(r"\s*-?(?:[\d,.eE+-]+%?|nan|inf)")
            case Hole():
                out.append(r"[\s\S]*?")
            case Maybe(pieces):
                out.append(f"(?:{regex_of(pieces)})?")
            case Choice(options):
                out.append("(?:" + "|".join(regex_of(option) for option in options) + ")")
    return "".join(out)


def samples(template: Template) -> Iterator[str]:
    """Distinct messages of the template with values of several kinds in its holes."""
    kinds = set(_kinds(template))
    seen: set[str] = set()
    for style, with_optional, choice in itertools.product(
        STYLES if Hole in kinds else ("word",), (True, False) if Maybe in kinds else (True,),
        range(4) if Choice in kinds else (0,),
    ):  # fmt: skip
        text = _filled(template, style, with_optional, choice)
        if text not in seen:
            seen.add(text)
            yield text


def _kinds(template: Template) -> Iterator[type]:
    for piece in template:
        yield type(piece)
        if isinstance(piece, Maybe):
            yield from _kinds(piece.pieces)
        elif isinstance(piece, Choice):
            for option in piece.options:
                yield from _kinds(option)


def _filled(template: Template, style: str, with_optional: bool, choice: int) -> str:
    out = []
    for piece in template:
        match piece:
            case Fixed(text):
                out.append(text)
            case Hole(name, spec):
                out.append(_value(name, spec, style))
            case Maybe(pieces) if with_optional:
                out.append(_filled(pieces, style, with_optional, choice))
            case Choice(options) if options:
                out.append(_filled(options[choice % len(options)], style, with_optional, choice))
    return "".join(out)


def _value(name: str, spec: str, style: str) -> str:
    kind = spec[-1:]
    if kind and kind in "dxoX":
        return "7"
    if kind and kind in "fFeEgG":
        digits = re.search(r"\.(\d+)", spec)
        return f"{3.1415926:.{int(digits[1]) if digits else 6}f}"
    if kind == "%":
        return "31.4%"
    if style == "guess":
        style = "number" if NUMBER_NAME.search(name.rsplit(".", 1)[-1]) else "word"
    return WORDS[style]


def to_json(template: Template) -> list[Any]:
    """A plain form for caches."""
    out: list[Any] = []
    for piece in template:
        match piece:
            case Fixed(text):
                out.append(text)
            case Hole(name, spec):
                out.append({"name": name, "spec": spec})
            case Maybe(pieces):
                out.append({"maybe": to_json(pieces)})
            case Choice(options):
                out.append({"choice": [to_json(option) for option in options]})
    return out


def from_json(value: list[Any]) -> Template:
    """The template of its plain form."""
    out: list[Piece] = []
    for item in value:
        if isinstance(item, str):
            out.append(Fixed(item))
        elif "maybe" in item:
            out.append(Maybe(from_json(item["maybe"])))
        elif "choice" in item:
            out.append(Choice(tuple(from_json(option) for option in item["choice"])))
        else:
            out.append(Hole(item["name"], item["spec"]))
    return tuple(out)
