"""Finds every place in a module that logs, prints, raises or draws a progress bar, with the template of what it says."""

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from .scopes import Assignment, Scope, blocks_of, runs_through
from .templates import (
    NAMELESS,
    Choice,
    Fixed,
    Hole,
    Maybe,
    Piece,
    Template,
    brace_template,
    fixed_length,
    merged,
    percent_template,
)

DEEPEST: Final = 5
LEVELS: Final = {"debug": "debug", "info": "info", "warning": "warning", "warn": "warning", "error": "error",
                 "critical": "critical", "exception": "error", "fatal": "critical"}  # fmt: skip
ONCE: Final = re.compile(r"^(debug|info|warning|warn|error)_once$")
LOGGER: Final = re.compile(r"(^|_)(log|logger|logging)$", re.I)
# Functions of SGLang that pass a message on: name -> (level, position of the message).
HELPERS: Final = {
    "log_info_on_rank0": ("info", 1), "log_debug_on_rank0": ("debug", 1), "log_warning_on_rank0": ("warning", 1),
    "print_warning_once": ("warning", 0), "print_info_once": ("info", 0), "rank0_log": ("info", 0),
    "rank0_print": ("info", 0), "rank0_printf": ("info", 0), "print_deprecated_warning": ("warning", 0),
    "_warn_once": ("warning", 0),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Message:
    """`level` is a logging level, "print", "progress" or "raise"; `name` the class of an exception or
    of what warnings.warn prints, "" for all others."""

    file: str
    function: str
    line: int
    level: str
    name: str
    template: Template


@dataclass(frozen=True, slots=True)
class _Site:
    level: str
    arguments: Sequence[ast.expr]
    name: str = ""


def dotted(node: ast.AST) -> str:
    """The identifiers that a value comes from; never a copy of the expression."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=inner, attr=attribute):
            base = dotted(inner)
            return attribute if base == NAMELESS else f"{base}.{attribute}"
        case ast.Call(func=inner):
            base = dotted(inner)
            return base if base == NAMELESS else f"{base}()"
        case ast.Subscript(value=inner):
            base = dotted(inner)
            return base if base == NAMELESS else f"{base}[]"
    return NAMELESS


class MessageFinder(ast.NodeVisitor):
    """Collects the messages of one module in `messages`."""

    def __init__(self, file: str, tree: ast.Module) -> None:
        self.file = file
        self.messages: list[Message] = []
        self._stack: list[str] = []
        self._scopes = [Scope(tree.body)]
        self._branches: list[tuple[int, ...]] = [()]
        self._constants = _constants(tree)
        self.visit(tree)

    # --- structure -------------------------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._stack.append(node.name)
        self._scopes.append(Scope(node.body))
        self._branches.append(())
        for statement in node.body:
            self.visit(statement)
        self._branches.pop()
        self._scopes.pop()
        self._stack.pop()

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._stack.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._stack.pop()

    def _visit_compound(self, node: ast.stmt) -> None:
        """A statement that holds blocks; what is no block (its test, its items) is visited plainly."""
        blocks = blocks_of(node)
        inside = {id(block) for block in blocks}
        for index, block in enumerate(blocks):
            here = self._branches[-1]
            self._branches.append(here if runs_through(node, index) else (*here, id(block)))
            for statement in block:
                self.visit(statement)
            self._branches.pop()
        for _, value in ast.iter_fields(node):
            for item in value if isinstance(value, list) and id(value) not in inside else [value]:
                if isinstance(item, (ast.expr, ast.withitem)):
                    self.visit(item)

    visit_If = visit_For = visit_AsyncFor = visit_While = visit_With = visit_AsyncWith = _visit_compound
    visit_Try = visit_TryStar = visit_Match = _visit_compound

    # --- places ----------------------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> None:
        site = _site(node)
        if site is not None and site.arguments:
            self._record(node, site)
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        if isinstance(node.exc, ast.Call) and node.exc.args:
            name = dotted(node.exc.func).rsplit(".", 1)[-1]
            self._record(node, _Site("raise", node.exc.args[:1], name))
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        if node.msg is not None:
            self._record(node, _Site("raise", [node.msg], "AssertionError"))
        self.generic_visit(node)

    def _record(self, node: ast.expr | ast.stmt, site: _Site) -> None:
        message, values = site.arguments[0], list(site.arguments[1:])
        pieces = list(self._template(message, node.lineno, 0, values))
        if site.level == "print":
            for value in values:
                pieces += [Fixed(" "), *self._template(value, node.lineno, 0, [])]
        template = merged(pieces)
        if fixed_length(template) or len(template) > 1:
            function = ".".join(self._stack) or "<module>"
            self.messages.append(Message(self.file, function, node.lineno, site.level, site.name, template))

    # --- expressions -----------------------------------------------------------------------------------------------

    def _template(self, node: ast.expr, line: int, depth: int, values: Sequence[ast.expr]) -> Template:
        if depth > DEEPEST:
            return (Hole(dotted(node)),)
        again = partial(self._template, line=line, depth=depth + 1, values=())
        match node:
            case ast.Constant(value=str() as text):
                return percent_template(text, [dotted(value) for value in values]) if values and "%" in text else (Fixed(text),)
            case ast.Constant(value=other):
                return (Fixed(str(other)),)
            case ast.JoinedStr(values=parts):
                return tuple(piece for part in parts for piece in _part(part, again))
            case ast.BinOp(op=ast.Add(), left=left, right=right) if not _is_number(left) and not _is_number(right):
                return self._template(left, line, depth + 1, values) + self._template(right, line, depth + 1, values)
            case ast.BinOp(left=ast.Constant(value=str() as text), op=ast.Mod(), right=right):
                items = right.elts if isinstance(right, ast.Tuple) else [right]
                return percent_template(text, [dotted(item) for item in items])
            case ast.Call(func=ast.Attribute(value=ast.Constant(value=str() as text), attr="format")):
                return brace_template(text)
            case ast.Call(func=ast.Attribute(value=inner, attr="strip" | "rstrip" | "lstrip")):
                return again(inner)
            case ast.IfExp(body=first, orelse=second):
                return (Choice((merged(again(first)), merged(again(second)))),)
            case ast.BoolOp(op=ast.Or(), values=options):
                return (Choice(tuple(merged(again(option)) for option in options)),)
            case ast.Name(id=name):
                return self._of_name(name, line, depth, values)
        return (Hole(dotted(node)),)

    def _of_name(self, name: str, line: int, depth: int, values: Sequence[ast.expr]) -> Template:
        if name in self._constants:
            text = self._constants[name]
            return percent_template(text, [dotted(value) for value in values]) if values and "%" in text else (Fixed(text),)
        history = self._scopes[-1].before(name, line)
        certain = [index for index, one in enumerate(history) if not one.appends and self._is_certain(one)]
        heads: list[Template] = []
        tail: list[Piece] = []
        for one in history[certain[-1] if certain else 0 :]:
            if not one.appends and _mentions(one.value, name):
                continue
            piece = merged(self._template(one.value, one.line, depth + 1, () if one.appends else values))
            if one.appends:
                tail += piece if self._is_certain(one) else [Maybe(piece)]
            else:
                heads.append((Hole(name),) if all(isinstance(part, Hole) for part in piece) else piece)
        unique = list(dict.fromkeys(heads))
        head: Template = (Hole(name),) if not unique else unique[0] if len(unique) == 1 else (Choice(tuple(unique)),)
        return (*head, *tail)

    def _is_certain(self, one: Assignment) -> bool:
        return self._branches[-1][: len(one.branch)] == one.branch


def _part(part: ast.expr, again: Callable[[ast.expr], Template]) -> Template:
    """One part of an f-string."""
    if isinstance(part, ast.Constant):
        return (Fixed(str(part.value)),)
    if not isinstance(part, ast.FormattedValue):
        return (Hole(NAMELESS),)
    spec = ""
    if isinstance(part.format_spec, ast.JoinedStr):
        spec = "".join(str(piece.value) if isinstance(piece, ast.Constant) else "*" for piece in part.format_spec.values)
    if not spec and part.conversion == -1:
        inner = again(part.value)
        if any(not isinstance(piece, Hole) for piece in inner):
            return inner
    return (Hole(dotted(part.value), spec),)


def _constants(tree: ast.Module) -> dict[str, str]:
    """Module-level names that hold text."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not isinstance(node.value, str)


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(inner, ast.Name) and inner.id == name for inner in ast.walk(node))


