"""Plays a signature's examples through the real scanner and the real engine and compares what comes out."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ..config.faults import Fault
from ..engine.engine import Engine
from ..engine.releases import Version, contains
from ..model.finding import Finding
from ..model.observation import Dump, Gap, Hit, Json, Observation, Opened, Position, Probe, Watermark
from ..model.signature import Library
from ..model.words import Answer, Kind, State
from ..parse.zone import Zone
from ..scan.patterns import PatternSet, compile_patterns
from ..scan.scanner import Scanner
from .files import SignatureFile
from .schema import ExampleBody
from .stories import MOST_DAYS, SOURCE, STAMPED, START_S, BadStory, Step, Text, read_story, story_text

RELEASE: Final = re.compile(r"\b\d+\.\d+\.\d+(?:\.post\d+|rc\d+)?\b")
DUMP: Final = re.compile(r"server_args=|ServerArgs\(")
LATE_OFFSET: Final = 4096  # of the first line of a log that was joined late
FlagRunner = Callable[[SignatureFile, int], str]
"""Plays one of `flag.examples` by its index; "" if it holds, else what came out instead. Triage supplies it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came out of one story. `verdicts`: signature -> answer, machine word of an unknown, reason."""

    findings: tuple[Finding, ...]
    verdicts: dict[str, tuple[Answer, str, str]]
    hits: tuple[Hit, ...]
    faults: dict[str, int]  # signatures whose conditions failed
    days: float = 0.0  # between its first and its last observation

    def fired(self, signature: str) -> bool:
        return any(one.signature == signature and one.state is not State.PENDING for one in self.findings)


class Player:
    """Plays stories against one library, whose patterns are compiled once."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._patterns: PatternSet = compile_patterns(library)

    def play(self, steps: Sequence[Step], *, given: dict[str, Json] | None = None, release: str | None = None) -> Played:
        """Feed a story to its end. `given` facts are set directly; `release` holds where the story does not tell it."""
        engine = Engine(self.library, server="example")
        observations = list(self._observations(steps, dict(given or {}), release))
        for source in {_source(one) for one in observations}:
            engine.announce(source)
        for one in observations:
            engine.feed(one)
        engine.finish(max((one.at_s for one in steps if isinstance(one, Watermark)), default=None))
        snapshot = engine.snapshot()
        verdicts: dict[str, tuple[Answer, str, str]] = {}
        for row in engine.coverage():
            if verdicts.get(row.signature, (None,))[0] is not Answer.YES:
                verdicts[row.signature] = (row.verdict, row.reason, row.because)
        return Played(
            findings=snapshot.findings,
            verdicts=verdicts,
            faults=dict(snapshot.faults),
            days=_days(observations),
            hits=tuple(one for one in observations if isinstance(one, Hit)),
        )

    def _observations(self, steps: Sequence[Step], given: dict[str, Json], release: str | None) -> Iterable[Observation]:
        args: dict[str, Json] = {name[5:]: value for name, value in given.items() if name.startswith("args.")}
        others = {name: value for name, value in given.items() if not name.startswith("args.")}
        late = any(isinstance(step, Opened) and not step.from_start for step in steps)
        scanned = list(self._scanned(steps, LATE_OFFSET if late else 0))
        told = any(isinstance(step, Text) and DUMP.search(step.text) for step in steps)
        if not told and not late and (args or others or release):
            # A line may bring a stamp of its own; the run begins with it, not months before.
            at_s = next((at for one in scanned if (at := getattr(one, "at_s", None)) is not None), START_S)
            yield _dump(args, release, at_s)
            yield from _probe(others, at_s)
        waiting = told or late
        for one in scanned:
            if isinstance(one, Dump) and not one.update:
                one = replace(one, args={**one.args, **args})  # noqa: PLW2901
                if release and one.release_min is None:
                    one = replace(one, release_min=release, release_max=release)  # noqa: PLW2901
            yield one
            if waiting and (isinstance(one, Dump) if told else isinstance(one, Hit)):
                waiting = False
                yield from _probe({**others, **({} if told else given)}, getattr(one, "at_s", None) or START_S)

    def _scanned(self, steps: Sequence[Step], offset: int) -> Iterable[Observation]:
        """Lines through the scanner, everything else as it is, in the story's order."""
        scanner = Scanner(self.library, SOURCE, zone=Zone.utc(), patterns=self._patterns)
        line = 1 if offset == 0 else 100
        block: list[str] = []
        for step in steps:
            if isinstance(step, Text):
                block.append(step.text)
                continue
            if isinstance(step, Gap) and block:
                data = _bytes(block)
                yield from scanner.feed(data, offset=offset, line=line)
                offset, line = offset + len(data), line + len(block)
                block.clear()
            if not isinstance(step, (Opened, Watermark)):
                yield step
        if block:
            yield from scanner.feed(_bytes(block), offset=offset, line=line)
        yield from scanner.finish()


def _days(observations: Sequence[Observation]) -> float:
    times = [at_s for one in observations if (at_s := getattr(one, "at_s", None)) is not None]
    return (max(times) - min(times)) / 86_400 if times else 0.0


