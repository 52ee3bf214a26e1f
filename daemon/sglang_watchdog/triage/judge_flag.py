"""Judges one flag on one release: does it act, is it dead, redundant, overridden, refused, or can it not be told.

The order of the questions is the order in which they hide one another: what ends the start, what is never read, what
the server changes, what the path in use does not look at, what the server would have chosen anyway.
"""

from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from ..engine.conditions import Unknown
from ..library.flag_reads import NEVER, WEAK
from .command import MASK, is_secret
from .fact_words import fact_words
from .knowledge import Knowledge, Rule
from .options import GivenFlag
from .resolution import Known, Resolution, same
from .verdicts import Axes, FlagVerdict, OpenQuestion


def shown_value(flag: GivenFlag) -> Any:
    """The flag's value as it may be shown: secrets masked."""
    return MASK if is_secret(flag.field) and flag.value is not None else flag.value


def judge_flag(knowledge: Knowledge, release: str, resolution: Resolution, flag: GivenFlag, *, is_running: bool = False) -> FlagVerdict:
    """Judge one flag. `is_running`: the server runs, so what would end a start did not."""
    return _Flag(knowledge, release, resolution, flag, is_running).judged()


class _Flag:
    """One flag under question."""

    def __init__(self, knowledge: Knowledge, release: str, resolution: Resolution, flag: GivenFlag, is_running: bool = False) -> None:
        self.is_running = is_running
        self.knowledge = knowledge
        self.table = knowledge.table
        self.release = release
        self.resolution = resolution
        self.flag = flag
        self.name = flag.field
        known = knowledge.flags.get(self.name)
        self.known = known if known is not None and known.covers(release) else None

    def judged(self) -> FlagVerdict:
        if self.flag.error:
            return self._refused()
        if self.flag.declared is not None and self.flag.declared.action in ("warn", "raise"):
            return self._retired()
        verdict = self._with_deprecation(self._judge_value())
        return replace(verdict, open=tuple(self._open_questions())) if verdict.starts and not self.is_running else verdict

    def _open_questions(self) -> Iterable[OpenQuestion]:
        """What would end the start and cannot be told, once for each missing fact."""
        asked: set[str] = set()
        for rule in self.known.fails if self.known and self.flag.is_value_known else ():
            outcome = self.resolution.holds(rule) if rule.speaks_for(self.release) else False
            if isinstance(outcome, Unknown) and outcome.path not in asked:
                asked.add(outcome.path)
                because = f"{fact_words(outcome.path)} is not known"
                if rule.unknown:
                    because += f"; {self.resolution.told(rule.unknown)}"
                yield OpenQuestion(self.flag.option or self.flag.typed, outcome.path, because, self._cure(outcome.path))

    # -- refused by argparse ------------------------------------------------------------------------------------------
    def _refused(self) -> FlagVerdict:
        flag = self.flag
        if flag.kind == "missing":
            source = self._declared_source()
            return self._verdict("unrecognised", "its value is missing: the server does not start", "Give its value.", source, starts=False)
        if flag.kind == "value":
            return self._verdict(
                "unrecognised",
                f"the value is refused: {flag.error}; the server does not start",
                "Give a value that this release accepts.",
                self._declared_source(),
                starts=False,
            )
        text = flag.typed
        having = self.table.option_releases(text)
        position = self.table.releases.index(self.release)
        earlier = [one for one in having if self.table.releases.index(one) < position]
        later = [one for one in having if self.table.releases.index(one) > position]
        how = f"argparse finds several options it could be ({', '.join(flag.candidates)})" if flag.kind == "ambiguous" else "argparse refuses it"
        source = f"{self.release}, srt/server_args.py::add_cli_args"
        if earlier:
            return self._verdict(
                "removed",
                f"not an option since {self._after(earlier[-1])} (last in {earlier[-1]}): {how}, the server does not start",
                self._successor(text, earlier[-1]),
                source,
                starts=False,
            )
        if later:
            return self._verdict(
                "unrecognised",
                f"it comes first with {later[0]}: {how}, the server does not start",
                f"Remove it, or run SGLang {later[0]} or later.",
                source,
                starts=False,
            )
        if not text.startswith("-"):
            return self._verdict(
                "unrecognised",
                f"it belongs to no option: {how}, the server does not start",
                f"If it is the model, write --model-path {text}; else remove it, or quote the value it belongs to.",
                source,
                starts=False,
            )
        theirs = next((one for one in self.knowledge.flags.values() if text in one.also_called and one.covers(self.release)), None)
        if theirs is not None:
            return self._verdict(
                "unrecognised",
                f"an option of another server: {how}, the server does not start",
                f"Here it is {theirs.flag}: {theirs.effect[:1].lower()}{theirs.effect[1:]}.",
                source,
                starts=False,
            )
        close = get_close_matches(text, self.table.options_at(self.release), n=1, cutoff=0.75)
        return self._verdict(
            "unrecognised",
            f"no release that was read has this option: {how}, the server does not start",
            f"Did you mean {close[0]}?" if close else "Remove it.",
            source,
            starts=False,
        )

    def _after(self, release: str) -> str:
        return self.table.releases[self.table.releases.index(release) + 1]

    def _successor(self, text: str, last: str) -> str:
        option = self.table.option(text, last)
        known = self.knowledge.flags.get(option.field) if option is not None else None
        new = (known.renamed_to if known is not None else "") or (option.new if option is not None else "")
        if new:
            return f"Use {new} instead."
        if known is not None and known.removed:
            return known.removed
        others = self.table.options_of(option.field, self.release) if option is not None else ()
        return f"Use {others[0]} instead." if others else "Remove it."

    def _retired(self) -> FlagVerdict:
        declared = self.flag.declared
        assert declared is not None
        new = f"Use {declared.new} instead." if declared.new else (self._successor(self.flag.option, self.release))
        source = f"{self.release}, srt/server_args.py::DeprecatedAction"
        if declared.action == "raise":
            return self._verdict(
                "removed",
                f"still declared, but giving it stops the start: {declared.says.rstrip('.') or 'it is deprecated'}",
                new,
                source,
                starts=False,
            )
        return self._verdict("deprecated", "accepted with a warning; it stores nothing and has no effect", new, source, axes=Axes(functional=False))

    # -- the value ----------------------------------------------------------------------------------------------------
    def _judge_value(self) -> FlagVerdict:
        known, given = self.known, self.flag.value
        if not self.flag.is_value_known:
            return self._verdict(
                "unknown",
                f"its value {given!r} is filled in elsewhere" if self.flag.kind != "variable" else "the options that it stands for are not known",
                "Give the command as the server gets it.",
                self._declared_source(),
            )
        failing = self._first(known.fails) if known and not self.is_running else None
        if isinstance(failing, Rule):
            return self._verdict(
                "conflict",
                f"{self.resolution.told(failing.because)}: the server does not start",
                failing.do or "Change one of them.",
                failing.source,
                starts=False,
                axes=replace(self._axes(), compatible=False),
            )
        dead = self._dead()
        if dead is not None:
            return dead
        contrary = self._first(known.conflicts) if known else None
        if isinstance(contrary, Rule):
            return self._verdict("conflict", self.resolution.told(contrary.because), contrary.do or "Keep one of them.", contrary.source)
        value = self.resolution.value(f"args.{self.name}")
        if isinstance(value, Known) and value.how == "overridden" and value.rule is not None and not same(value.value, given):
            logged = f"; the log says {value.rule.logged!r}" if value.rule.logged else "; nothing is logged"
            return self._verdict(
                "overridden",
                f"{value.rule.because}: it becomes {_word(value.value)}{logged}",
                value.rule.do or "Remove it, or change what overrides it.",
                value.rule.source,
                resolved=value.value,
                reason=value.rule.because,
            )
        return self._judge_effect(value)

    def _judge_effect(self, value: Known | Unknown) -> FlagVerdict:
        known, given = self.known, self.flag.value
        chosen = self._chosen_without()
        is_on = given not in (False, None)
        unmet = self._unmet() if known is not None and is_on else None
        if isinstance(unmet, Rule):
            return self._verdict(unmet.verdict, self.resolution.told(unmet.because), unmet.do or "Remove it.", unmet.source)
        if isinstance(chosen, Known) and same(chosen.value, given):
            because = self._why_chosen(chosen)
            source = chosen.rule.source if chosen.rule is not None else self._declared_source()
            return self._verdict("redundant", because, "Keep it only to be explicit.", source)
        if known is None:
            return self._verdict("unknown", self._not_read(), "Read the flag's help of this release.", self._declared_source())
        if isinstance(unmet, Unknown):
            return self._verdict("unknown", f"it depends on {fact_words(unmet.path)}, which is not known", self._cure(unmet.path), known.source)
        if isinstance(value, Unknown):
            return self._verdict("unknown", f"the server may change it: {fact_words(value.path)} is not known", self._cure(value.path), known.source)
        if isinstance(chosen, Unknown) and not is_secret(self.name) and known.automatic:
            return self._verdict(
                "unknown",
                f"it acts unless the server would choose the same, which depends on {fact_words(chosen.path)}",
                self._cure(chosen.path),
                known.source,
            )
        return self._verdict("acts", known.effect, "", known.source)

    def _with_deprecation(self, verdict: FlagVerdict) -> FlagVerdict:
        declared = self.flag.declared
        if declared is None or verdict.verdict not in ("acts", "unknown"):
            return verdict
        rule = next((one for one in self.known.deprecated if one.speaks_for(self.release)), None) if self.known else None
        if declared.action not in ("alias", "alias-flag", "alias-const") and rule is None:
            return verdict
        if rule is not None and not rule.stores:
            return replace(verdict, verdict="deprecated", because=rule.because, do=_use(rule.to), source=rule.source)
        new = declared.new or (rule.to if rule is not None else "")
        still = "it still acts" if verdict.verdict == "acts" else verdict.because
        return replace(
            verdict,
            verdict="deprecated",
            because=f"{rule.because if rule is not None else 'a deprecated spelling'}; {still}",
            do=_use(new),
            source=rule.source if rule is not None else verdict.source,
        )

    # -- parts --------------------------------------------------------------------------------------------------------
    def _first(self, rules: Iterable[Rule]) -> Rule | Unknown | None:
        """The first rule that holds; else an unknown one; else None."""
        unknown: Unknown | None = None
        for rule in rules:
            if rule.speaks_for(self.release):
                outcome = self.resolution.holds(rule)
                if outcome is True:
                    return rule
                if isinstance(outcome, Unknown):
                    unknown = unknown or outcome
        return unknown

    def _unmet(self, axis: str = "") -> Rule | Unknown | None:
        unknown: Unknown | None = None
        for rule in self.known.needs if self.known else ():
            if not rule.speaks_for(self.release) or (axis and rule.axis != axis):
                continue
            outcome = self.resolution.holds(rule)
            if outcome is False:
                return rule
            if isinstance(outcome, Unknown):
                unknown = unknown or outcome
        return unknown

    def _dead(self) -> FlagVerdict | None:
        rule = next((one for one in self.known.dead if one.speaks_for(self.release)), None) if self.known else None
        if rule is not None:
            return self._verdict("dead", rule.because, rule.do or "Remove it.", rule.source)
        if self.table.read_status(self.name, self.release) == NEVER:
            return self._verdict("dead", f"declared and accepted, and no code of {self.release} reads it", "Remove it.", self._declared_source())
        return None

    def _chosen_without(self) -> Known | Unknown:
        """What the field would be had the user not set it."""
        return self.resolution.without(self.name).value(f"args.{self.name}")

    def _why_chosen(self, chosen: Known) -> str:
        if chosen.rule is not None:
            return f"the server sets {_word(chosen.value)} by itself here: {chosen.rule.because}"
        return f"{_word(chosen.value)} is this release's default"

    def _cure(self, path: str) -> str:
        """How a fact that is missing can be given."""
        if self.is_running:
            return "The run does not show it. Ask `sglang-watchdog triage` with --model-config and --gpu."
        if path == "gpu.count":
            return "Give --gpu-count."
        if path.startswith("run."):
            return "The library does not know this release's rule; keep the flag if it was chosen on purpose."
        return {
            "model": "Give --model-config config.json.",
            "gpu": "Give --gpu, and --gpu-memory-gib if the name does not tell it.",
            "args": "Give the whole launch command.",
        }.get(path.partition(".")[0], "Give --model-config and --gpu.")

    def _not_read(self) -> str:
        default = self.table.default(self.name, self.release) if self.table.declares(self.name, self.release) else None
        status = self.table.read_status(self.name, self.release)
        use = status or "no field of its own"
        return f"accepted (default {_word(default)}, {use}); its conditions were not examined for {self.release}"

    def _declared_source(self) -> str:
        return f"{self.release}, srt/server_args.py::{self.name}"

    def _axes(self) -> Axes:
        if self.flag.declared is None or not self.flag.is_value_known:
            return Axes()
        chosen = self._chosen_without()
        already = same(chosen.value, self.flag.value) if isinstance(chosen, Known) else None
        status = self.table.read_status(self.name, self.release)
        functional: bool | None = None if status in (None, WEAK) and self.known is None else status != NEVER
        if self.known is None:
            return Axes(functional=functional, already_set=already)
        if any(rule.speaks_for(self.release) for rule in self.known.dead):
            functional = False
        failing, incompatible, unmet = self._first(self.known.fails), self._unmet("compatible"), self._unmet("condition")
        compatible = (
            False
            if isinstance(failing, Rule) or isinstance(incompatible, Rule)
            else (None if isinstance(failing, Unknown) or isinstance(incompatible, Unknown) else True)
        )
        met = False if isinstance(unmet, Rule) else None if isinstance(unmet, Unknown) else True
        auto = None if isinstance(chosen, Unknown) else bool(already) and chosen.how in ("automatic", "overridden")
        return Axes(compatible, met, auto, functional, already)

    def _verdict(
        self,
        verdict: str,
        because: str,
        do: str,
        source: str,
        *,
        starts: bool = True,
        axes: Axes | None = None,
        resolved: Any = None,
        reason: str = "",
    ) -> FlagVerdict:
        return FlagVerdict(
            flag=self.flag.option or self.flag.typed,
            field=self.name,
            value=shown_value(self.flag),
            verdict=verdict,
            because=because,
            do=do,
            source=source,
            axes=axes if axes is not None else self._axes(),
            starts=starts,
            resolved=resolved,
            reason=reason,
        )


def _word(value: Any) -> str:
    return "not set" if value is None else str(value)


def _use(new: str) -> str:
    return f"Use {new} instead." if new else "Remove it."
