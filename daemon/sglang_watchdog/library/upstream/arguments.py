"""The fields of ServerArgs that a release declares, with their types: what its argument dump will show."""

import ast
from typing import Final

from .messages import dotted

TYPES: Final = {"int": "int", "float": "float", "str": "str", "bool": "bool", "list": "list", "List": "list", "tuple": "list",
                "Tuple": "list", "dict": "dict", "Dict": "dict", "Literal": "str", "set": "list", "Sequence": "list"}  # fmt: skip


def is_declaration(file: str) -> bool:
    """Files that declare arguments."""
    return file == "sglang/srt/server_args.py" or file.startswith("sglang/srt/arg_groups/")


def declared_fields(file: str, tree: ast.Module) -> dict[str, str]:
    """Name and type (int, float, str, bool, list, dict or any) of each field declared in one file."""
    in_fields = file.startswith("sglang/srt/arg_groups/fields/")
    out: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and (node.name == "ServerArgs" or in_fields):
            for statement in node.body:
                match statement:
                    case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation) if not name.startswith("_"):
                        if "ClassVar" not in dotted(annotation) and not _is_derived(annotation):
                            out.setdefault(name, type_of(annotation))
    return out


def _is_derived(annotation: ast.expr) -> bool:
    """`A[int, Derived(…)]`: computed, not an argument."""
    return any(isinstance(node, ast.Call) and dotted(node.func).rsplit(".", 1)[-1] == "Derived" for node in ast.walk(annotation))


def type_of(annotation: ast.expr) -> str:
    """The type that a value of this annotation has when it is not None; `any` where it is a choice."""
    match annotation:
        case ast.Constant(value=str() as text):
            try:
                return type_of(ast.parse(text, mode="eval").body)
            except SyntaxError:
                return "any"
        case ast.Name(id=name):
            return TYPES.get(name, "any")
        case ast.Attribute(attr=name):
            return TYPES.get(name, "any")
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _common([left, right])
        case ast.Subscript(value=base, slice=inner):
            name = dotted(base).rsplit(".", 1)[-1]
            items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            if name in ("A", "Annotated"):
                return type_of(items[0])
            if name in ("Optional", "Union"):
                return _common(items)
            return TYPES.get(name, "any")
    return "any"


def _common(options: list[ast.expr]) -> str:
    kinds = {type_of(one) for one in options if not (isinstance(one, ast.Constant) and one.value is None)}
    return kinds.pop() if len(kinds) == 1 else "any"
