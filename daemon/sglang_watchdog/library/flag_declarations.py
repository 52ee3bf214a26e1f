"""Reads the command-line options and argument fields that an SGLang release declares, from its source by syntax tree.

Nothing of the release is imported or run. Three styles exist: `add_argument` calls with a dataclass (to 0.5.13),
`A[type, Arg(...)]` annotations on the dataclass (from 0.5.14), and the same spread over `arg_groups/fields/` (from
0.5.20).
"""

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

UNKNOWN_DEFAULT = {"expr": True}  # a default that is no literal; the source decides at run time
_ACTIONS = {
    "store_true": "flag",
    "store_false": "flag-off",
    "DeprecatedStoreTrueAction": "alias-flag",
    "DeprecatedStoreConstAction": "alias-const",
    "DeprecatedAliasStoreAction": "alias",
    "LoRAPathAction": "store",
    "append": "append",
}


@dataclass(frozen=True, slots=True)
class DeclaredOption:
    """One option string. `action`: store, append, flag, flag-off, alias (stores to a new field), alias-flag, alias-const,
    warn (accepted, stores nothing), raise (refuses to start).
    """

    field: str
    action: str
    type: str = "str"
    nargs: str | int | None = None
    choices: tuple[str, ...] | None = None  # None: anything, or not readable from the source
    new: str = ""  # the replacement that the release itself names
    says: str = ""  # words of the error a `raise` option stops with
    const: Any = None
    required: bool = False


@dataclass(slots=True)
class Declarations:
    """What one release declares: defaults by field (a JSON value or UNKNOWN_DEFAULT) and options by option string."""

    defaults: dict[str, Any] = field(default_factory=dict)
    options: dict[str, DeclaredOption] = field(default_factory=dict)


def read_declarations(trees: Mapping[str, ast.Module]) -> Declarations:
    """Collect fields and options from the declaring files of one release."""
    reader = _Reader(_constants(trees), _deprecation_raises(trees))
    for path, tree in trees.items():
        in_fields = path.startswith("sglang/srt/arg_groups/fields/")
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and (node.name == "ServerArgs" or in_fields):
                reader.add_class(node)
    for path, tree in trees.items():
        if path == "sglang/srt/server_args.py":
            reader.add_renames(tree)
            reader.add_arguments(tree)
    return reader.found


def _constants(trees: Mapping[str, ast.Module]) -> dict[str, list[str] | None]:
    """Module-level lists of strings by name; names assembled at run time are left out."""
    found: dict[str, list[str] | None] = {}
    for tree in trees.values():
        for node in tree.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                value = _strings(node.value, found)
                if value is not None:
                    found[node.targets[0].id] = value
    return found


def _strings(node: ast.expr | None, constants: Mapping[str, list[str] | None]) -> list[str] | None:
    """The list of strings that an expression stands for, or None if that needs running it."""
    match node:
        case ast.List(elts=elts) | ast.Tuple(elts=elts) | ast.Set(elts=elts):
            out: list[str] = []
            for element in elts:
                if isinstance(element, ast.Starred):
                    inner = _strings(element.value, constants)
                    if inner is None:
                        return None
                    out += inner
                elif isinstance(element, ast.Constant):
                    out.append(str(element.value))
                else:
                    return None
            return out
        case ast.Name(id=name):
            return constants.get(name)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            one, two = _strings(left, constants), _strings(right, constants)
            return None if one is None or two is None else one + two
        case ast.Call(func=ast.Name(id="list" | "sorted" | "tuple"), args=[inner_node]):
            return _strings(inner_node, constants)
    return None


def _deprecation_raises(trees: Mapping[str, ast.Module]) -> bool:
    """Whether this release's DeprecatedAction refuses to start (0.4.6, 0.5.3 to 0.5.6) instead of warning."""
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == "DeprecatedAction":
                call = next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__call__"), None)
                return call is not None and any(isinstance(statement, ast.Raise) for statement in call.body)
    return False


def _name(node: ast.AST | None) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=attr):
            return attr
        case ast.Constant(value=str() as text):
            return text
        case ast.Subscript(value=value):
            return _name(value)
        case ast.Call(func=func):
            return _name(func)
    return ""


