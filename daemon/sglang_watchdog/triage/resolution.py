"""Predicts what the server makes of its arguments: defaults, what it sets by itself, what it changes over the user's word.

Values are found on demand, each once. Three outcomes: a value with how it came about, or unknown with the fact that is
missing. Where the rules of two fields ask for one another, the inner question gets the value before any rule, as
SGLang's fixed order of steps gives it. `run.asked.<field>` is always the value before any rule: what the user gave, or
the release's default. Some steps of SGLang run before the ones that change it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..engine.conditions import CompiledCondition, Context, Fault, Outcome, Unknown
from ..library.flag_declarations import UNKNOWN_DEFAULT
from ..model.observation import Json
from .knowledge import Knowledge, Rule


@dataclass(frozen=True, slots=True)
class Known:
    """A value and how it came about: given, default, automatic, overridden, observed, decided."""

    value: Any
    how: str
    rule: Rule | None = None


class Facts(Context):
    """A CEL context in which null is a value, "not set", and only an absent key is unknown."""

    def __init__(self) -> None:
        super().__init__({})
        self._known: dict[str, dict[str, Json]] = {root: {} for root in ("args", "model", "gpu", "run", "load", "w")}

    def add(self, path: str, value: Json) -> None:
        """Make a fact known; the path has a root and one name."""
        root, name = path.split(".", 1)
        self._known[root][name] = value
        self._cel.add_variable(root, dict(self._known[root]))

    def remove(self, path: str) -> None:
        root, name = path.split(".", 1)
        if self._known[root].pop(name, _MISSING) is not _MISSING:
            self._cel.add_variable(root, dict(self._known[root]))

    def look_up(self, path: str) -> Json | None:
        """As the base class asks it: None is unknown, so a known null answers with something else."""
        root, name, *rest = path.split(".")
        if name not in self._known.get(root, {}):
            return None
        value = self._known[root][name]
        for key in rest:
            if not isinstance(value, dict) or key not in value:
                return None
            value = value[key]
        return False if value is None else value


_MISSING = object()
_NAMED = re.compile(r"\{((?:args|model|gpu|run)\.\w+)\}")


class Resolution:
    """One launch on one release, model and GPU."""

    def __init__(
        self,
        knowledge: Knowledge,
        release: str,
        given: Mapping[str, Any],
        facts: Mapping[str, Any],
        unknown: frozenset[str] = frozenset(),
        resolved: Mapping[str, Any] | None = None,
    ) -> None:
        """`given`: what the user set, by field. `facts`: model.*, gpu.* and observed run.* facts; None is left out.
        `unknown`: fields that were set to something we cannot read. `resolved`: the dump of a running server, which
        then is the truth for args.
        """
        self.knowledge = knowledge
        self.release = release
        self.given = given
        self._facts = {path: value for path, value in facts.items() if value is not None}
        self._unknown = unknown
        self._resolved = resolved
        self._values: dict[str, Known | Unknown] = {}
        self._open: set[str] = set()
        self.faults: list[str] = []  # rules of the library that are wrong: shown, and their answer is unknown

    # -- values -------------------------------------------------------------------------------------------------------
    def value(self, path: str) -> Known | Unknown:
        """The value of a fact such as args.tp_size or run.moe_runner, as far as it can be told."""
        path = ".".join(path.split(".")[:2])
        if path in self._facts:
            return Known(self._facts[path], "observed")
        root, name = path.split(".", 1)
        if root == "args":
            return self._argument(name)
        if path in self.knowledge.decisions:
            return self._decision(path)
        return Unknown(path)

    def without(self, name: str) -> "Resolution":
        """The same launch without the user's setting of one field."""
        given = {key: value for key, value in self.given.items() if key != name}
        resolved = None if self._resolved is None else {key: value for key, value in self._resolved.items() if key != name}
        return Resolution(self.knowledge, self.release, given, self._facts, self._unknown - {name}, resolved)

    def _argument(self, name: str) -> Known | Unknown:
        if self._resolved is not None and name in self._resolved:
            return Known(self._resolved[name], "observed")
        path = f"args.{name}"
        if path not in self._values:
            if path in self._open:
                return self._start_value(name)
            self._open.add(path)
            self._values[path] = self._settle(name)
            self._open.discard(path)
        return self._values[path]

    def _start_value(self, name: str) -> Known | Unknown:
        if name in self._unknown:
            return Unknown(f"args.{name}")
        if name in self.given:
            return Known(self.given[name], "given")
        if not self.knowledge.table.declares(name, self.release):
            return Unknown(f"args.{name}")
        default = self.knowledge.table.default(name, self.release)
        return Unknown(f"args.{name}") if default == UNKNOWN_DEFAULT else Known(default, "default")

    def _settle(self, name: str) -> Known | Unknown:
        value = self._start_value(name)
        known = self.knowledge.flags.get(name)
        if known is None or isinstance(value, Unknown):
            return value
        if value.how == "default":
            value = self._apply(name, value, known.automatic, "automatic")
        for rule in known.overrides:
            if isinstance(value, Unknown):
                break
            value = self._apply(name, value, (rule,), "overridden")
        return value

    def _apply(self, name: str, value: Known, rules: tuple[Rule, ...], how: str) -> Known | Unknown:
        """The first rule that holds sets the value; one that may hold makes it unknown."""
        for rule in rules:
            if not rule.speaks_for(self.release):
                continue
            outcome = self.holds(rule, {f"args.{name}": value.value})
            if isinstance(outcome, Unknown):
                return value if rule.becomes is None and same(rule.value, value.value) else outcome
            if outcome:
                changed = self._result(rule, {f"args.{name}": value.value})
                if isinstance(changed, Unknown):
                    return changed
                if how == "overridden" and same(changed, value.value):
                    continue
                return Known(changed, how, rule)
        return value

    def _decision(self, path: str) -> Known | Unknown:
        if path in self._values:
            return self._values[path]
        if path in self._open:
            return Unknown(path)
        self._open.add(path)
        self._values[path] = self._decide(path)
        self._open.discard(path)
        return self._values[path]

    def _decide(self, path: str) -> Known | Unknown:
        for rule in self.knowledge.decisions[path].rules:
            if not rule.speaks_for(self.release):
                continue
            outcome = self.holds(rule)
            if isinstance(outcome, Unknown):
                return outcome
            if outcome:
                value = self._result(rule, {})
                return value if isinstance(value, Unknown) else Known(value, "decided", rule)
        return Unknown(path)

    # -- conditions ---------------------------------------------------------------------------------------------------
    def holds(self, rule: Rule, also: Mapping[str, Any] | None = None) -> bool | Unknown:
        """Whether all conditions of the rule are true: one false decides, one unknown spoils."""
        unknown: Unknown | None = None
        for condition in rule.conditions:
            outcome = self.evaluate(condition, also)
            if isinstance(outcome, Unknown):
                unknown = unknown or outcome
            elif isinstance(outcome, Fault):
                self.faults.append(f"{condition.expression}: {outcome.message} ({rule.source})")
                unknown = Unknown("a rule of the library that is broken")
            elif not outcome:
                return False
        return unknown if unknown is not None else True

    def evaluate(self, condition: CompiledCondition, also: Mapping[str, Any] | None = None) -> Outcome:
        outcome = condition.evaluate(self._context(condition.paths, also or {}))
        return self._root_cause(outcome) if isinstance(outcome, Unknown) else outcome

    def _root_cause(self, missing: Unknown) -> Unknown:
        """The fact at the bottom: a decision is unknown because something under it is."""
        if "." not in missing.path or " " in missing.path:
            return missing
        below = self.value(missing.path)
        return below if isinstance(below, Unknown) else missing

    def _context(self, paths: tuple[str, ...], also: Mapping[str, Any]) -> Facts:
        context = Facts()
        asked = {
            path.split(".")[2]: start
            for path in paths
            if path.startswith("run.asked.")
            if isinstance(start := self._start_value(path.split(".")[2]), Known)
        }
        if asked:
            context.add("run.asked", {name: start.value for name, start in asked.items()})
        for path in paths:
            short = ".".join(path.split(".")[:2])
            if short == "run.asked":
                continue
            if short in also:
                context.add(short, also[short])
                continue
            value = self.value(short)
            if isinstance(value, Known):
                context.add(short, value.value)
        return context

    def _result(self, rule: Rule, also: Mapping[str, Any]) -> Any:
        """What a rule sets; Unknown where its expression needs a fact that is missing."""
        if rule.becomes is None:
            return rule.value
        context = self._context(rule.becomes_paths, also)
        try:
            return rule.becomes.execute(context.environment)
        except KeyError:
            return self._root_cause(Unknown(next((path for path in rule.becomes_paths if context.look_up(path) is None), rule.becomes_paths[0])))
        except Exception as error:
            self.faults.append(f"{type(error).__name__}: {error} ({rule.source})")
            return Unknown("a rule of the library that is broken")

    def told(self, text: str) -> str:
        """A rule's reason with the values of this launch in it: `{args.tp_size}` becomes 8."""

        def shown(match: re.Match[str]) -> str:
            value = self.value(match.group(1))
            if isinstance(value, Unknown):
                return "an unknown value"
            return "not set" if value.value is None else str(value.value)

        return _NAMED.sub(shown, text)

    def explain(self, path: str) -> str:
        """How a known value came about, in words."""
        value = self.value(path)
        if isinstance(value, Unknown):
            return f"{value.path} is not known"
        if value.rule is not None:
            return value.rule.because
        return {"given": "as given", "default": "the release's default", "observed": "as reported"}.get(value.how, value.how)


def same(one: Any, other: Any) -> bool:
    """Equal as SGLang would see it: 1 is not True, 0.9 is 0.90, a list is its members."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return abs(float(one) - float(other)) < 1e-9
    return bool(one == other)
