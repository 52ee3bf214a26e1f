"""CEL conditions with three values: true, false, or unknown with the path of the fact that is missing.

An absent key is CEL's KeyError, which `&&` and `||` absorb; what is left of it is our unknown. Any other error is a fault
of the signature: counted and shown, never taken for unknown.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ..model.observation import Json
from ..model.signature import Condition
from .cel_runtime import cel

ROOTS: Final = ("args", "model", "gpu", "run", "load", "w")
_PATH: Final = re.compile(r"\b(args|model|gpu|run|load|w)((?:\.[A-Za-z_][A-Za-z0-9_]*)+)(?!\s*\()")
_STRING: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")


@dataclass(frozen=True, slots=True)
class Unknown:
    """The value could not be told because this fact is not known: "args.tp_size"."""

    path: str


@dataclass(frozen=True, slots=True)
class Fault:
    """The expression itself is wrong (types, functions): a fault of the signature."""

    message: str


Outcome = bool | Unknown | Fault


def paths_of(expression: str) -> tuple[str, ...]:
    """The dotted facts that an expression reads, in order, each once."""
    bare = _STRING.sub("''", expression)
    return tuple(dict.fromkeys(root + rest for root, rest in _PATH.findall(bare)))


class Context:
    """Values of all roots for one run; made once, updated where something changed."""

    def __init__(self, wanted: Mapping[str, frozenset[str]]) -> None:
        """`wanted` names for each root the first-level keys that any condition reads: only these are converted to CEL,
        because a changed variable makes CEL convert the whole environment again."""
        self._wanted = wanted
        self._values: dict[str, dict[str, Json]] = {root: {} for root in ROOTS}
        self._cel = cel.Context()
        for root in ROOTS:
            self._cel.add_variable(root, {})

    def put(self, root: str, values: Mapping[str, Json]) -> None:
        """Replace a root. None means unknown and is left out."""
        wanted = self._wanted.get(root)
        kept: dict[str, Json] = {key: value for key, value in values.items() if value is not None and (wanted is None or key in wanted)}
        if kept != self._values[root]:
            self._values[root] = kept
            self._cel.add_variable(root, kept)

    def look_up(self, path: str) -> Json | None:
        """The value of a dotted path, or None if it is not known."""
        root, *keys = path.split(".")
        value: Json = dict(self._values.get(root, {}))
        for key in keys:
            if not isinstance(value, dict) or key not in value:
                return None
            value = value[key]
        return value

    def values(self, root: str) -> Mapping[str, Json]:
        """What is known under a root, of the keys that anything reads."""
        return self._values[root]

    @property
    def environment(self) -> "cel.Context":
        return self._cel


class CompiledCondition:
    """One CEL expression, compiled once."""

    __slots__ = ("_program", "because", "expression", "paths")

    def __init__(self, condition: Condition) -> None:
        """Raises ValueError if the expression does not parse."""
        self.expression = condition.expression
        self.because = condition.because
        self.paths = paths_of(condition.expression)
        self._program = cel.compile(condition.expression)

    def evaluate(self, context: Context) -> Outcome:
        try:
            value = self._program.execute(context.environment)
        except KeyError as missing:
            return Unknown(self._full_path(str(missing.args[0]) if missing.args else "", context))
        except Exception as error:
            return Fault(f"{type(error).__name__}: {error}")
        if isinstance(value, bool):
            return value
        return Fault(f"the expression gives {type(value).__name__}, not a truth value")

    def _full_path(self, key: str, context: Context) -> str:
        missing = [path for path in self.paths if context.look_up(path) is None]
        exact = [path for path in missing if path.rsplit(".", 1)[-1] == key]
        return (exact or missing or [key])[0]


def wanted_keys(expressions: Iterable[str]) -> dict[str, frozenset[str]]:
    """For each root, the first-level keys that the expressions read; `load`, `w` and `run` change as a whole."""
    keys: dict[str, set[str]] = {root: set() for root in ROOTS}
    for expression in expressions:
        for path in paths_of(expression):
            root, first, *_ = path.split(".")
            keys[root].add(first)
    return {root: frozenset(found) for root, found in keys.items()}
