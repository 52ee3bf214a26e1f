"""Conditions must mean the same on every run: known facts, matching types, no hidden unknowns."""

import re
from collections.abc import Iterator
from typing import Final

from ...config.faults import Fault, nearest
from ...config.yaml_source import Way
from ...engine.cel_runtime import cel
from ..conditions import STRING, BadCondition, blanked, compile_condition, uses
from ..facts import SAMPLES, samples
from ..files import SignatureFile
from ..matching import groups
from ..windows import is_series
from .base import Rule, Shelf
from .summaries import placeholders

COMPARED: Final = re.compile(
    r"^\s*(?P<fact>(?:args|model|gpu|run|load|w)\.\w+)\s*(?P<how>==|!=|<=|>=|<|>|\bin\b)\s*(?P<value>\[.*\]|[^\s()]+|'.*'|\".*\")\s*$"
)
LITERAL_TYPES: Final = (
    (re.compile(r"(?:true|false)$"), "bool"), (re.compile(r"-?\d+$"), "int"),
    (re.compile(r"-?\d+\.\d+(?:e-?\d+)?$"), "float"),
    (re.compile(r"['\"].*['\"]$"), "str"),
)  # fmt: skip
VERSION: Final = re.compile(r"^['\"]v?\d+\.\d+(\.\d+)?([.a-z0-9]*)['\"]$")


def expressions(file: SignatureFile) -> Iterator[tuple[str, Way]]:
    """Every compiled CEL expression with where it stands."""
    signature = file.signature
    for name, conditions in (("applies_when", signature.applies_when), ("when", signature.when),
                             ("resolve_when", signature.resolve_when)):  # fmt: skip
        for index, condition in enumerate(conditions):
            yield condition.expression, (name, index, "when")


def atoms(expression: str) -> Iterator[str]:
    """The single comparisons of an expression: `&&` and `||` would absorb the error of one of them."""
    blank = blanked(expression)
    cuts = [0, *(end for found in re.finditer(r"&&|\|\||\?|:", blank) for end in found.span()), len(expression)]
    for start, end in zip(cuts[::2], cuts[1::2], strict=True):
        atom = expression[start:end].strip()
        while atom.startswith(("(", "!")) and (atom[0] == "!" or blanked(atom).count("(") > blanked(atom).count(")")):
            atom = atom[1:].strip()
        while atom.endswith(")") and blanked(atom).count(")") > blanked(atom).count("("):
            atom = atom[:-1].strip()
        if atom:
            yield atom


def check_has(file: SignatureFile, _shelf: Shelf) -> Iterator[Fault]:
    for expression, way in expressions(file):
        if re.search(r"\bhas\s*\(", blanked(expression)):
            yield file.fault(
                "SIG021",
                way,
                "`has()` turns what is unknown into false",
                help="Read the fact itself: an unknown fact makes the verdict unknown, as it should.",
            )


def check_version(file: SignatureFile, _shelf: Shelf) -> Iterator[Fault]:
    for expression, way in expressions(file):
        if "version" in blanked(expression) or any(VERSION.match(text) for text in STRING.findall(expression)):
            yield file.fault(
                "SIG022",
                way,
                "a condition compares releases",
                help="Releases stand in `releases:` of the signature or of a pattern, and only there.",
            )


def check_facts(file: SignatureFile, shelf: Shelf) -> Iterator[Fault]:
    windows = {window.name for window in file.signature.windows}
    for expression, way in expressions(file):
        for use in uses(expression):
            if use.root == "w":
                if use.name not in windows:
                    yield file.fault("SIG023", way, f"`{use.full}` is not declared in `let`", help=nearest(use.name, windows))
            elif use.full not in shelf.facts:
                yield file.fault("SIG023", way, f"nothing sets the fact `{use.full}`", help=_near(use.full, shelf))
    for index, name in enumerate(file.body.evidence.facts):
        if name not in shelf.facts:
            yield file.fault("SIG023", ("evidence", "facts", index), f"nothing sets the fact `{name}`", help=_near(name, shelf))
    for name in (name for example in file.body.examples for name in example.given):
        if name not in shelf.facts:
            yield file.fault("SIG023", ("examples",), f"`given` sets `{name}`, which nothing else sets", help=_near(name, shelf))


def _near(name: str, shelf: Shelf) -> str:
    root = name.partition(".")[0]
    return nearest(name, (fact for fact in shelf.facts if fact.startswith(root + ".")))


