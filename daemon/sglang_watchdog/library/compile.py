"""Turns a checked body into the frozen signature and patterns that scanner and engine use."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

import re2

from ..config.faults import Fault, nearest
from ..config.yaml_source import Document, Way
from ..engine.releases import Version, contains
from ..model.signature import Absence, Condition, Milestone, Pattern, Signature, Window
from ..model.words import Severity
from .conditions import BadCondition, compile_condition, with_threshold
from .files import COMPILE
from .schema import ConditionBody, GroupBody, MilestoneBody, PatternBody, SignatureBody
from .windows import BadWindow, duration_s, parse_window

T = TypeVar("T")


class Compiler:
    """Compiles one file, collecting its faults; `patterns` and `ways` fill as it goes."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.faults: list[Fault] = []
        self.patterns: dict[str, Pattern] = {}
        self.ways: dict[str, Way] = {}

    def signature(
        self,
        body: SignatureBody,
        topics: Mapping[str, Severity],
        severity: Severity | None = None,
        threshold: float | None = None,
    ) -> Signature | None:
        """The signature, or None with at least one fault. `severity` and `threshold` are an operator's own."""
        default = self._topic(body, topics)
        limit = body.threshold if threshold is None else threshold
        absence = body.absence_valid_only_if
        signature = Signature(
            id=body.id,
            revision=body.revision,
            status=body.status,
            kind=body.kind,
            topic=body.topic,
            severity=severity or body.severity or default,
            releases=self.specifier(body.releases, ("releases",)),
            title=body.title,
            summary=body.summary or body.title.replace("{", "{{").replace("}", "}}"),
            explanation=body.explanation,
            remediation=body.remediation,
            references=tuple(body.references),
            scope=body.scope,
            applies_when=self._conditions(body.applies_when, "applies_when", limit),
            during=frozenset(body.during),
            not_during=frozenset(body.not_during),
            match=self._group(body.match, body.id, "", ("match",)),
            unless=self._group(body.unless, body.id, "unless.", ("unless",)),
            await_=self._group(body.await_, body.id, "await.", ("await",)),
            absence=None
            if absence is None
            else Absence(
                read_since=absence.read_since,
                log_level=absence.log_level,
                until=absence.until,
                grace_s=self._duration(absence.grace, ("absence_valid_only_if", "grace")),
                per_rank=absence.per_rank,
                opportunity=self._group(absence.opportunity, body.id, "opportunity.", ("absence_valid_only_if", "opportunity")),
                witness=self._group(absence.witness, body.id, "witness.", ("absence_valid_only_if", "witness")),
            ),
            concludes=dict(body.concludes),
            windows=self._windows(body.let, limit),
            when=self._conditions(body.when, "when", limit),
            needs=tuple(body.needs),
            each=body.each,
            hold_s=self._duration(body.hold, ("hold",)),
            clear_after_s=None if body.clear_after is None else self._duration(body.clear_after, ("clear_after",)),
            resolve=self._group(body.resolve, body.id, "resolve.", ("resolve",)),
            resolve_when=self._conditions(body.resolve_when, "resolve_when", limit),
            explains=tuple(body.explains),
            all_gpus=body.all_gpus,
            yields_to=tuple(body.yields_to),
            evidence_series=tuple(body.evidence.series),
            evidence_facts=tuple(body.evidence.facts),
            blind_spots=body.blind_spots,
            tags=tuple(body.tags),
            flag=None if body.flag is None else body.flag.compiled(),
        )
        return None if any(not fault.is_warning for fault in self.faults) else signature

    def milestone(self, body: MilestoneBody, taken: int, way: Way) -> Milestone:
        """A milestone; `taken` patterns of the same name exist already."""
        patterns = self._group(body.match, f"milestone:{body.name}", "", (*way, "match"), taken)
        return Milestone(
            name=body.name,
            patterns=patterns,
            facts={name: source.compiled() for name, source in body.facts.items()},
        )

    def specifier(self, text: str, way: Way) -> str:
        """`text`, with a fault if it is no PEP 440 specifier."""
        try:
            for clause in text.split(",") if text.strip() else ():
                contains(clause.strip() or "?", Version("0"))
        except ValueError:
            self._fault(way, f"`{text}` is not a release range", 'Write it like ">=0.4.7,<=0.5.23" (PEP 440).')
        return text

    def _topic(self, body: SignatureBody, topics: Mapping[str, Severity]) -> Severity:
        if body.topic not in topics:
            self._fault(
                ("topic",),
                f"unknown topic `{body.topic}`",
                nearest(body.topic, topics) or "The topics are listed in signatures/topics.yaml.",
            )
        return topics.get(body.topic, Severity.INFO)

    def _group(self, group: GroupBody | None, owner: str, role: str, way: Way, taken: int = 0) -> tuple[str, ...]:
        if group is None:
            return ()
        return tuple(
            self._pattern(body, f"{owner}#{role}{taken + index + 1}", (*way, "any_of", index)) for index, body in enumerate(group.any_of)
        )

    def _pattern(self, body: PatternBody, name: str, way: Way) -> str:
        self.ways[name] = way
        if body.regex is not None:
            self._regex(body.regex, (*way, "regex"))
        self.patterns[name] = Pattern(
            id=name,
            starts=tuple(body.starts),
            contains=tuple(body.contains),
            regex=body.regex,
            anywhere=body.anywhere,
            ignore_case=body.ignore_case,
            level=body.level,
            releases=self.specifier(body.releases, (*way, "releases")),
            undated=body.undated,
            example=body.example,
        )
        return name

    def _regex(self, regex: str, way: Way) -> None:
        options = re2.Options()
        options.log_errors = False  # RE2 prints to standard error by itself
        try:
            re2.compile(regex, options)
        except re2.error as error:
            reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
            self._fault(
                way,
                f"not a regular expression that RE2 accepts: {reason}",
                "No look-around and no back-references: they can take for ever on one line.",
            )

    def _windows(self, let: Mapping[str, str], threshold: float | None) -> tuple[Window, ...]:
        return tuple(
            window
            for name, text in let.items()
            if (window := self._try(partial(parse_window, name, with_threshold(text, threshold)), ("let", name)))
        )

    def _conditions(self, bodies: Iterable[ConditionBody], where: str, threshold: float | None) -> tuple[Condition, ...]:
        out = []
        for index, body in enumerate(bodies):
            expression = with_threshold(body.when, threshold).strip()
            self._try(partial(compile_condition, expression), (where, index, "when"))
            out.append(Condition(expression=expression, because=body.because))
        return tuple(out)

    def _duration(self, text: str, way: Way) -> float:
        return self._try(partial(duration_s, text), way) or 0.0

    def _try(self, make: Callable[[], T], way: Way) -> T | None:
        try:
            return make()
        except BadWindow as error:
            self._fault(way, str(error), error.help)
        except BadCondition as error:
            self._fault(way, f"not a CEL expression: {error}", "For example: args.tp_size > 1 && model.is_moe")
        except ValueError as error:
            self._fault(way, str(error), "")
        return None

    def _fault(self, way: Way, message: str, help: str) -> None:
        self.faults.append(self.document.fault(way, message, code=COMPILE, help=help))