def _words(node: ast.expr | None) -> str:
    """The fixed words of a string expression, f-strings with their holes left out."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_words(value) for value in values if isinstance(value, ast.Constant))
        case ast.BinOp(left=left, right=right):
            return _words(left) + _words(right)
    return ""


def _keywords(node: ast.Call) -> dict[str, ast.expr]:
    return {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}


class _Reader:
    def __init__(self, constants: Mapping[str, list[str] | None], deprecated_raises: bool) -> None:
        self.found = Declarations()
        self._constants = constants
        self._deprecated_raises = deprecated_raises
        self._renames: dict[str, str] = {}  # argparse destination -> field, from from_cli_args

    # -- fields -------------------------------------------------------------------------------------------------------
    def add_class(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
                continue
            name = statement.target.id
            if name.startswith("_") or "ClassVar" in ast.unparse(statement.annotation)[:24]:
                continue
            parts = _annotated(statement.annotation)
            if any(isinstance(part, ast.Call) and _name(part.func) == "Derived" for part in parts[1:]):
                continue
            self.found.defaults.setdefault(name, self._default(statement.value))
            self._add_annotated(name, parts)

    def _add_annotated(self, name: str, parts: list[ast.expr]) -> None:
        meta = next((part for part in parts[1:] if isinstance(part, ast.Call) and _name(part.func) == "Arg"), None)
        has_help = any(isinstance(part, (ast.Constant, ast.JoinedStr, ast.BinOp)) for part in parts[1:])
        if meta is None and not has_help:
            return
        keywords = _keywords(meta) if meta is not None else {}
        if _true(keywords.get("no_cli")):
            return
        first = _words(keywords.get("cli_name")) or "--" + name.replace("_", "-")
        options = [first, *(_strings(keywords.get("aliases"), self._constants) or [])]
        kind, kind_nargs, literal = _kind(parts[0])
        extra = keywords.get("action_kwargs")
        if isinstance(extra, ast.Dict):
            keywords |= {_words(key): value for key, value in zip(extra.keys, extra.values, strict=True) if key is not None}
        if "type_parser" in keywords:
            keywords["type"] = keywords.pop("type_parser")
            kind_nargs = None
        if "choices" not in keywords and literal is not None:
            keywords["choices"] = literal
        if kind == "bool" and "action" not in keywords and "type" not in keywords:
            keywords["action"] = ast.Constant("store_true")
        if "nargs" not in keywords and kind_nargs and "action" not in keywords:
            keywords["nargs"] = ast.Constant(kind_nargs)
        keywords.setdefault("type", ast.Name(kind))
        self._put(options, name, keywords)

    # -- options ------------------------------------------------------------------------------------------------------
    def add_renames(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            match node:
                case ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(id="args"), attr=target)],
                    value=ast.Attribute(value=ast.Name(id="args"), attr=dest),
                ):
                    self._renames.setdefault(dest, target)

    def add_arguments(self, tree: ast.Module) -> None:
        for function in ast.walk(tree):
            if not (isinstance(function, ast.FunctionDef) and function.name == "add_cli_args"):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
                    options = [text for text in (_words(item) for item in node.args) if text.startswith("-")]
                    if options:
                        keywords = _keywords(node)
                        longest = next((text for text in options if text.startswith("--")), options[0])
                        dest = _words(keywords.get("dest")) or longest.lstrip("-").replace("-", "_")
                        self._put(options, self._field_of(dest, options), keywords)

    def _field_of(self, dest: str, options: Iterable[str]) -> str:
        candidates = [dest, self._renames.get(dest, ""), *(text.lstrip("-").replace("-", "_") for text in options)]
        return next((name for name in candidates if name in self.found.defaults), dest)

    def _put(self, options: list[str], target: str, keywords: Mapping[str, ast.expr]) -> None:
        action_node = keywords.get("action")
        action_name = _name(action_node)
        action = _ACTIONS.get(action_name, "store")
        if action_name == "DeprecatedAction":
            action = "raise" if self._deprecated_raises or "error_message" in keywords else "warn"
        type_name = _name(keywords.get("type")) or "str"
        nargs_node = keywords.get("nargs")
        nargs = nargs_node.value if isinstance(nargs_node, ast.Constant) else None
        says = _words(keywords.get("error_message"))
        if action == "raise" and not says:
            says = _words(keywords.get("help"))
        choices = _strings(keywords.get("choices"), self._constants)
        const_node = keywords.get("const_value", keywords.get("const"))
        new = _words(keywords.get("new_flag"))
        const = const_node.value if isinstance(const_node, ast.Constant) else None
        if action == "alias-const" and const is None and "=" in new:
            const = new.partition("=")[2]  # the constant is an enumeration's member; the new flag names its value
        if action == "raise" and not new:
            new = next((text for text in re.findall(r"--[a-z0-9-]+", says) if text not in options), "")
        option = DeclaredOption(
            field=target,
            action=action,
            type=type_name,
            nargs=nargs if isinstance(nargs, (str, int)) else None,
            choices=tuple(choices) if choices is not None else None,
            new=new,
            says=says,
            const=const,
            required=_true(keywords.get("required")),
        )
        for text in options:
            self.found.options[text] = option
            if action_name == "BooleanOptionalAction" and text.startswith("--"):
                self.found.options[text] = _as(option, "flag")
                self.found.options["--no-" + text[2:]] = _as(option, "flag-off")
        self._cli_default(target, action, keywords)

    def _cli_default(self, target: str, action: str, keywords: Mapping[str, ast.expr]) -> None:
        """argparse's own default wins over the dataclass, where it is a literal of its own."""
        node = keywords.get("default")
        if (
            target in self.found.defaults
            and isinstance(node, (ast.Constant, ast.List, ast.Dict, ast.UnaryOp))
            and action in ("store", "flag", "flag-off", "append")
        ):
            self.found.defaults[target] = self._default(node)

    def _default(self, node: ast.expr | None) -> Any:
        if node is None:
            return None
        try:
            value = ast.literal_eval(node)
        except ValueError:
            if isinstance(node, ast.Call):
                keywords = _keywords(node)
                if "default" in keywords:
                    return self._default(keywords["default"])
                return {"list": [], "dict": {}}.get(_name(keywords.get("default_factory")), UNKNOWN_DEFAULT)
            if isinstance(node, ast.Name) and node.id in self._constants:
                return self._constants[node.id]
            return UNKNOWN_DEFAULT
        return list(value) if isinstance(value, (tuple, set)) else value


