"""Puts the judgement of a running server's flags into the table that API, page and reports show."""

from collections.abc import Iterable

from ..model.finding import FactEvidence, LineEvidence
from ..model.flags import DecisionRow, FlagQuestion, FlagRow, FlagTable, SuggestionRow
from ..model.observation import Json
from .command import MASK, is_secret
from .judge import known_fields
from .knowledge import Knowledge
from .live import RunJudgement, as_fields
from .verdicts import DecisionTold, FlagVerdict, Suggestion


def table_of(knowledge: Knowledge, question: FlagQuestion, judged: RunJudgement) -> FlagTable:
    """The table of a run."""
    if not judged.releases:
        return FlagTable(launch=question.launch, because=judged.because)
    last = judged.releases[-1]
    dump = as_fields(knowledge, last, question.args)
    described, undescribed = known_fields(knowledge, last)
    return FlagTable(
        launch=question.launch if judged.is_asked else None,
        releases=judged.releases,
        rows=tuple(_flag(one, dump.get(one.field), was_asked=judged.is_asked) for one in judged.verdicts),
        decisions=tuple(_decision(knowledge, one, question) for one in judged.decisions),
        suggestions=tuple(_suggestion(one) for one in judged.suggestions),
        because=judged.because or question.launch_because,
        described=len(described),
        undescribed=len(undescribed),
    )


def _flag(one: FlagVerdict, runs_with: Json, *, was_asked: bool) -> FlagRow:
    hides = is_secret(one.field) and runs_with is not None
    return FlagRow(
        flag=one.flag,
        field=one.field,
        asked=one.value if was_asked else None,
        runs_with=MASK if hides else runs_with,
        was_asked=was_asked,
        verdict=one.verdict,
        because=one.because,
        do=one.do,
        source=one.source,
    )


def _decision(knowledge: Knowledge, one: DecisionTold, question: FlagQuestion) -> DecisionRow:
    fact = question.facts.get(one.name) or _shown_by(knowledge, one, question)
    if fact is not None:
        said = next((line for line in question.lines if (line.source, line.line) == (fact.source, fact.line)), None)
        return _row(knowledge, one, question, "seen", "the log says it", (said or fact,))
    if one.value is None:
        cure = f" A line of this kind would tell: {one.seen_by}." if one.seen_by else ""
        return _row(knowledge, one, question, "unknown", f"{one.because}.{cure}", ())
    return _row(knowledge, one, question, "derived", one.because, ())


def _shown_by(knowledge: Knowledge, one: DecisionTold, question: FlagQuestion) -> FactEvidence | None:
    """A fact of the log that says the same as what was derived."""
    facts = (question.facts.get(name) for name in knowledge.decisions[one.name].shown_by)
    return next((fact for fact in facts if fact is not None and fact.line is not None and fact.value == one.value), None)


def _row(
    knowledge: Knowledge, one: DecisionTold, question: FlagQuestion, how: str, because: str, evidence: Iterable[LineEvidence | FactEvidence]
) -> DecisionRow:
    argument = knowledge.decisions[one.name].argument
    return DecisionRow(
        name=one.name.removeprefix("run."),
        about=one.about,
        argument=argument,
        in_dump=question.args.get(argument) if argument else None,
        value=one.value,
        how=how,
        because=because,
        source=one.source if how == "derived" else "",
        seen_by=one.seen_by,
        evidence=tuple(evidence),
    )


def _suggestion(one: Suggestion) -> SuggestionRow:
    return SuggestionRow(flag=one.flag, because=one.because, do=f"Try {one.flag} and measure.", source=one.source)
