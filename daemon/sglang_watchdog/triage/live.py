"""Judges the flags of a running server from its args dump, and against its command line where that is known.

The dump holds resolved values. With the command line, a value that differs from what was asked is an override, found
even where the server says nothing. Without it, a flag counts as set by the user only where the dump differs from both
the release's default and what the server would have set by itself; what that cannot tell is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as member
from typing import Any

from ..model.finding import Release
from ..model.observation import Json
from .command import MASK, NotACommand, is_secret, read_command
from .judge import decisions, suggestions
from .judge_flag import judge_flag
from .knowledge import Knowledge
from .options import GivenFlag, read_options
from .resolution import Known, Resolution, same
from .verdicts import DecisionTold, FlagVerdict, Judgement, Suggestion

TOPICS: Mapping[str, str] = {
    "no-op": "flag.no-effect",
    "dead": "flag.dead",
    "redundant": "flag.redundant",
    "condition-unmet": "flag.condition-unmet",
    "overridden": "flag.overridden",
    "deprecated": "flag.deprecated",
    "conflict": "flag.conflict",
}
_OWN = frozenset({"model_path", "tokenizer_path", "host", "port", "served_model_name", "random_seed", "nccl_port", "dist_init_addr"})


@dataclass(frozen=True, slots=True)
class FlagRecord:
    """What a finding about one flag needs; the engine adds run, times and positions. Severity is the topic's default."""

    topic: str
    signature: str  # id of the flag's file; "flag-unknown" where it has none
    field: str
    title: str
    summary: str
    explanation: str
    remediation: str
    references: tuple[str, ...]
    facts: Mapping[str, Json] = member(default_factory=dict)  # evidence: args.<field> and what was asked


