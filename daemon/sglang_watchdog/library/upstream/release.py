"""All facts of one release, read once and kept as JSON: parsing a release takes many seconds, reading the facts does not."""

import ast
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .arguments import declared_fields, is_declaration
from .messages import Message, MessageFinder
from .templates import from_json, to_json
from .trees import Tree

FORMAT: Final = 2  # of the cache; raised when reading finds other things


@dataclass(frozen=True, slots=True)
class ReleaseFacts:
    version: str
    messages: tuple[Message, ...]
    fields: dict[str, str]  # argument -> type


def read_release(tree: Tree, cache: Path | None = None) -> ReleaseFacts:
    """The facts of a release, from the cache where it has them."""
    path = None if cache is None else cache / f"sglang-{tree.version}.facts.json"
    if path is not None and path.is_file():
        kept = json.loads(path.read_text("utf-8"))
        if kept.get("format") == FORMAT:
            return ReleaseFacts(tree.version, tuple(_messages(kept["messages"])), kept["fields"])
    facts = _parse(tree)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [[m.file, m.function, m.line, m.level, m.name, to_json(m.template)] for m in facts.messages]
        text = json.dumps({"format": FORMAT, "messages": rows, "fields": facts.fields}, ensure_ascii=False)
        path.write_text(text, "utf-8")
    return facts


def _messages(rows: list[list[object]]) -> Iterator[Message]:
    for file, function, line, level, name, template in rows:
        yield Message(str(file), str(function), int(str(line)), str(level), str(name), from_json(list(template)))  # type: ignore[call-overload]


def _parse(tree: Tree) -> ReleaseFacts:
    messages: list[Message] = []
    fields: dict[str, str] = {}
    for file, text in tree.files():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # invalid escapes in other people's strings
            try:
                parsed = ast.parse(text, file)
            except SyntaxError:  # a template of a file, or for another Python
                continue
        messages += MessageFinder(file, parsed).messages
        if is_declaration(file):
            for name, kind in declared_fields(file, parsed).items():
                fields.setdefault(name, kind)
    return ReleaseFacts(tree.version, tuple(messages), fields)
