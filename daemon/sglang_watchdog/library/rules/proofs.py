"""A signature carries its proofs: lines it finds, lines it leaves alone, and for silences when it cannot know."""

from collections.abc import Iterator
from typing import Final

from ...config.faults import Fault, nearest
from ...model.words import Kind, Status
from ..files import SignatureFile
from ..matching import matches, message_of
from ..schema import ExampleBody
from ..stories import lines_of
from .base import Rule, Shelf

ABSENCES: Final = (Kind.EXPECTED, Kind.MISSING)


def check_both_ways(file: SignatureFile, _shelf: Shelf) -> Iterator[Fault]:
    if file.body.flag is not None:
        if not file.body.flag.examples:
            yield file.fault("SIG041", ("flag",), "no command proves this flag", key=True, help="Add `examples:` to `flag`.")
        return
    verdicts = [example.then.verdict for example in file.body.examples]
    if "firing" not in verdicts:
        yield file.fault("SIG041", ("examples",), "no example fires", key=True, help="Add one with `then: firing`.")
    if not {"nothing", "not-applicable"} & set(verdicts):
        yield file.fault(
            "SIG041",
            ("examples",),
            "no example shows what this leaves alone",
            key=True,
            help="Add the most similar line or run that means something else, with `then: nothing`.",
        )


def check_unknown(file: SignatureFile, _shelf: Shelf) -> Iterator[Fault]:
    if file.body.kind not in ABSENCES:
        return
    if not any(example.then.verdict == "unknown" for example in file.body.examples):
        yield file.fault(
            "SIG042",
            ("examples",),
            "no example ends in unknown",
            key=True,
            help="Add one that joins late or lacks the witness: `then: {unknown: read_since}`.",
        )
    if file.signature.absence is not None and not file.signature.absence.witness:
        yield file.fault(
            "SIG042",
            ("absence_valid_only_if",),
            "silence has no witness",
            key=True,
            help="Name a line of the same process and level that is always printed: `witness: {starts: …}`.",
        )


def check_alternatives(file: SignatureFile, _shelf: Shelf) -> Iterator[Fault]:
    lines = [message for example in file.body.examples for message in _messages(file, example)]
    for name, pattern in file.patterns.items():
        if not any(matches(pattern, line) for line in lines):
            yield file.fault(
                "SIG043",
                file.ways[name],
                "no example holds a line that this pattern matches",
                help="Add one, filled from the release's own format string, or remove the pattern.",
            )
        if pattern.example and not matches(pattern, message_of(pattern.example)):
            yield file.fault("SIG043", (*file.ways[name], "example"), "the pattern does not match its own example")


def _messages(file: SignatureFile, example: ExampleBody) -> Iterator[str]:
    for line in lines_of(example, file.path.parent):
        yield message_of(line)
        yield line


def check_origins(file: SignatureFile, _shelf: Shelf) -> Iterator[Fault]:
    if file.body.kind is Kind.FLAG:  # each statement names its source, and each example its release
        return
    proven = False
    for index, example in enumerate(file.body.examples):
        if example.from_ is None:
            yield file.fault(
                "SIG044",
                ("examples", index),
                "an example does not say where it is from",
                help='from: {captured: …}, {source: "0.5.12 srt/x.py::f"} or {synthetic: why}.',
            )
            continue
        proven |= example.then.verdict == "firing" and example.from_.synthetic is None
    if file.body.status is Status.STABLE and not proven:
        yield file.fault(
            "SIG044",
            ("status",),
            "invented lines make no signature stable",
            help="Add a firing example from a real log or from SGLang's source, or set `status: trial`.",
        )


def check_replays(file: SignatureFile, _shelf: Shelf) -> Iterator[Fault]:
    for index, example in enumerate(file.body.examples):
        if (example.line is None) == (example.replay is None) and not example.given:
            yield file.fault("SIG045", ("examples", index), "an example needs either `line` or `replay`")
        if example.replay and "\n" not in example.replay.strip() and example.replay.strip().endswith((".log", ".replay")):
            path = file.path.parent / "replays" / example.replay.strip()
            if not path.is_file():
                beside = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
                yield file.fault(
                    "SIG045",
                    ("examples", index, "replay"),
                    f"there is no file {path.name} in replays/",
                    help=nearest(path.name, beside),
                )


RULES: Final = (
    Rule("SIG041", "one example fires and one does not", check_both_ways),
    Rule("SIG042", "a silence has a witness and an example that ends in unknown", check_unknown),
    Rule("SIG043", "every pattern is hit by an example", check_alternatives),
    Rule("SIG044", "every example says where it is from, and a stable rule rests on a real one", check_origins),
    Rule("SIG045", "every example tells a story that can be found", check_replays),
)