def check_types(file: SignatureFile, shelf: Shelf) -> Iterator[Fault]:
    facts = samples(shelf.facts, (window.name for window in file.signature.windows))
    loose = {name for name, kind in shelf.facts.items() if kind not in SAMPLES}
    for expression, way in expressions(file):
        for atom in atoms(expression):
            if any(use.full in loose for use in uses(atom)):
                continue
            problem = _problem(atom, facts)
            if problem:
                yield file.fault("SIG024", way, f"`{atom}` fails: {problem}", help=_types_of(atom, shelf))
        if not any(use.full in loose for use in uses(expression)):
            problem = _problem(expression, facts, must_be_bool=True)
            if problem:
                yield file.fault("SIG024", way, problem, help=_types_of(expression, shelf))


def _problem(expression: str, facts: dict[str, dict[str, object]], *, must_be_bool: bool = False) -> str:
    """What goes wrong when the expression runs on samples of the right type; "" if nothing does."""
    try:
        value = compile_condition(expression).execute(cel.Context(variables=facts))
    except (BadCondition, KeyError):  # a fragment that is no expression by itself; an unknown fact is SIG023's matter
        return ""
    except (TypeError, ValueError, RuntimeError, ArithmeticError, IndexError) as error:
        return str(error).split(". ")[0].splitlines()[0]
    return "" if not must_be_bool or isinstance(value, bool) else f"the condition yields `{value}`, not true or false"


def _types_of(expression: str, shelf: Shelf) -> str:
    known = {use.full: shelf.facts.get(use.full, "float" if use.root == "w" else "?") for use in uses(expression)}
    return "; ".join(f"{name} is {kind}" for name, kind in known.items())


def check_numbers(file: SignatureFile, shelf: Shelf) -> Iterator[Fault]:
    for expression, way in expressions(file):
        for atom in atoms(expression):
            found = COMPARED.match(atom)
            if found is None:
                continue
            kind = "float" if found["fact"].startswith("w.") else shelf.facts.get(found["fact"], "any")
            for literal in _literals(found["value"]):
                other = next((name for form, name in LITERAL_TYPES if form.match(literal)), None)
                if other and kind in SAMPLES and other != kind and not (kind == "list" and found["how"] == "in"):
                    yield file.fault(
                        "SIG025",
                        way,
                        f"`{atom}` compares {kind} with {other}, which is never equal",
                        help=f"{found['fact']} is {kind}; write {SAMPLES[kind]!r}-like values.".replace("True", "true"),
                    )


def _literals(text: str) -> list[str]:
    if text.startswith("["):
        return [part.strip() for part in text.strip("[]").split(",") if part.strip()]
    return [text]


def check_series(file: SignatureFile, _shelf: Shelf) -> Iterator[Fault]:
    text = " ".join([*(expression for expression, _ in expressions(file)), *(name for name, _ in placeholders(file.body.summary))])
    for window in file.signature.windows:
        if not re.search(rf"\bw\.{window.name}\b", text):
            yield file.fault(
                "SIG026",
                ("let", window.name),
                f"`w.{window.name}` is declared and not used",
                key=True,
                is_warning=True,
                help="Use it in `when` or the summary, or remove it.",
            )
        if window.series.startswith("match") and not file.signature.match:
            yield file.fault("SIG026", ("let", window.name), "`match` is a series only of a signature that has `match:`")
        if window.series.startswith("match."):
            known = set().union(*(groups(file.patterns[name]) for name in file.signature.match), set())
            if window.series[6:] not in known:
                yield file.fault(
                    "SIG026",
                    ("let", window.name),
                    f"no pattern captures `{window.series[6:]}`",
                    help=nearest(window.series[6:], known),
                )
    for index, name in enumerate(file.body.evidence.series):
        if not is_series(name):
            yield file.fault("SIG026", ("evidence", "series", index), f"unknown series `{name}`")


RULES: Final = (
    Rule("SIG021", "no has(): it hides what is unknown", check_has),
    Rule("SIG022", "no comparison of releases in a condition", check_version),
    Rule("SIG023", "every fact in a condition can be set by something", check_facts),
    Rule("SIG024", "every condition runs on facts of their types", check_types),
    Rule("SIG025", "values are compared with values of their own type", check_numbers),
    Rule("SIG026", "windows are over known series and are used", check_series),
)
