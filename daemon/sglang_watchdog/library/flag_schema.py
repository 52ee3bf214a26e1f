"""The body of a `flag` signature: what one launch flag of SGLang does, when it does nothing, and how we know.

Kept apart from the other kinds because triage, not the engine, reads it. What a release declares, its default and
whether it is read at all stands in the generated table (signatures/flag_fields.json); these files add what only reading
the code tells. Every statement names its source as `release, file::function`; a statement without `releases` holds for
the file's own range.
"""

# ruff: noqa: RUF012  (pydantic copies defaults; none is shared)
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from ..config.shapes import Shape

Verdict = Literal[
    "acts",
    "no-op",
    "dead",
    "redundant",
    "condition-unmet",
    "overridden",
    "deprecated",
    "removed",
    "conflict",
    "unrecognised",
    "unknown",
]
VERDICTS: tuple[str, ...] = Verdict.__args__  # type: ignore[attr-defined]
Source = Annotated[str, StringConstraints(pattern=r"^\d+\.\d+[^,]*, \S+::\S+")]
Axis = Literal["compatible", "condition"]


def one_or_more(value: Any) -> Any:
    """A list of one may be written without its list."""
    return value if isinstance(value, list) or value is None else [value]


Expressions = Annotated[list[str], BeforeValidator(one_or_more)]


class Statement(Shape):
    """One thing the source says. `when`: all of these must hold; empty means always."""

    when: Expressions = []
    releases: str = Field(default="", description="PEP 440 specifier; default: the file's")
    because: str = Field(min_length=3, description="{args.tp_size} and the like stand for the launch's own values")
    do: str = ""
    unknown: str = Field(default="", description="What a missing fact may mean, where the statement cannot be judged")
    source: Source


class Setting(Statement):
    """The server sets the field: by itself where the user did not (`automatic`), or over the user's value (`overrides`)."""

    value: Any = None
    becomes: str = Field(default="", description="CEL expression of the value, instead of `value`")
    logged: str = Field(default="", description="The line that tells; empty: silently")


class Need(Statement):
    """What must hold for the flag to have an effect; where it is false the flag does nothing."""

    when: Annotated[list[str], BeforeValidator(one_or_more)] = Field(min_length=1)
    verdict: Literal["condition-unmet", "no-op", "conflict"] = "condition-unmet"
    axis: Axis = "condition"


class Dead(Statement):
    """Declared and accepted, read by nothing in these releases."""

    releases: str = Field(min_length=1)


class Deprecated(Statement):
    """Accepted with a warning. `stores` is false where it then does nothing."""

    releases: str = Field(min_length=1)
    to: str = ""
    stores: bool = True


class Help(Statement):
    """Where setting the flag helps although the server does not set it by itself; `option` as it would be typed."""

    option: str


class FlagExample(Shape):
    """A command and what this flag of it comes to: the proof of the file."""

    name: str = ""
    command: str
    release: str
    gpu: str = ""
    model: dict[str, Any] = {}
    verdict: Verdict
    starts: bool | None = None
    because: str = Field(default="", description="Words that the verdict's reason must hold")


class FlagBody(Shape):
    """One flag. `field` is its name in the args dump; the options that set it come from the table."""

    field: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
    flag: str = Field(default="", description="The option as it is typed, where the table has several")
    effect: str = Field(min_length=3, description="What the flag does where it acts")
    renamed_to: str = Field(default="", description="Its successor where a later release removed it")
    removed: str = Field(default="", description="Why it left, where it has no successor")
    also_called: list[str] = Field(default=[], description="Options of other servers that mean this flag")
    path: Literal["", "model", "file"] = Field(default="", description="The value names a model (folder or repository) or a file that the start reads")
    needs: list[Need] = []
    automatic: list[Setting] = []
    overrides: list[Setting] = []
    fails: list[Statement] = Field(default=[], description="The server refuses to start")
    conflicts: list[Statement] = Field(default=[], description="It starts, but flags cancel or contradict each other")
    dead: list[Dead] = []
    deprecated: list[Deprecated] = []
    helps: list[Help] = []
    moved: list[Statement] = Field(default=[], description="Where this holds of the dump, what was asked stands there under another field")
    same_as: dict[str, str] = Field(default={}, description="A value and the name under which the dump shows it: no change")
    notes: str = ""
    source: Source
    examples: list[FlagExample] = []

    @model_validator(mode="after")
    def _says_one_value(self) -> "FlagBody":
        for setting in (*self.automatic, *self.overrides):
            if setting.becomes and setting.value is not None:
                raise ValueError("`value` and `becomes` exclude each other")
        return self

    def compiled(self) -> dict[str, Any]:
        """Plain data for `model.signature.Signature.flag`."""
        return self.model_dump()


class DecisionRule(Statement):
    """One way a decision falls."""

    value: Any = None
    becomes: str = ""


class Decision(Shape):
    """Something the server decides at load and that the dump does not show, as a fact `run.<name>`."""

    name: Annotated[str, StringConstraints(pattern=r"^run\.[a-z][a-z0-9_]*$")]
    about: str
    argument: str = Field(default="", description="The argument that leaves it to the server, as the dump names it")
    shown_by: list[str] = Field(default=[], description="Facts of the log that prove it where they have the same value")
    seen_by: str = Field(default="", description="The lines of a log that prove it")
    releases: str = Field(min_length=1)
    rules: list[DecisionRule] = Field(min_length=1, description="In order: the first whose conditions hold decides")


class DecisionsFile(Shape):
    decisions: list[Decision]
