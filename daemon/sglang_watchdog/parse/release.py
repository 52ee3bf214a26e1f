"""Infers from the fields of the dump which SGLang release wrote a log. A release that a line states is a fact of milestones.yaml."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ..model.finding import Release

# A fork adds and drops a few fields; a dump that fits no release better than this is none of those that were read.
_MOST_WRONG: Final = 0.1


def inferred_release(fields: Iterable[str], table: Mapping[str, tuple[str, str]], releases: Sequence[str], *, form: str = "") -> Release:
    """Return the range of releases whose dump has exactly such fields.

    `table` maps a field of the dump to the first and last of `releases` (oldest first) that print it. A field that is there
    bounds from below and above; one that a release would print and that is not there rules that release out. Unknown fields
    tell nothing: a fork or a newer release adds them. `form` is "repr" (up to 0.5.18) or "dict" (0.5.19 and later).
    """
    order = {release: at for at, release in enumerate(releases)}
    present = set(fields)
    known = present & table.keys()
    if not known or not releases:
        return Release()
    spans = {name: (order[first], order[last]) for name, (first, last) in table.items() if first in order and last in order}
    best: list[int] = []
    fewest = None
    for at in range(len(releases)):
        wrong = sum(1 for name, (first, last) in spans.items() if (first <= at <= last) != (name in present))
        if fewest is None or wrong < fewest:
            fewest, best = wrong, [at]
        elif wrong == fewest:
            best.append(at)
    if fewest is not None and fewest > _MOST_WRONG * len(known):
        return Release()
    best = [at for at in best if not form or _has_form(releases[at], form)] or best
    return Release(min=releases[best[0]], max=releases[best[-1]], source="inferred")


def _has_form(release: str, form: str) -> bool:
    numbers = tuple(int(part) for part in re.findall(r"\d+", release)[:3])
    return (numbers >= (0, 5, 19)) == (form == "dict")
