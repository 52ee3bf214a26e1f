"""Judges the flags of a running server from its args dump, and against its command line where that is known.

The dump holds resolved values. With the command line, a value that differs from what was asked is an override, found
even where the server says nothing. Without it, a flag counts as set by the user only where the dump differs from both
the release's default and what the server would have set by itself; what that cannot tell is left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..model.finding import Release
from ..model.flags import FlagRecord
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
_NEVER_CHANGED = ("port", "tp_size", "pp_size", "nnodes", "node_rank", "base_gpu_id", "served_model_name", "dist_init_addr", "random_seed")
_GIVEN_ONLY = frozenset({"served_model_name", "dist_init_addr", "random_seed"})  # left out, the server fills them in
_OWN = frozenset({"model_path", "tokenizer_path", "host", "port", "served_model_name", "random_seed", "nccl_port", "dist_init_addr"})


@dataclass(frozen=True, slots=True)
class RunJudgement:
    """The table of one run, what of it makes findings, and why there is none where there is none."""

    verdicts: tuple[FlagVerdict, ...] = ()
    records: tuple[FlagRecord, ...] = ()
    decisions: tuple[DecisionTold, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    releases: tuple[str, ...] = ()  # sampled releases that the run may be
    because: str = ""  # why nothing was judged, or why the command was left aside
    is_asked: bool = False  # the launch command is known: what it does not give was not asked for


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
    words = _words(command)
    stranger = _of_another_server(knowledge, releases[-1], words, dump) if words is not None else ""
    if stranger:
        words = None
    each = [_judge_at(knowledge, one, dump, words, facts) for one in releases]
    verdicts = tuple(_agreed(each, releases))
    kept_suggestions = tuple(one for one in each[-1].suggestions if all(any(one.flag == other.flag for other in at.suggestions) for at in each))
    records = [*_records(knowledge, verdicts, is_asked=words is not None), *_helpful(knowledge, kept_suggestions)]
    return RunJudgement(
        verdicts, tuple(records), tuple(_decided(each, releases)), kept_suggestions, releases, because=stranger, is_asked=words is not None
    )


def _words(command: str | Sequence[str] | None) -> Sequence[str] | None:
    """The arguments of the command; none at all are known to be none."""
    if command is None or (isinstance(command, str) and not command):
        return None
    try:
        return read_command(command).arguments if command else ()
    except NotACommand:
        return None


def _of_another_server(knowledge: Knowledge, release: str, words: Sequence[str], dump: Mapping[str, Json]) -> str:
    """Why the command cannot have launched this run; "" where nothing says so. Some values are never changed by the server, so that
    they stand in the dump as they were given, or as the release's default; where it fetches the model, the folder's own name stays."""
    options = knowledge.table.options_at(release)
    asked = {flag.field: flag.value for flag in read_options(words, options) if flag.declared is not None and flag.is_value_known}
    has_file = any(word.partition("=")[0] == "--config" for word in words)
    for name in _NEVER_CHANGED:
        if name in asked or name in _GIVEN_ONLY or has_file or not knowledge.table.declares(name, release):
            value = asked.get(name)
        else:
            value = knowledge.table.default(name, release)
        runs = dump.get(name)
        if value is None or runs is None or MASK in (value, runs) or same(value, runs):
            continue
        if name == "port":
            return f"the launch command found is another server's: it listens on port {value}, this run on {runs}"
        return f"the launch command found is another server's: {name} is {value} there and {runs} in this run's dump"
    model, runs = asked.get("model_path"), dump.get("model_path")
    if isinstance(model, str) and isinstance(runs, str) and _own_name(model) != _own_name(runs) and MASK not in (model, runs):
        return f"the launch command found is another server's: it loads {_own_name(model)}, this run {_own_name(runs)}"
    return ""


def _own_name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _decided(each: Sequence[Judgement], releases: Sequence[str]) -> Iterable[DecisionTold]:
    """Decisions that all releases of the range share; where they differ, the decision is unknown."""
    for one in each[-1].decisions:
        values = [next((other.value for other in at.decisions if other.name == one.name), None) for at in each]
        if all(same(value, one.value) for value in values):
            yield one
        else:
            words = sorted({"not known" if value is None else str(value) for value in values})
            yield replace(one, value=None, because=f"between {releases[0]} and {releases[-1]} it is {' or '.join(words)}", source="")


def _judge_at(knowledge: Knowledge, release: str, dump: Mapping[str, Json], words: Sequence[str] | None, facts: Mapping[str, Json]) -> Judgement:
    observed = Resolution(knowledge, release, {}, facts, resolved=as_fields(knowledge, release, dump))
    given = _given_by_command(knowledge, release, words) if words is not None else None
    flags = given if given is not None else _inferred(knowledge, release, dump, facts)
    verdicts = [_judge_one(knowledge, release, flag, dump, facts, flags, is_asked=given is not None) for flag in flags]
    if given is None:
        verdicts = [one for flag, one in zip(flags, verdicts, strict=True) if one.verdict == "acts" or not _may_be_filled_in(knowledge, release, flag)]
    return Judgement(release, release, True, tuple(verdicts), tuple(suggestions(knowledge, observed)), tuple(decisions(knowledge, observed)))


def as_fields(knowledge: Knowledge, release: str, dump: Mapping[str, Json]) -> dict[str, Json]:
    """The dump with the decode size of late releases under its own flag's name, where the engine flattened it under the
    older one.
    """
    known = dict(dump)
    size = known.get("cuda_graph_max_bs")
    if size is not None and known.get("cuda_graph_max_bs_decode") is None and knowledge.table.declares("cuda_graph_max_bs_decode", release):
        known["cuda_graph_max_bs_decode"] = size
    return known


def _given_by_command(knowledge: Knowledge, release: str, words: Sequence[str]) -> list[GivenFlag]:
    last: dict[str, GivenFlag] = {}
    for flag in read_options(words, knowledge.table.options_at(release)):
        if flag.declared is not None and not flag.error and flag.is_value_known and flag.option != "--config":
            last[flag.field] = flag
    return list(last.values())


def _inferred(knowledge: Knowledge, release: str, dump: Mapping[str, Json], facts: Mapping[str, Json]) -> list[GivenFlag]:
    """Flags that the user must have set: neither the default nor what the server sets by itself explains the dump."""
    values = as_fields(knowledge, release, dump)
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
    values = as_fields(knowledge, release, dump)
    name = flag.field
    given = {one.field: one.value for one in flags}
    seen = {key: value for key, value in values.items() if key != name}
    resolution = Resolution(knowledge, release, given, facts, resolved=seen)
    verdict = judge_flag(knowledge, release, resolution, flag, is_running=True)
    known = knowledge.flags.get(name)
    if is_asked and known is not None and isinstance(flag.value, str) and known.same_as.get(flag.value, flag.value) == values.get(name) != flag.value:
        return replace(verdict, verdict="acts", because=f"the dump shows it as {values[name]}, another name for the same", do="", resolved=None)
    if is_asked and (moved := _moved(knowledge, release, flag, values, given, facts)):
        return verdict if verdict.verdict == "deprecated" else replace(verdict, verdict="acts", because=moved, do="", resolved=None)
    if is_asked and name in values and _is_comparable(knowledge, release, flag, values[name]) and not same(values[name], flag.value):
        is_explained = verdict.verdict == "overridden" and bool(verdict.reason) and same(verdict.resolved, values[name])
        why = f"because {verdict.reason}" if is_explained else "and no rule of this release that we know says why"
        return replace(
            verdict,
            verdict="overridden",
            because=f"asked {flag.value}, runs with {values[name]}, {why}",
            resolved=values[name],
            do=verdict.do if is_explained else "Look for the line of the log that says so before the dump, or ask for what the server uses.",
        )
    if verdict.verdict == "overridden" and (not is_asked or name not in values or same(values.get(name), flag.value)):
        return replace(verdict, verdict="acts", because="as asked", do="", resolved=None)  # predicted, and the dump shows otherwise
    return verdict


def _moved(
    knowledge: Knowledge, release: str, flag: GivenFlag, values: Mapping[str, Json], given: Mapping[str, Json], facts: Mapping[str, Json]
) -> str:
    """Why the dump shows what was asked under another field; "" where it does not."""
    known = knowledge.flags.get(flag.field)
    if known is None or not known.moved:
        return ""
    whole = Resolution(knowledge, release, given, facts, resolved=values)
    return next((rule.because for rule in known.moved if rule.speaks_for(release) and whole.holds(rule) is True), "")


def _is_comparable(knowledge: Knowledge, release: str, flag: GivenFlag, value: Json) -> bool:
    """Whether a difference between command and dump means a change: not for paths, names, secrets and nested records."""
    if flag.field in _OWN or is_secret(flag.field) or flag.value == MASK or value is None:
        return False
    known = knowledge.flags.get(flag.field)
    if isinstance(flag.value, (bool, int, float)) and isinstance(value, (bool, int, float)):
        # A switch may be reset when its successor takes over (enable_ep_moe): only where this release was read for it.
        is_read = not isinstance(flag.value, bool) or (known is not None and known.covers(release))
        return is_read and flag.declared is not None and flag.declared.action in ("store", "flag", "flag-off")
    if not isinstance(value, str) or not isinstance(flag.value, str) or flag.value == "auto":  # auto asks for a choice
        return False
    if known is not None and any(rule.speaks_for(release) for rule in known.overrides):
        return True
    # Two words that argparse itself offers; one that begins with the other says the same more exactly (modelopt, modelopt_fp8).
    choices = (flag.declared.choices or ()) if flag.declared is not None else ()
    is_closer = value.startswith(flag.value) or flag.value.startswith(value)
    return {value, flag.value} <= set(choices) and not is_closer


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


def _records(knowledge: Knowledge, verdicts: Sequence[FlagVerdict], *, is_asked: bool) -> list[FlagRecord]:
    found: list[FlagRecord] = []
    for verdict in verdicts:
        topic = TOPICS.get(verdict.verdict)
        if topic is None or (verdict.verdict == "redundant" and verdict.field in _OWN):
            continue  # a port or a name that is written out is no matter of tuning
        known = knowledge.flags.get(verdict.field)
        says = verdict.because if verdict.verdict == "overridden" else f"{_named(verdict)}: {verdict.because}"
        found.append(
            FlagRecord(
                topic=topic,
                signature=known.signature if known is not None else "flag-unknown",
                field=verdict.field,
                title=f"{verdict.flag}: {verdict.verdict}",
                summary=(f"{verdict.flag}: {says}" if verdict.verdict == "overridden" else says).rstrip(".") + ".",
                explanation=known.effect if known is not None else "",
                remediation=verdict.do,
                references=(verdict.source,),
                asked=verdict.value,
                was_asked=is_asked,
            )
        )
    return found


def _named(verdict: FlagVerdict) -> str:
    """The flag as it was given."""
    return verdict.flag if verdict.value is True or verdict.value is None else f"{verdict.flag} {verdict.value}"


def _helpful(knowledge: Knowledge, found: Sequence[Suggestion]) -> list[FlagRecord]:
    by_option = {rule.option: known for known in knowledge.flags.values() for rule in known.helps}
    return [
        FlagRecord(
            topic="flag.not-auto-enabled",
            signature=by_option[one.flag].signature,
            field=by_option[one.flag].field,
            title=f"{one.flag} is not set",
            summary=f"{one.flag}: {one.because.rstrip('.')}.",
            explanation=by_option[one.flag].effect,
            remediation=f"Try {one.flag} and measure.",
            references=(one.source,),
        )
        for one in found
        if one.flag in by_option
    ]