def _as(option: DeclaredOption, action: str) -> DeclaredOption:
    return DeclaredOption(field=option.field, action=action, type="bool")


def _true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _annotated(annotation: ast.expr) -> list[ast.expr]:
    """The parts of `A[type, ...]` or `Annotated[type, ...]`; another annotation is its own only part."""
    if (
        isinstance(annotation, ast.Subscript)
        and _name(annotation.value) in ("A", "Annotated")
        and isinstance(annotation.slice, ast.Tuple)
    ):
        return annotation.slice.elts
    return [annotation]


def _kind(node: ast.expr) -> tuple[str, str | None, ast.expr | None]:
    """(scalar type, nargs, literal choices) of an annotation such as Optional[List[int]] or Literal["a", "b"]."""
    match node:
        case ast.Subscript(value=value, slice=inner) if _name(value) == "Optional":
            return _kind(inner)
        case ast.BinOp(left=left, op=ast.BitOr()):
            return _kind(left)
        case ast.Subscript(value=value, slice=inner) if _name(value) == "Union" and isinstance(inner, ast.Tuple):
            members = [item for item in inner.elts if not (isinstance(item, ast.Constant) and item.value is None)]
            return _kind(members[0]) if len(members) == 1 else ("str", None, None)
        case ast.Subscript(value=value, slice=inner) if _name(value) in ("List", "list"):
            return _kind(inner)[0], "+", None
        case ast.Subscript(value=value, slice=inner) if _name(value) == "Literal":
            elements = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            kinds = {type(item.value).__name__ for item in elements if isinstance(item, ast.Constant)}
            return (kinds.pop() if len(kinds) == 1 else "str"), None, ast.List(elts=elements, ctx=ast.Load())
        case ast.Name(id="int" | "float" | "bool" | "str" as name):
            return name, None, None
    return "str", None, None
