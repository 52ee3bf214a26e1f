"""Runs every rule over every signature of a library."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ..config.faults import Fault
from .facts import fact_types
from .files import default_root, read_table
from .load import Loaded
from .lock import NAME, read_lock
from .rules import conditions, identity, patterns, proofs, summaries
from .rules.base import Rule, Shelf
from .schema import IgnoredFile, RetiredFile

RULES: Final[tuple[Rule, ...]] = (*patterns.RULES, *conditions.RULES, *summaries.RULES, *identity.RULES, *proofs.RULES)
# The milestones of the phase machine; milestones.yaml may teach more.
OWN_MILESTONES: Final = (
    "args-dump", "prelude", "dist-begin", "dist-end", "load-begin", "load-end", "pool-end", "capture-begin",
    "capture-end", "scheduler-ready", "http-started", "ready", "sigterm", "graceful-exit", "shutdown-complete",
    "child-died", "sigquit", "exception", "run_end",
)  # fmt: skip


def lint(loaded: Loaded, *, root: Path | None = None, only: Iterable[str] = ()) -> list[Fault]:
    """Every fault of the loaded files, those of loading included. `only` limits the rules to these signatures."""
    base = root or default_root()
    retired, _, faults = read_table(base, "retired.yaml", RetiredFile)
    _, _, ignored_faults = read_table(base, "ignored.yaml", IgnoredFile)
    locked, lock_faults = read_lock(base)
    shelf = Shelf(
        root=base,
        topics=frozenset(loaded.library.topics),
        ids=frozenset(file.body.id for file in loaded.files),
        facts=fact_types(loaded.library, loaded.files, {base, *(file.root for file in loaded.files)}),
        milestones=frozenset([*(milestone.name for milestone in loaded.library.milestones), *OWN_MILESTONES]),
        locked=locked if (base / NAME).is_file() else None,
        retired={one.id: one.because for one in retired.retired} if retired else {},
    )
    wanted = set(only)
    return [*loaded.faults, *faults, *ignored_faults, *lock_faults, *(
        fault
        for file in loaded.files if not wanted or file.body.id in wanted
        for rule in RULES
        for fault in rule.check(file, shelf)
    )]  # fmt: skip