@dataclass(frozen=True, slots=True)
class RunJudgement:
    """The table of one run, what of it makes findings, and why there is none where there is none."""

    verdicts: tuple[FlagVerdict, ...] = ()
    records: tuple[FlagRecord, ...] = ()
    decisions: tuple[DecisionTold, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    releases: tuple[str, ...] = ()  # sampled releases that the run may be
    because: str = ""  # why nothing was judged


def judge_run(
    knowledge: Knowledge,
    dump: Mapping[str, Json],
    *,
    command: str | Sequence[str] | None,
    release: Release,
    facts: Mapping[str, Json],
) -> RunJudgement:
    """Judge the flags of a run. `dump`: the parsed args dump, secrets masked, nested graph settings also flattened.
    `command`: the command line if a stated source gave it. `facts`: model.*, gpu.* and run.* that are known, by dotted
    name.

    A verdict stands only if all releases of the range give the same one.
    """
    releases = knowledge.table.between(release.min, release.max) if release.min and release.max else ()
    if not releases:
        return RunJudgement(because="the release of this run is not known, or outside those whose sources were read")
    if not dump:
        return RunJudgement(releases=releases, because="the run has no args dump")
    each = [_judge_at(knowledge, one, dump, command, facts) for one in releases]
    verdicts = tuple(_agreed(each, releases))
    told = each[-1]
    kept_suggestions = tuple(one for one in told.suggestions if all(any(one.flag == other.flag for other in at.suggestions) for at in each))
    kept_decisions = tuple(
        one for one in told.decisions if all(any(one.name == other.name and one.value == other.value for other in at.decisions) for at in each)
    )
    records = [*_records(knowledge, verdicts, dump), *_helpful(knowledge, kept_suggestions)]
    return RunJudgement(verdicts, tuple(records), kept_decisions, kept_suggestions, releases)


def _judge_at(knowledge: Knowledge, release: str, dump: Mapping[str, Json], command: str | Sequence[str] | None, facts: Mapping[str, Json]) -> Judgement:
    observed = Resolution(knowledge, release, {}, facts, resolved=_as_fields(knowledge, release, dump))
    given = _given_by_command(knowledge, release, command) if command is not None else None
    flags = given if given is not None else _inferred(knowledge, release, dump, facts)
    verdicts = [_judge_one(knowledge, release, flag, dump, facts, flags, is_asked=given is not None) for flag in flags]
    if given is None:
        verdicts = [one for flag, one in zip(flags, verdicts, strict=True) if one.verdict == "acts" or not _may_be_filled_in(knowledge, release, flag)]
    return Judgement(release, release, True, tuple(verdicts), tuple(suggestions(knowledge, observed)), tuple(decisions(knowledge, observed)))


def _as_fields(knowledge: Knowledge, release: str, dump: Mapping[str, Json]) -> dict[str, Json]:
    """The dump with the decode size of late releases under its own flag's name, where the engine flattened it under the
    older one.
    """
    known = dict(dump)
    size = known.get("cuda_graph_max_bs")
    if size is not None and known.get("cuda_graph_max_bs_decode") is None and knowledge.table.declares("cuda_graph_max_bs_decode", release):
        known["cuda_graph_max_bs_decode"] = size
    return known


def _given_by_command(knowledge: Knowledge, release: str, command: str | Sequence[str] | None) -> list[GivenFlag] | None:
    if not command:
        return None
    try:
        words = read_command(command).arguments
    except NotACommand:
        return None
    last: dict[str, GivenFlag] = {}
    for flag in read_options(words, knowledge.table.options_at(release)):
        if flag.declared is not None and not flag.error and flag.is_value_known and flag.option != "--config":
            last[flag.field] = flag
    return list(last.values())


def _inferred(knowledge: Knowledge, release: str, dump: Mapping[str, Json], facts: Mapping[str, Json]) -> list[GivenFlag]:
    """Flags that the user must have set: neither the default nor what the server sets by itself explains the dump."""
    values = _as_fields(knowledge, release, dump)
    found: list[GivenFlag] = []
    for name, known in knowledge.flags.items():
        if name not in values or name in _OWN or not known.covers(release) or not knowledge.table.declares(name, release):
            continue
        value = values[name]
        if value is None or is_secret(name) or same(value, knowledge.table.default(name, release)):
            continue
        expected = _without(knowledge, release, values, name, facts)
        if not isinstance(expected, Known) or same(expected.value, value):
            continue
        options = knowledge.table.options_of(name, release)
        declared = knowledge.table.option(options[0], release) if options else None
        found.append(GivenFlag(options[0] if options else known.flag, options[0] if options else known.flag, declared, value))
    return found


def _may_be_filled_in(knowledge: Knowledge, release: str, flag: GivenFlag) -> bool:
    """Left unset, the server fills such a field in: the dump does not tell who set it, and "remove it" would be a guess."""
    return knowledge.table.default(flag.field, release) is None and not isinstance(flag.value, bool)


def _without(knowledge: Knowledge, release: str, values: Mapping[str, Json], name: str, facts: Mapping[str, Json]) -> Any:
    """What the field would be if only the other values of the dump held."""
    others = {key: value for key, value in values.items() if key != name}
    return Resolution(knowledge, release, {}, facts, resolved=others).value(f"args.{name}")


def _judge_one(
    knowledge: Knowledge,
    release: str,
    flag: GivenFlag,
    dump: Mapping[str, Json],
    facts: Mapping[str, Json],
    flags: Sequence[GivenFlag],
    *,
    is_asked: bool,
) -> FlagVerdict:
    values = _as_fields(knowledge, release, dump)
    name = flag.field
    given = {one.field: one.value for one in flags}
    seen = {key: value for key, value in values.items() if key != name}
    resolution = Resolution(knowledge, release, given, facts, resolved=seen)
    verdict = judge_flag(knowledge, release, resolution, flag, is_running=True)
    if is_asked and name in values and _is_comparable(knowledge, release, flag, values[name]) and not same(values[name], flag.value):
        because = verdict.because if verdict.verdict == "overridden" else f"asked for {flag.value}, the server runs with {values[name]}"
        return replace(
            verdict,
            verdict="overridden",
            because=because,
            resolved=values[name],
            do=verdict.do if verdict.verdict == "overridden" else "Look for the rule that changed it, or ask for what the server uses.",
        )
    if verdict.verdict == "overridden" and (not is_asked or name not in values or same(values.get(name), flag.value)):
        return replace(verdict, verdict="acts", because="as asked", do="", resolved=None)  # predicted, and the dump shows otherwise
    return verdict


def _is_comparable(knowledge: Knowledge, release: str, flag: GivenFlag, value: Json) -> bool:
    """Whether a difference between command and dump means a change: not for paths, names, secrets and nested records."""
    if flag.field in _OWN or is_secret(flag.field) or flag.value == MASK or value is None:
        return False
    if isinstance(flag.value, (bool, int, float)) and isinstance(value, (bool, int, float)):
        return flag.declared is not None and flag.declared.action in ("store", "flag", "flag-off")
    known = knowledge.flags.get(flag.field)
    has_rules = known is not None and any(rule.speaks_for(release) for rule in known.overrides)
    return isinstance(value, str) and isinstance(flag.value, str) and has_rules


def _agreed(each: Sequence[Judgement], releases: Sequence[str]) -> list[FlagVerdict]:
    """Verdicts that all releases of the range share; where they differ the flag is unknown."""
    out: list[FlagVerdict] = []
    for verdict in each[-1].flags:
        others = [next((one for one in at.flags if one.field == verdict.field), None) for at in each]
        if all(one is not None and one.verdict == verdict.verdict for one in others):
            out.append(verdict)
        else:
            words = sorted({one.verdict if one is not None else "not set" for one in others})
            out.append(
                replace(
                    verdict,
                    verdict="unknown",
                    do="",
                    because=f"between {releases[0]} and {releases[-1]} it is {' or '.join(words)}",
                )
            )
    return out


def _records(knowledge: Knowledge, verdicts: Sequence[FlagVerdict], dump: Mapping[str, Json]) -> list[FlagRecord]:
    found: list[FlagRecord] = []
    for verdict in verdicts:
        topic = TOPICS.get(verdict.verdict)
        if topic is None:
            continue
        known = knowledge.flags.get(verdict.field)
        facts: dict[str, Json] = {f"args.{verdict.field}": dump.get(verdict.field)}
        found.append(
            FlagRecord(
                topic=topic,
                signature=known.signature if known is not None else "flag-unknown",
                field=verdict.field,
                title=f"{verdict.flag}: {verdict.verdict}",
                summary=f"{verdict.flag} {_shown(verdict.value)}: {verdict.because}.".replace("..", "."),
                explanation=known.effect if known is not None else "",
                remediation=verdict.do,
                references=(verdict.source,),
                facts=facts,
            )
        )
    return found


def _helpful(knowledge: Knowledge, found: Sequence[Suggestion]) -> list[FlagRecord]:
    by_option = {rule.option: known for known in knowledge.flags.values() for rule in known.helps}
    return [
        FlagRecord(
            topic="flag.not-auto-enabled",
            signature=by_option[one.flag].signature,
            field=by_option[one.flag].field,
            title=f"{one.flag} is not set",
            summary=f"{one.flag}: {one.because}.",
            explanation=by_option[one.flag].effect,
            remediation=f"Try {one.flag} and measure.",
            references=(one.source,),
        )
        for one in found
        if one.flag in by_option
    ]


def _shown(value: Any) -> str:
    return "" if value is True or value is None else str(value)
