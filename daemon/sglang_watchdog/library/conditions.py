"""What can be known about a CEL expression without running the engine: does it parse, what does it read."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ..engine.cel_runtime import cel

ROOTS: Final = ("args", "model", "gpu", "run", "load", "w")
STRING: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
FACT: Final = re.compile(r"\b(args|model|gpu|run|load|w)\.([A-Za-z_][A-Za-z0-9_]*)(?!\s*\()")


class BadCondition(ValueError):
    """An expression that CEL cannot parse; the message is CEL's, on one line."""


@dataclass(frozen=True, slots=True)
class Use:
    """A fact that an expression reads, `args.tp_size`, and the column in the expression, from 0."""

    root: str
    name: str
    column: int

    @property
    def full(self) -> str:
        return f"{self.root}.{self.name}"


def compile_condition(expression: str) -> cel.Program:
    """Compile, or say in one sentence why not.

    Raises:
        BadCondition: the expression does not parse.
    """
    try:
        return cel.compile(expression)
    except ValueError as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        syntax = next((line.split("Syntax error:")[1].strip() for line in lines if "Syntax error:" in line), lines[0])
        raise BadCondition(syntax) from None


def blanked(expression: str) -> str:
    """The expression with the inside of its string literals blanked, positions kept."""
    return STRING.sub(lambda found: found[0][0] + " " * (len(found[0]) - 2) + found[0][-1], expression)


def uses(expression: str) -> Iterator[Use]:
    """Every fact that the expression reads."""
    for found in FACT.finditer(blanked(expression)):
        yield Use(found[1], found[2], found.start())


def with_threshold(expression: str, threshold: float | None) -> str:
    """The expression with the word `threshold` replaced by the number, outside of strings."""
    if threshold is None:
        return expression
    out, end = [], 0
    for found in re.finditer(r"(?<![\w.])threshold\b", blanked(expression)):
        out += [expression[end : found.start()], repr(float(threshold))]
        end = found.end()
    return "".join([*out, expression[end:]])