def _site(node: ast.Call) -> _Site | None:
    """What a call says and at which level, if it says anything."""
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if isinstance(function, ast.Attribute):
        base = dotted(function.value).rsplit(".", 1)[-1].rstrip("()")
        if LOGGER.search(base) or base in ("get_logger", "getLogger"):
            if name in LEVELS:
                return _Site(LEVELS[name], node.args)
            if once := ONCE.match(name):
                return _Site(LEVELS[once[1]], node.args)
            if name == "log" and len(node.args) >= 2:
                return _Site(LEVELS.get(dotted(node.args[0]).rsplit(".", 1)[-1].lower(), "info"), node.args[1:])
        if base == "warnings" and name == "warn":
            return _Site("warning", node.args[:1], dotted(node.args[1]) if len(node.args) > 1 else "UserWarning")
        if name == "write" and base in ("stdout", "stderr"):
            return _Site("print", node.args)
    if name in HELPERS:
        level, position = HELPERS[name]
        return _Site(level, node.args[position:])
    if name == "print" and isinstance(function, ast.Name):
        return _Site("print", node.args)
    if name in ("trange", "tqdm_asyncio") or name.endswith("tqdm"):
        return next((_Site("progress", [keyword.value]) for keyword in node.keywords if keyword.arg == "desc"), None)
    return None
