"""The flag knowledge of the library, compiled for judging: one record for each field, the hidden decisions, the table.

Conditions are CEL over `args model gpu run`. In triage `args` holds what the server would resolve, and null there means
"not set", which is known; an absent key is what is not known.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from dataclasses import field as field_of
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from ..engine.cel_runtime import cel
from ..engine.conditions import CompiledCondition, paths_of
from ..library.files import SCHEMA, default_root, read_table
from ..library.flag_schema import DecisionsFile
from ..library.flag_table import FlagTable, load_table
from ..library.load import load
from ..model.signature import Condition, Signature

TABLE = "flag_fields.json"
DECISIONS = "decisions.yaml"


class BrokenKnowledge(ValueError):
    """A knowledge file cannot be used; the text names it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A compiled statement: it speaks for a release if `range_` holds it, and is true if all conditions are."""

    range_: SpecifierSet
    conditions: tuple[CompiledCondition, ...]
    because: str
    do: str
    source: str
    verdict: str = ""
    axis: str = ""
    logged: str = ""
    unknown: str = ""
    option: str = ""
    to: str = ""
    stores: bool = True
    value: Any = None
    becomes: "cel.Program | None" = None
    becomes_paths: tuple[str, ...] = ()

    def speaks_for(self, release: str) -> bool:
        return self.range_.contains(Version(release), prereleases=True)

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for condition in self.conditions for path in condition.paths) + self.becomes_paths


@dataclass(frozen=True, slots=True)
class FlagKnowledge:
    """What is known of one field; see library/flag_schema.py for each part's meaning."""

    signature: str
    field: str
    flag: str
    title: str
    effect: str
    source: str
    range_: SpecifierSet
    renamed_to: str = ""
    removed: str = ""
    path: str = ""
    also_called: tuple[str, ...] = ()
    notes: str = ""
    same_as: Mapping[str, str] = field_of(default_factory=dict)  # a value and its other name in the dump
    needs: tuple[Rule, ...] = ()
    automatic: tuple[Rule, ...] = ()
    overrides: tuple[Rule, ...] = ()
    fails: tuple[Rule, ...] = ()
    conflicts: tuple[Rule, ...] = ()
    dead: tuple[Rule, ...] = ()
    deprecated: tuple[Rule, ...] = ()
    helps: tuple[Rule, ...] = ()
    moved: tuple[Rule, ...] = ()
    examples: tuple[Mapping[str, Any], ...] = ()

    def covers(self, release: str) -> bool:
        """Whether the sources of this release were read for this flag."""
        return self.range_.contains(Version(release), prereleases=True)


@dataclass(frozen=True, slots=True)
class DecisionKnowledge:
    name: str
    about: str
    seen_by: str
    rules: tuple[Rule, ...]
    argument: str = ""  # that leaves the decision to the server
    shown_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Knowledge:
    """All that triage judges by."""

    table: FlagTable
    flags: Mapping[str, FlagKnowledge]
    decisions: Mapping[str, DecisionKnowledge] = field_of(default_factory=dict)
    models: Mapping[str, Mapping[str, Any]] = field_of(default_factory=dict)
    gpus: Mapping[str, Mapping[str, Any]] = field_of(default_factory=dict)
    shapes: Mapping[str, Mapping[str, Any]] = field_of(default_factory=dict)

    @cached_property
    def conditions(self) -> tuple[CompiledCondition, ...]:
        """Every compiled condition, for lint."""
        rules: list[Rule] = []
        for one in self.flags.values():
            rules += [*one.needs, *one.automatic, *one.overrides, *one.fails, *one.conflicts, *one.helps, *one.moved]
        for decision in self.decisions.values():
            rules += decision.rules
        return tuple(condition for rule in rules for condition in rule.conditions)


def load_knowledge(folders: Iterable[Path] = (), *, root: Path | None = None) -> Knowledge:
    """Read the flag signatures, decisions and table of the built-in library (or `root`) and of `folders` after it.

    Raises:
        BrokenKnowledge: the table or decisions are missing or broken, or no flag file could be read.
    """
    base = root or default_root()
    try:
        table = load_table(base / TABLE)
    except (OSError, ValueError) as error:
        raise BrokenKnowledge(f"{base / TABLE}: {error}") from error
    loaded = load(tuple(folders), root=base)
    signatures = [one for one in loaded.library.signatures.values() if one.flag is not None]
    if not signatures:
        raise BrokenKnowledge(f"{base}: no flag signatures; {'; '.join(str(fault) for fault in loaded.errors[:3])}")
    return Knowledge(table, compile_flags(signatures), read_decisions(base), loaded.library.models, loaded.library.gpus, loaded.library.shapes)


def compile_flags(signatures: Iterable[Signature]) -> dict[str, FlagKnowledge]:
    """Compile flag signatures, by field.

    Raises:
        BrokenKnowledge: an expression does not parse, or two files describe one field.
    """
    found: dict[str, FlagKnowledge] = {}
    for signature in signatures:
        body = signature.flag or {}
        name = body["field"]
        if name in found:
            raise BrokenKnowledge(f"{signature.id} and {found[name].signature} both describe the field {name}")
        parts = {
            key: tuple(_rule(item, signature.releases, signature.id) for item in body[key])
            for key in ("needs", "automatic", "overrides", "fails", "conflicts", "dead", "deprecated", "helps", "moved")
        }
        found[name] = FlagKnowledge(
            signature=signature.id,
            field=name,
            flag=body["flag"] or "--" + name.replace("_", "-"),
            title=signature.title,
            effect=body["effect"],
            source=body["source"],
            range_=SpecifierSet(signature.releases),
            renamed_to=body["renamed_to"],
            removed=body["removed"],
            path=body["path"],
            also_called=tuple(body["also_called"]),
            notes=body["notes"],
            same_as=body["same_as"],
            examples=tuple(body["examples"]),
            **parts,
        )
    return found


def read_decisions(root: Path) -> dict[str, DecisionKnowledge]:
    """Read signatures/decisions.yaml; an installation without it decides nothing."""
    table, _, faults = read_table(root, DECISIONS, DecisionsFile)
    if faults:
        raise BrokenKnowledge("; ".join(f"{fault.path}: {fault.code or SCHEMA} {fault.message}" for fault in faults))
    return {
        one.name: DecisionKnowledge(
            one.name, one.about, one.seen_by, tuple(_rule(rule.model_dump(), one.releases, DECISIONS) for rule in one.rules), one.argument,
            tuple(one.shown_by),
        )
        for one in (table.decisions if table else ())
    }


def _rule(item: Mapping[str, Any], releases: str, where: str) -> Rule:
    try:
        conditions = tuple(CompiledCondition(Condition(expression=text, because=item["because"])) for text in item["when"])
        becomes = cel.compile(item["becomes"]) if item.get("becomes") else None
    except ValueError as error:
        raise BrokenKnowledge(f"{where}: {error}") from error
    return Rule(
        range_=SpecifierSet(item["releases"] or releases),
        conditions=conditions,
        because=item["because"],
        do=item["do"],
        source=item["source"],
        verdict=item.get("verdict", ""),
        axis=item.get("axis", ""),
        logged=item.get("logged", ""),
        unknown=item.get("unknown", ""),
        option=item.get("option", ""),
        to=item.get("to", ""),
        stores=item.get("stores", True),
        value=item.get("value"),
        becomes=becomes,
        becomes_paths=paths_of(item["becomes"]) if item.get("becomes") else (),
    )
