"""`revisions.lock`: which revision of which signature detects what.

The hash covers what decides the verdict and nothing that only explains it, so that a better sentence needs no new
revision.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..config.faults import Fault
from .files import SignatureFile, shown_name
from .schema import SignatureBody

NAME: Final = "revisions.lock"
HEADING: Final = "# signature  revision  hash of what it detects; written by `sglang-watchdog signatures lock`\n"
DETECTING: Final = (
    "kind", "releases", "applies_when", "during", "not_during", "scope", "match", "unless", "await_",
    "absence_valid_only_if", "concludes", "threshold", "let", "when", "needs", "each", "hold", "clear_after", "resolve",
    "resolve_when", "yields_to", "flag", "all_gpus",
)  # fmt: skip
TELLING: Final = frozenset({"because", "anywhere", "example", "level"})
LATER: Final = frozenset({"moved", "same_as", "path", "also_called", "unknown"})  # parts that came after signatures were locked: empty, they are not there


@dataclass(frozen=True, slots=True)
class Locked:
    revision: int
    digest: str


def detecting_hash(body: SignatureBody) -> str:
    """12 hex digits over the parts of a signature that decide what it finds."""
    plain = {name: _stripped(value) for name, value in body.model_dump(mode="json").items() if name in DETECTING}
    text = json.dumps({name: value for name, value in plain.items() if value not in (None, [], {}, "", False)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stripped(inner) for key, inner in value.items() if key not in TELLING and (inner or key not in LATER)}
    return [_stripped(inner) for inner in value] if isinstance(value, list) else value


def read_lock(root: Path) -> tuple[dict[str, Locked], list[Fault]]:
    """The lock of a folder; ({}, []) where there is none."""
    path = root / NAME
    locked: dict[str, Locked] = {}
    faults: list[Fault] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines() if path.is_file() else (), 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        if len(parts) == 3 and parts[1].isdigit():
            locked[parts[0]] = Locked(int(parts[1]), parts[2])
            continue
        faults.append(
            Fault(
                path=shown_name(path),
                line=number,
                column=1,
                width=len(line),
                excerpt=line,
                code="SIG051",
                message="not `signature revision hash`",
                help="Write it anew: `signatures lock`.",
            )
        )
    return locked, faults


def lock_text(files: Iterable[SignatureFile], before: Mapping[str, Locked]) -> str:
    """The lock for these signatures. Drafts are left out; ids that are gone stay out, retired.yaml remembers them."""
    rows = {}
    for file in files:
        if file.body.status in ("draft", "retired"):
            continue
        digest = detecting_hash(file.body)
        old = before.get(file.body.id)
        if old is not None and old.digest != digest and file.body.revision <= old.revision:
            rows[file.body.id] = old  # unmended: the lock is no way around the rule
        else:
            rows[file.body.id] = Locked(file.body.revision, digest)
    return HEADING + "".join(f"{name} {row.revision} {row.digest}\n" for name, row in sorted(rows.items()))
