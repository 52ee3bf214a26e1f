"""Flag triage as the engine uses it: a pure function from a run's arguments to what is to be said about each flag.

The engine sits on a lower floor and knows no triage: whoever builds it (the command line) hands this function in.
"""

from collections.abc import Callable, Mapping, Sequence

from ..library.files import default_root
from ..library.flag_table import load_table
from ..model.finding import Release
from ..model.observation import Json
from ..model.signature import Library
from .knowledge import TABLE, Knowledge, compile_flags, read_decisions
from .live import FlagRecord, judge_run

FlagJudge = Callable[[Mapping[str, Json], Release, Mapping[str, Json]], Sequence[FlagRecord]]


def flag_judge(library: Library) -> FlagJudge:
    """A judge over the flag signatures of a loaded library; what it needs is compiled at its first run."""
    known: list[Knowledge] = []

    def judge(args: Mapping[str, Json], release: Release, facts: Mapping[str, Json]) -> Sequence[FlagRecord]:
        if not known:
            root = default_root()
            flags = [one for one in library.signatures.values() if one.flag is not None]
            known.append(Knowledge(load_table(root / TABLE), compile_flags(flags), read_decisions(root), library.models, library.gpus))
        return judge_run(known[0], args, command=None, release=release, facts=facts).records

    return judge
