"""What a signature is called and points at: targets that exist, ids that are never reused, revisions that rise."""

from collections.abc import Iterator
from typing import Final

from ...config.faults import Fault, nearest
from ...config.yaml_source import Way
from ...model.words import Kind, Severity, Status
from ..files import SignatureFile
from ..lock import detecting_hash
from ..new import EXPLANATION, INVENTED, LINE, REMEDY
from .base import Rule, Shelf


def check_explains(file: SignatureFile, shelf: Shelf) -> Iterator[Fault]:
    for name, index, target in [
        *(("explains", i, target) for i, target in enumerate(file.body.explains)),
        *(("yields_to", i, target) for i, target in enumerate(file.body.yields_to)),
    ]:
        if target not in shelf.topics and target not in shelf.ids:
            yield file.fault(
                "SIG031",
                (name, index),
                f"`{target}` is neither a topic nor a signature",
                help=nearest(target, shelf.topics | shelf.ids),
            )
        if target == file.body.id:
            yield file.fault("SIG031", (name, index), "a signature cannot explain or yield to itself")


def check_until(file: SignatureFile, shelf: Shelf) -> Iterator[Fault]:
    absence = file.body.absence_valid_only_if
    if absence is not None and absence.until not in shelf.milestones:
        yield file.fault(
            "SIG032",
            ("absence_valid_only_if", "until"),
            f"there is no milestone `{absence.until}`",
            help=nearest(absence.until, shelf.milestones),
        )


def check_concludes(file: SignatureFile, _shelf: Shelf) -> Iterator[Fault]:
    for name in file.body.concludes:
        if name.startswith(("args.", "load.")):
            yield file.fault(
                "SIG033",
                ("concludes", name),
                f"`{name}` is read from the server, not concluded",
                key=True,
                help="Conclude a fact of the run: `run.triton_moe: inactive`.",
            )


def check_words(file: SignatureFile, _shelf: Shelf) -> Iterator[Fault]:
    if not file.body.remediation and (file.body.severity or file.signature.severity) is not Severity.INFO:
        yield file.fault(
            "SIG034",
            ("title",),
            "says what is wrong and not what to do",
            key=True,
            help="Add `remediation:` with steps, most likely first.",
        )
    if file.body.kind in (Kind.EXPECTED, Kind.MISSING) and file.body.status is Status.STABLE and not file.body.blind_spots:
        yield file.fault("SIG034", ("status",), "a stable silence tells its blind spots", help="Add `blind_spots:`.")


def check_says_values(file: SignatureFile, _shelf: Shelf) -> Iterator[Fault]:
    body = file.body
    if body.kind is not Kind.FLAG and body.status in (Status.TRIAL, Status.STABLE) and not body.summary.strip():
        yield file.fault(
            "SIG036",
            ("title",),
            "a finding of it says nothing of its own run",
            key=True,
            help="Add `summary:` with the run's values: {capture} {args.tp_size} {w.name:.0f} {ranks} {count:~time/times} {said}.",
        )


def check_filled_in(file: SignatureFile, _shelf: Shelf) -> Iterator[Fault]:
    """What `signatures new` wrote is a form: sound, and about nothing until somebody fills it in."""
    body = file.body
    blanks: list[tuple[Way, bool]] = [
        (("explanation",), body.explanation.strip() == EXPLANATION),
        (("remediation",), body.remediation.strip() == REMEDY),
        *((file.ways[name], LINE in pattern.starts) for name, pattern in file.patterns.items()),
        *((("examples", at), one.from_ is not None and one.from_.synthetic == INVENTED) for at, one in enumerate(body.examples)),
    ]
    for way, is_blank in blanks:
        if is_blank:
            yield file.fault("SIG035", way, "is still the text of `signatures new`", help="Fill it in, or remove the file.")


def check_lock(file: SignatureFile, shelf: Shelf) -> Iterator[Fault]:
    if shelf.locked is None or file.root != shelf.root or file.body.status in (Status.DRAFT, Status.RETIRED):
        return
    locked = shelf.locked.get(file.body.id)
    digest = detecting_hash(file.body)
    if locked is not None and locked.digest != digest and file.body.revision <= locked.revision:
        yield file.fault(
            "SIG051",
            ("revision",),
            "what it detects has changed and its revision has not",
            help=f"Raise it to {locked.revision + 1}, then run `sglang-watchdog signatures lock`.",
        )
    elif locked is None or (locked.digest, locked.revision) != (digest, file.body.revision):
        yield file.fault(
            "SIG051",
            ("revision",),
            "revisions.lock does not know this revision",
            is_warning=True,
            help="Run `sglang-watchdog signatures lock`.",
        )


def check_retired(file: SignatureFile, shelf: Shelf) -> Iterator[Fault]:
    if file.body.id in shelf.retired and file.body.status is not Status.RETIRED:
        yield file.fault(
            "SIG052",
            ("id",),
            f"the id `{file.body.id}` is retired: {shelf.retired[file.body.id]}",
            help="Choose a new id: findings of old days keep the old one.",
        )


RULES: Final = (
    Rule("SIG031", "what it explains or yields to exists", check_explains),
    Rule("SIG032", "a silence ends at a known milestone", check_until),
    Rule("SIG033", "it concludes facts of its own", check_concludes),
    Rule("SIG034", "it tells what to do, and a stable silence its blind spots", check_words),
    Rule("SIG035", "what `signatures new` left to fill in is filled in", check_filled_in),
    Rule("SIG036", "a finding says this run's own values in a sentence", check_says_values),
    Rule("SIG051", "the revision rises when what it detects changes", check_lock),
    Rule("SIG052", "retired ids are not used again", check_retired),
)
