"""Flag triage as the engine uses it: a pure function from what is known of a run to what is to be said about each flag.

The engine sits on a lower floor and knows no triage: whoever builds it (the command line) hands this function in.
"""

from ..engine.settings import FlagJudge
from ..library.files import default_root
from ..library.flag_table import load_table
from ..model.flags import FlagAnswer, FlagQuestion
from ..model.signature import Library
from .knowledge import TABLE, Knowledge, compile_flags, read_decisions
from .live import judge_run
from .run_table import table_of


def flag_judge(library: Library) -> FlagJudge:
    """A judge over the flag signatures of a loaded library; what it needs is compiled at its first run."""
    known: list[Knowledge] = []

    def judge(question: FlagQuestion) -> FlagAnswer:
        if not known:
            root = default_root()
            flags = [one for one in library.signatures.values() if one.flag is not None]
            known.append(Knowledge(load_table(root / TABLE), compile_flags(flags), read_decisions(root), library.models, library.gpus))
        facts = {name: fact.value for name, fact in question.facts.items()}
        words = question.launch.words if question.launch is not None else None
        judged = judge_run(known[0], question.args, command=words, release=question.release, facts=facts)
        return FlagAnswer(table=table_of(known[0], question, judged), records=judged.records)

    return judge
