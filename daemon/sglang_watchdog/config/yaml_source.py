"""Reads YAML into plain values and remembers where each of them stood.

YAML 1.2's core types only: `yes`, `on`, `0.5.12`, `12:30` and `2026-01-01` stay text, because a rule file that turns
a release or a time into a number says something else than its author wrote. Keys are unique and text; no tags, no merge
keys.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from .faults import Fault

Way: TypeAlias = tuple[str | int, ...]
"""The way from the top of a document to one of its values: keys and list indices."""

LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MOST_VALUES: Final = 200_000  # aliases can make a small file grow without bound
MOST_BYTES: Final = 8 << 20
LONGEST_NUMBER: Final = 300  # characters; Python refuses to read very long ones
CORE_TAGS: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "timestamp", "value", "merge"))
BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # what YAML counts as the end of a line
PLAIN: Final = (
    (re.compile(r"(?:~|null|Null|NULL|)$"), lambda _: None),
    (re.compile(r"(?:true|True|TRUE)$"), lambda _: True),
    (re.compile(r"(?:false|False|FALSE)$"), lambda _: False),
    (re.compile(r"[-+]?[0-9]+$"), int),
    (re.compile(r"0x[0-9a-fA-F]+$"), lambda text: int(text, 16)),
    (re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$"), float),
    (re.compile(r"[-+]?\.(?:inf|Inf|INF)$"), lambda text: float(text.replace(".", ""))),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a key or value begins; line and column from 1, width within its first line."""

    line: int
    column: int
    width: int = 1


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML file: its value, and the place of each key and value by its way from the top."""

    path: str
    text: str
    value: Any = None
    values: Mapping[Way, Place] = field(default_factory=dict)
    keys: Mapping[Way, Place] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    def at(self, way: Way, *, key: bool = False) -> Place:
        """The place of `way`, or of the nearest thing around it. Steps that the text left out (a list of one that was
        written without its list) are passed over."""
        known: Way = ()
        for step in way:
            if (*known, step) in self.values:
                known = (*known, step)
        if key and known in self.keys:
            return self.keys[known]
        return self.values.get(known, Place(1, 1))

    def fault(
        self,
        way: Way,
        message: str,
        *,
        key: bool = False,
        code: str = "",
        note: str = "",
        help: str = "",
        is_warning: bool = False,
    ) -> Fault:
        """A fault that points at `way` in this document."""
        place = self.at(way, key=key) if self.text else Place(0, 0)
        return Fault(
            path=self.path,
            message=message,
            code=code,
            line=place.line,
            column=place.column,
            width=place.width,
            note=note,
            help=help,
            excerpt=_line(self.text, place.line),
            is_warning=is_warning,
        )


def _line(text: str, number: int) -> str:
    lines = BREAK.split(text)
    return lines[number - 1] if 0 < number <= len(lines) else ""


def read_yaml(text: str, path: str, *, code: str = "") -> Document:
    """Read one document. Where `Document.faults` is not empty, `value` holds what could be read (None: bad syntax)."""
    try:
        node = yaml.compose(text, Loader=LOADER)
        if node is None:
            return Document(path, text, value=None)
        builder = _Builder(path, text, code)
        value = builder.build(node, ())
    except yaml.YAMLError as error:
        return Document(path, text, faults=(_syntax_fault(error, text, path, code),))
    except RecursionError:
        return _unreadable(path, code, "nested too deeply", "No file of ours needs more than ten levels.")
    return Document(path, text, value, builder.values, builder.keys, tuple(builder.faults))


def read_yaml_file(path: Path, name: str | None = None, *, code: str = "") -> Document:
    """Read a file as UTF-8. A file that cannot be opened or decoded is a fault like any other."""
    shown = name or str(path)
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            return _unreadable(shown, code, f"larger than {MOST_BYTES >> 20} MiB", "Split it: one signature a file.")
        return read_yaml(data.decode("utf-8-sig"), shown, code=code)
    except UnicodeDecodeError as error:
        return _unreadable(shown, code, f"not UTF-8 (byte {error.start})", "Save the file as UTF-8.")
    except OSError as error:
        return _unreadable(shown, code, f"cannot be read: {error.strerror}", "Check the path and its permissions.")


def _unreadable(path: str, code: str, message: str, help: str) -> Document:
    return Document(path, "", faults=(Fault(path=path, code=code, message=message, help=help),))


def _syntax_fault(error: yaml.YAMLError, text: str, path: str, code: str) -> Fault:
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", "") or error).strip().splitlines()[0]
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    advice = "Quote text that holds `: `, ` #`, or begins with one of `[]{}*&!|>%@'\"`."
    if "tab" in problem or "\t" in _line(text, line)[:column]:
        advice = "Indent with spaces, never with tabs."
    return Fault(
        path=path,
        code=code,
        message=f"not valid YAML: {problem}",
        line=line,
        column=column,
        help=advice,
        excerpt=_line(text, line),
    )


class _Builder:
    """Turns composed nodes into values, places and faults."""

    def __init__(self, path: str, text: str, code: str) -> None:
        self.path, self.text, self.code = path, text, code
        self.values: dict[Way, Place] = {}
        self.keys: dict[Way, Place] = {}
        self.faults: list[Fault] = []
        self._open: list[int] = []  # ids of the nodes around this one: an alias to one of them has no end

    def build(self, node: Any, way: Way) -> Any:
        self.values[way] = _place(node)
        if len(self.values) > MOST_VALUES:
            if len(self.values) == MOST_VALUES + 1:
                self._fault(node, "too many values (aliases that multiply?)", "Write the values out.")
            return None
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self._open:
            self._fault(node, "an alias points at what it stands in", "Write the value out.")
            return None
        self._open.append(id(node))
        value = (
            self._mapping(node, way)
            if isinstance(node, yaml.MappingNode)
            else [self.build(item, (*way, index)) for index, item in enumerate(node.value)]
        )
        self._open.pop()
        return value

    def _mapping(self, node: Any, way: Way) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._fault(key_node, "a key must be a word", "")
                continue
            key = str(key_node.value)
            if key == "<<" and not key_node.style:
                self._fault(key_node, "merge keys (`<<`) are not supported", "Write the keys out.")
                continue
            if key in out:
                first = self.keys[(*way, key)]
                self._fault(key_node, f"`{key}` is given twice", f"It stands in line {first.line} already; keep one.")
                continue
            self.keys[(*way, key)] = _place(key_node)
            out[key] = self.build(value_node, (*way, key))
        return out

    def _scalar(self, node: Any) -> Any:
        text = str(node.value)
        if node.tag not in CORE_TAGS:
            self._fault(node, f"unknown tag `{node.tag}`", "Remove the tag; values are plain YAML.")
            return text
        if node.style or len(text) > LONGEST_NUMBER:  # quoted, or a block
            return text
        for form, convert in PLAIN:
            if form.match(text):
                return convert(text)
        return text

    def _fault(self, node: Any, message: str, help: str) -> None:
        place = _place(node)
        self.faults.append(
            Fault(
                path=self.path,
                code=self.code,
                message=message,
                line=place.line,
                column=place.column,
                width=place.width,
                help=help,
                excerpt=_line(self.text, place.line),
            )
        )


def _place(node: Any) -> Place:
    start, end = node.start_mark, node.end_mark
    width = end.column - start.column if end.line == start.line else 1
    return Place(start.line + 1, start.column + 1, max(1, width))


def walk(value: Any, way: Way = ()) -> Iterator[tuple[Way, Any]]:
    """Every scalar of a document with the way to it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk(inner, (*way, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from walk(inner, (*way, index))
    else:
        yield way, value
