"""What a lint rule is, and what it may look at besides the file in hand."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...config.faults import Fault
from ..files import SignatureFile
from ..lock import Locked


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """The library around a signature."""

    root: Path  # the folder whose lock and retired ids count
    topics: frozenset[str]
    ids: frozenset[str]
    facts: Mapping[str, str]  # name -> type
    milestones: frozenset[str]
    locked: Mapping[str, Locked] | None = None  # None: this folder keeps no lock
    retired: Mapping[str, str] = field(default_factory=dict)  # id -> why


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: its id, what it demands in a sentence, and the function that finds what breaks it."""

    id: str
    demands: str
    check: Callable[[SignatureFile, Shelf], Iterator[Fault]]
