"""What triage concludes, as data: verdicts of flags, suggestions, hidden decisions, and the judgement of one launch."""

from dataclasses import dataclass
from typing import Any

NO_EFFECT = frozenset({"no-op", "dead", "condition-unmet", "redundant", "overridden"})


@dataclass(frozen=True, slots=True)
class Axes:
    """The five questions a person would ask; None where it is not known."""

    compatible: bool | None = None
    condition_met: bool | None = None
    auto_enabled: bool | None = None
    functional: bool | None = None
    already_set: bool | None = None


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """Something that would end the start and that cannot be told, because a fact is missing."""

    flag: str
    needs: str  # the fact: gpu.count, model.heads …, or path for a file that may be elsewhere
    because: str
    do: str


@dataclass(frozen=True, slots=True)
class FlagVerdict:
    """What one flag comes to. `starts` is False where it ends the start."""

    flag: str
    field: str
    value: Any
    verdict: str
    because: str
    do: str
    source: str
    axes: Axes = Axes()
    starts: bool = True
    resolved: Any = None  # what the server makes of it, where that is another value
    reason: str = ""  # of an override: the rule alone, without what it leads to
    open: tuple[OpenQuestion, ...] = ()


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A flag that helps here and that the server does not set by itself."""

    flag: str
    because: str
    source: str


@dataclass(frozen=True, slots=True)
class DecisionTold:
    """Something the server decides at load without saying it in the dump, and how we know."""

    name: str
    about: str
    value: Any
    because: str
    source: str
    seen_by: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """One launch judged on one release. `starts` is None where a file that the start
    reads may or may not be there."""

    release: str  # as asked
    read_at: str  # the sampled release whose sources speak
    starts: bool | None
    flags: tuple[FlagVerdict, ...]
    suggestions: tuple[Suggestion, ...]
    decisions: tuple[DecisionTold, ...]
    notes: tuple[str, ...] = ()
    files: tuple[OpenQuestion, ...] = ()  # paths that are not on this machine, words whose options are not known

    @property
    def is_clean(self) -> bool:
        """Every flag has an effect, and nothing that is known ends the start."""
        return self.starts is not False and not any(flag.verdict in (*NO_EFFECT, "conflict") for flag in self.flags)

    @property
    def open(self) -> tuple[OpenQuestion, ...]:
        """All that may still end the start; nothing, where it is known to fail."""
        if self.starts is False:
            return ()
        return (*self.files, *(question for flag in self.flags for question in flag.open))
