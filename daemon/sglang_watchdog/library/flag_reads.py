"""Finds out, by syntax tree, whether an SGLang release ever uses an argument that it declares.

A *read* is an attribute or key taken from something that is recognisably the server's arguments, outside the files that
declare and resolve them. A *resolution-only* field is used there alone, to derive others. *weak-only*: the name occurs,
but on other objects or as a string; a person has to judge. *never-read*: dead.
"""

import ast
import re
from collections.abc import Collection, Iterable

from .release_files import declares

_ARGUMENTS = re.compile(r"(?:^|_)(?:server_args|serverargs|sglang_args|sargs)$", re.IGNORECASE)
_CONTEXTS = re.compile(r"^get_(?:exec|parallel|memory|model|spec|schedule|serving|disagg|observability|lora|mm|device)$")
_GETTERS = frozenset({"get_global_server_args", "get_server_args", "resolving_view", "get_published_server_args"})
_DICTIONARIES = frozenset({"global_server_args_dict", "global_server_args"})
_BY_NAME = frozenset({"getattr", "hasattr", "resolution_result", "config_leaf", "_resolved_or_field"})
_NOT_SERVING = (
    "sglang/test/",
    "sglang/multimodal_gen/",
    "sglang/eval/",
    "sglang/lang/",
    "sglang/benchmark/",
    "sglang/cli/killall",
)
_BENCHMARKS = re.compile(r"sglang/(?:bench_|profiler)")

READ, RESOLUTION, WEAK, NEVER = "read", "resolution-only", "weak-only", "never-read"


def serves(path: str) -> bool:
    """False for tests, benchmarks, the frontend language and diffusion: code that no language-model server runs."""
    return not path.startswith(_NOT_SERVING) and not _BENCHMARKS.match(path)


def read_statuses(trees: Iterable[tuple[str, ast.Module]], fields: Collection[str]) -> dict[str, str]:
    """Return field -> one of the four statuses for the fields that a release declares, judged by the serving code's `trees`."""
    read: set[str] = set()
    resolution: set[str] = set()
    weak: set[str] = set()
    for path, tree in trees:
        in_declaration = declares(path)
        uses = _Uses(frozenset(fields), in_declaration)
        uses.visit(tree)
        if in_declaration:
            resolution |= uses.strong
        else:
            read |= uses.strong
            weak |= uses.weak
    return {
        name: READ if name in read else WEAK if name in weak else RESOLUTION if name in resolution else NEVER for name in fields
    }


def _last(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=attr):
            return attr
        case ast.Call(func=func):
            return _last(func)
        case ast.Subscript(value=value):
            return _last(value)
    return ""


class _Uses(ast.NodeVisitor):
    """Strong and weak uses of argument names in one file."""

    def __init__(self, fields: frozenset[str], in_declaration: bool) -> None:
        self.fields = fields
        self.in_declaration = in_declaration
        self.strong: set[str] = set()
        self.weak: set[str] = set()
        self._within: list[str] = []
        self._aliases: list[set[str]] = [set()]

    def _scope(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._within.append(node.name)
        self._aliases.append(set(self._aliases[-1]))
        self.generic_visit(node)
        self._aliases.pop()
        self._within.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._scope(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._scope(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope(node)

    def _is_arguments(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(id="ServerArgs"):
                return False  # the class: a default, not a value in use
            case ast.Name(id="self"):
                return self.in_declaration and "ServerArgs" in self._within
            case ast.Name(id="cfg" | "args" | "raw" | "view"):
                return self.in_declaration
            case ast.Name(id=name):
                return bool(_ARGUMENTS.search(name)) or name in self._aliases[-1]
            case ast.Attribute(value=inner, attr=attr):
                return bool(_ARGUMENTS.search(attr)) or self._is_context(inner)
            case ast.Call(func=function):
                name = _last(function)
                return name in _GETTERS or bool(_CONTEXTS.match(name))
        return False

    def _is_context(self, node: ast.AST) -> bool:
        """`get_exec().moe` and the like: a namespace of the late releases' runtime context."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Call) and bool(_CONTEXTS.match(_last(node.func)))

    def visit_Assign(self, node: ast.Assign) -> None:
        value = node.value
        is_namespace = isinstance(value, ast.Attribute) and self._is_context(value) and value.attr not in self.fields
        if self._is_arguments(value) or is_namespace:
            self._aliases[-1].update(target.id for target in node.targets if isinstance(target, ast.Name))
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in self.fields and isinstance(node.ctx, ast.Load):
            (self.strong if self._is_arguments(node.value) else self.weak).add(node.attr)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        key = node.slice
        if (
            isinstance(key, ast.Constant)
            and key.value in self.fields
            and _last(node.value) in _DICTIONARIES
            and isinstance(node.ctx, ast.Load)
        ):
            self.strong.add(str(key.value))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = _last(node.func)
        for index, argument in enumerate(node.args):
            if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str) and argument.value in self.fields):
                continue
            owner = node.func.value if isinstance(node.func, ast.Attribute) else None
            by_key = name == "get" and owner is not None and _last(owner) in _DICTIONARIES
            by_name = name in _BY_NAME and index == 1 and self._is_arguments(node.args[0])
            if by_key or by_name or name == "config_leaf":
                self.strong.add(argument.value)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and node.value in self.fields:
            self.weak.add(node.value)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg in self.fields:
            self.weak.add(str(node.arg))
        self.generic_visit(node)
