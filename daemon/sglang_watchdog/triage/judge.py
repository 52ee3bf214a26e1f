"""Judges a launch on one release: every flag, what would help, and what the server decides without saying it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..engine.conditions import Unknown
from .fact_words import fact_words
from .judge_flag import judge_flag, shown_value
from .knowledge import Knowledge
from .options import GivenFlag
from .resolution import Resolution
from .verdicts import DecisionTold, Judgement, OpenQuestion, Suggestion


def judge(
    knowledge: Knowledge,
    release: str,
    flags: Sequence[GivenFlag],
    facts: Mapping[str, Any],
    *,
    is_whole_command: bool = False,
    notes: Iterable[str] = (),
) -> Judgement:
    """Judge the flags as the sampled `release` takes them."""
    last = {flag.field: index for index, flag in enumerate(flags) if flag.declared is not None and not flag.error}
    given = {flag.field: flag.value for index, flag in enumerate(flags) if last.get(flag.field) == index and flag.is_value_known}
    unknown = frozenset(flag.field for index, flag in enumerate(flags) if last.get(flag.field) == index and not flag.is_value_known)
    resolution = Resolution(knowledge, release, given, facts, unknown)
    verdicts = []
    for index, flag in enumerate(flags):
        if flag.option in ("--config", "--help", "-h"):
            continue
        verdict = judge_flag(knowledge, release, resolution, flag)
        later = last.get(flag.field, index)
        if later > index and not flag.error:
            verdict = replace(
                verdict,
                verdict="overridden",
                resolved=shown_value(flags[later]),
                because=f"given again as {flags[later].typed} {shown_value(flags[later])}; the last one counts",
                do="Give it once.",
                source="argparse, argparse::Action",
            )
        verdicts.append(verdict)
    told = list(notes)
    hidden = tuple(
        OpenQuestion(flag.typed, "args", "the options that it stands for are not known", "Give the words as the server gets them.")
        for flag in flags
        if flag.kind == "variable"
    )
    starts: bool | None = all(verdict.starts for verdict in verdicts)
    if starts and hidden:
        starts = None
    if is_whole_command and not hidden and "model_path" not in given and "model_path" not in unknown:
        told.append("--model-path is missing: the server does not start")
        starts = False
    result = Judgement(
        release,
        release,
        starts,
        tuple(verdicts),
        tuple(suggestions(knowledge, resolution)),
        tuple(decisions(knowledge, resolution)),
    )
    told += [f"fault of the library: {text}" for text in dict.fromkeys(resolution.faults)]
    return replace(result, notes=tuple(told), files=hidden)


def suggestions(knowledge: Knowledge, resolution: Resolution) -> Iterable[Suggestion]:
    """Flags whose help condition holds and that neither the user nor the server has set."""
    for name, known in knowledge.flags.items():
        if name in resolution.given or not known.covers(resolution.release) or not knowledge.table.declares(name, resolution.release):
            continue
        for rule in known.helps:
            if rule.speaks_for(resolution.release) and resolution.holds(rule) is True:
                yield Suggestion(rule.option, rule.because, rule.source)
                break


def decisions(knowledge: Knowledge, resolution: Resolution) -> Iterable[DecisionTold]:
    """Each hidden decision of the library, known or not."""
    for path, decision in knowledge.decisions.items():
        value = resolution.value(path)
        if isinstance(value, Unknown):
            yield DecisionTold(path, decision.about, None, f"{fact_words(value.path)} is not known", "", decision.seen_by)
        else:
            rule = value.rule
            yield DecisionTold(
                path,
                decision.about,
                value.value,
                rule.because if rule else "reported by the server",
                rule.source if rule else "",
                decision.seen_by,
            )


def known_fields(knowledge: Knowledge, release: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(fields with knowledge, fields without) of a sampled release: what a reader may expect of us."""
    fields = [name for name in knowledge.table.fields_at(release) if knowledge.table.options_of(name, release)]
    described = [name for name in fields if (one := knowledge.flags.get(name)) is not None and one.covers(release)]
    return tuple(described), tuple(name for name in fields if name not in set(described))