def _bytes(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _dump(args: dict[str, Json], release: str | None, at_s: float) -> Dump:
    return Dump(
        at_s=at_s,
        position=Position(SOURCE, 1, 0),
        args=args,
        digest="example",
        text="(given)",
        release_min=release,
        release_max=release,
    )


def _probe(facts: dict[str, Json], at_s: float = START_S) -> Iterable[Probe]:
    if facts:
        yield Probe(at_s=at_s, source=SOURCE, origin="example", facts=facts)


def _source(observation: Observation) -> str:
    position = getattr(observation, "position", None)
    return str(position.source if position is not None else getattr(observation, "source", SOURCE))


def release_of(file: SignatureFile, example: ExampleBody, releases: Sequence[str]) -> str | None:
    """The release of an example: stated, read from its origin, or the newest that its signature covers."""
    if example.release:
        return example.release
    origin = example.from_
    found = RELEASE.search((origin.captured or origin.source or "") if origin is not None else "")
    if found:
        return found[0]
    inside = [one for one in releases if contains(file.signature.releases, Version(one))]
    return inside[-1] if inside else None


def run_examples(
    library: Library,
    files: Iterable[SignatureFile],
    *,
    flag_runner: FlagRunner | None = None,
    on_example: Callable[[str, str], None] | None = None,
) -> list[Fault]:
    """Play every example of `files`; the faults of those that end otherwise than they say.

    `on_example` is told each signature and example as it ends, for progress on a terminal.
    """
    player = Player(library)
    faults: list[Fault] = []
    for file in files:
        if file.body.flag is not None and flag_runner is not None:
            faults += _test_flag(file, flag_runner)
        if file.body.id not in library.signatures or file.body.kind is Kind.FLAG:
            continue
        seen: set[str] = set()
        for index, example in enumerate(file.body.examples):
            faults += _test_one(player, file, index, example, seen)
            if on_example is not None:
                on_example(file.body.id, example.name)
        faults += _never_hit(file, seen)
    return faults


def _test_flag(file: SignatureFile, runner: FlagRunner) -> list[Fault]:
    examples = file.body.flag.examples if file.body.flag is not None else []
    problems = [(index, runner(file, index)) for index in range(len(examples))]
    return [file.fault("SIG071", ("flag", "examples", index, "verdict"), problem) for index, problem in problems if problem]


def _test_one(player: Player, file: SignatureFile, index: int, example: ExampleBody, seen: set[str]) -> list[Fault]:
    way = ("examples", index)
    try:
        steps = read_story(story_of(file, example))
    except (BadStory, OSError) as error:
        return [file.fault("SIG072", (*way, "replay"), str(error))]
    played = player.play(steps, given=dict(example.given), release=release_of(file, example, player.library.releases))
    seen |= {hit.pattern for hit in played.hits}
    problem = compare(played, file.body.id, example)
    faults = [file.fault("SIG071", (*way, "then"), problem, help=example.name)] if problem else []
    if played.days > MOST_DAYS:
        message = f"its lines lie {played.days:.0f} days apart"
        faults.append(
            file.fault(
                "SIG075",
                (*way, "replay"),
                message,
                is_warning=True,
                help="A stamp inside a `|` line counts: write it near the story's time 0, 2025-10-09 08:53:20 UTC.",
            )
        )
    if file.body.id in played.faults:
        faults.append(file.fault("SIG073", way, "a condition of the signature fails on this example"))
    return faults


def story_of(file: SignatureFile, example: ExampleBody) -> str:
    """The story as text. A short form whose line only undated patterns match stands in the log as it is.

    Raises:
        OSError: a file in replays/ that cannot be read.
    """
    text = story_text(example, file.path.parent)
    if example.line is None or example.line.startswith("|") or STAMPED.match(example.line):
        return text
    patterns = [file.patterns[name] for name in file.signature.match]
    return f"0s | {example.line}" if patterns and all(pattern.undated for pattern in patterns) else text


def compare(played: Played, signature: str, example: ExampleBody) -> str:
    """What came out otherwise than the example says, or ""."""
    answer, reason, because = played.verdicts.get(signature, (Answer.UNKNOWN, "", "it was not judged"))
    fired = played.fired(signature)
    expected = example.then.verdict
    came = "it fired" if fired else f"the verdict is {answer}{f' ({reason})' if reason else ''}: {because}"
    if expected == "firing":
        if not fired:
            return f"was to fire, but {came}"
        return _compare_captures(played, signature, example)
    if fired:
        return f"was to be {expected}, but it fired"
    if expected == "unknown" and (answer is not Answer.UNKNOWN or (example.then.reason and example.then.reason != reason)):
        return f"was to be unknown ({example.then.reason}), but {came}"
    if expected == "not-applicable" and answer is not Answer.NOT_APPLICABLE:
        return f"was to be not-applicable, but {came}"
    return ""


def _compare_captures(played: Played, signature: str, example: ExampleBody) -> str:
    hits = [hit for hit in played.hits if hit.pattern.startswith(f"{signature}#")]
    for name, value in example.captures.items():
        found = [hit.captures[name] for hit in hits if name in hit.captures]
        if value not in found:
            return f"`{name}` was to be captured as `{value}`, but it was {', '.join(f'`{one}`' for one in found) or 'not'}"
    return ""


def _never_hit(file: SignatureFile, seen: set[str]) -> list[Fault]:
    """Patterns that no line of any example hit in the scanner: perhaps a line without a prefix lacks `undated: true`."""
    return [
        file.fault("SIG074", file.ways[name], "the scanner reports this pattern in no example",
                   help="Lines without SGLang's prefix are found by patterns with `undated: true` only; "
                        "batch, access and request lines by none.")
        for name in file.patterns if name not in seen
    ]  # fmt: skip
