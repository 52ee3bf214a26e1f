"""Follows a local variable through a function, so that `logger.info(message)` yields the message's own template."""

import ast
from collections import defaultdict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Assignment:
    """`branch` names the blocks around it: an assignment in a branch that the use is not in may not have happened."""

    line: int
    appends: bool
    value: ast.expr
    branch: tuple[int, ...]


class Scope:
    """The assignments to plain names in one function or module."""

    def __init__(self, body: list[ast.stmt]) -> None:
        self.names: dict[str, list[Assignment]] = defaultdict(list)
        self._walk(body, ())

    def before(self, name: str, line: int) -> list[Assignment]:
        return [one for one in self.names.get(name, ()) if one.line < line]

    def _walk(self, body: list[ast.stmt], branch: tuple[int, ...]) -> None:
        for statement in body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.names[name].append(Assignment(statement.lineno, False, value, branch))
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self.names[name].append(Assignment(statement.lineno, False, value, branch))
                case ast.AugAssign(target=ast.Name(id=name), op=ast.Add(), value=value):
                    self.names[name].append(Assignment(statement.lineno, True, value, branch))
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            for index, block in enumerate(blocks_of(statement)):
                self._walk(block, branch if runs_through(statement, index) else (*branch, id(block)))


def blocks_of(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks inside a statement: body first."""
    blocks = [getattr(statement, name, None) for name in ("body", "orelse", "finalbody")]
    blocks += [handler.body for handler in getattr(statement, "handlers", [])]
    blocks += [case.body for case in getattr(statement, "cases", [])]
    return [block for block in blocks if isinstance(block, list) and block]


def runs_through(statement: ast.stmt, index: int) -> bool:
    """True for a block that is entered whenever its statement is reached."""
    return isinstance(statement, (ast.With, ast.AsyncWith)) or (isinstance(statement, ast.Try) and index == 0)
