"""The little language in which examples tell what happened.

    0s         server_args=ServerArgs(model_path='m', tp_size=2)
    9s         [TP0] Load weight end. type=Qwen3MoeForCausalLM
    12s        [TP0] Scheduler hit an exception: Traceback (most recent call last):
               | torch.OutOfMemoryError: CUDA out of memory.
    20s..40s/2s  [TP0] Decode batch. #running-req: 8, gen throughput (token/s): 900.0
    20s..40s/1s  (sample gpu=0-3 power_w=250 power_limit_w=700 pids=4711/834)
    41s        (gap 30s..41s)
    90s        (watermark)

A time, or `from..to/step` for repetition, then a message of SGLang (with its ranks in brackets), which gets SGLang's
prefix; `| text` stands as it is, and without a time it belongs to the line before. A line that already has SGLang's
prefix keeps it. Words in parentheses are observations of other kinds. Time 0 is START_S.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ..config.faults import nearest
from ..model.observation import (
    Gap,
    GpuEvent,
    GpuProcess,
    Observation,
    Opened,
    Probe,
    ProcessSeen,
    Sample,
    Watermark,
)
from .schema import ExampleBody
from .windows import duration_s

START_S: Final = 1_760_000_000.0  # 2025-10-09 08:53:20 UTC
SOURCE: Final = "story"
TIME: Final = r"\d+(?:\.\d+)?(?:ms|s|m|h)(?:\d+(?:\.\d+)?(?:ms|s|m|h))*"
TIMED: Final = re.compile(rf"\s*(?P<from>{TIME})(?:\.\.(?P<to>{TIME})/(?P<step>{TIME}))?(?:\s+(?P<rest>.*))?$", re.S)
STAMPED: Final = re.compile(r"\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d")
RANKED: Final = re.compile(r"\[((?:[A-Z][A-Z_]*\d+ ?)+)\] ?")
WORDS: Final = re.compile(r"\((?P<kind>[a-z-]+)(?P<rest>(?:\s[^()]*)?)\)\s*$")
PAIR: Final = re.compile(r"(?P<key>[A-Za-z_][\w.]*)=(?P<value>\"[^\"]*\"|'[^']*'|\S+)")
MOST_STEPS: Final = 20_000
MOST_DAYS: Final = 3


class BadStory(ValueError):
    """A line of a story cannot be read; `line` counts from 1 within the story."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line} of the story: {message}")
        self.line = line


@dataclass(frozen=True, slots=True)
class Text:
    """One line of the log, as the server wrote it, without its newline."""

    at_s: float
    text: str


Step = Text | Observation


def read_story(story: str, *, since_start: bool = True) -> list[Step]:
    """The steps of a story in order of time. `since_start`: the log was read from the run's first line.

    Raises:
        BadStory: with the line and what is wrong with it.
    """
    steps: list[Step] = []
    joined_late = False
    order: list[tuple[float, int]] = []
    last_s = START_S
    for number, line in enumerate(story.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line.strip() == "(joined-late)":
            joined_late = True
            continue
        for at_s, step in _steps(line, number, last_s):
            steps.append(step)
            order.append((at_s, len(order)))
            last_s = max(last_s, at_s)
        if len(steps) > MOST_STEPS:
            raise BadStory(number, f"more than {MOST_STEPS} steps")
    opened = Opened(at_s=START_S, source=SOURCE, from_start=since_start and not joined_late)
    return [opened, *(steps[index] for _, index in sorted(order))]


def _steps(line: str, number: int, last_s: float) -> Iterator[tuple[float, Step]]:
    timed = TIMED.match(line)
    if timed is None:
        text = line.strip()
        yield last_s, Text(last_s, text[2:] if text.startswith("| ") else text.removeprefix("|") or text)
        return
    rest = (timed["rest"] or "").strip("\n")
    first = duration_s(timed["from"])
    end, step = (duration_s(timed["to"]), duration_s(timed["step"])) if timed["to"] else (first, 1.0)
    if step <= 0 or end < first:
        raise BadStory(number, f"`{timed['from']}..{timed['to']}/{timed['step']}` goes nowhere")
    for index in range(int((end - first) / step + 1e-9) + 1):
        at_s = START_S + first + index * step
        words = WORDS.match(rest)
        if words is None:
            yield at_s, Text(at_s, dated(rest, at_s))
        else:
            for observation in _observations(words["kind"], words["rest"].strip(), at_s, number):
                yield at_s, observation


def dated(message: str, at_s: float) -> str:
    """The line as SGLang logs it: `[TP0] text` becomes `[2025-10-09 08:53:20 TP0] text`; `| text` stays as it is."""
    if message.startswith("|"):
        return message[2:] if message.startswith("| ") else message[1:]
    if STAMPED.match(message):
        return message
    ranks = RANKED.match(message)
    stamp = datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"[{stamp} {ranks[1].strip()}] {message[ranks.end() :]}" if ranks else f"[{stamp}] {message}"


def _observations(kind: str, rest: str, at_s: float, number: int) -> Iterator[Observation]:
    values = {found["key"]: _value(found["value"]) for found in PAIR.finditer(rest)}
    if kind == "watermark":
        yield Watermark(source=str(values.get("source", SOURCE)), at_s=at_s)
    elif kind == "gap":
        yield _gap(rest, values, at_s, number)
    elif kind == "sample":
        for gpu in _indices(values.pop("gpu", 0), number):
            yield _sample(gpu, values, at_s, number)
    elif kind == "xid":
        yield GpuEvent(at_s=at_s, gpu=int(values.get("gpu", 0)), event="xid", xid=int(values.get("xid", 0)))
    elif kind == "event":
        yield GpuEvent(
            at_s=at_s,
            gpu=int(values.get("gpu", 0)),
            event=str(values.get("event", "")),
            reason=str(values.get("reason", "")),
        )
    elif kind == "probe":
        origin = str(values.pop("origin", "example"))
        error = values.pop("error", None)
        yield Probe(at_s=at_s, source=SOURCE, origin=origin, facts=values, error=None if error is None else str(error))
    elif kind == "process":
        known = {field.name for field in fields(ProcessSeen)}
        _refuse(set(values) - known, known, number)
        yield ProcessSeen(**{"at_s": at_s, "source": SOURCE, "pid": 1, "role": "scheduler", "state": "running", **values})
    else:
        raise BadStory(number, f"`({kind})` is none of watermark, gap, sample, xid, event, probe, process, joined-late")


def _gap(rest: str, values: Mapping[str, Any], at_s: float, number: int) -> Gap:
    span = re.match(rf"({TIME})\.\.({TIME})", rest)
    if rest and not span and not values:
        raise BadStory(number, f"`(gap {rest})` is not like (gap 10s..20s)")
    start, end = (duration_s(span[1]), duration_s(span[2])) if span else (at_s - START_S, at_s - START_S)
    return Gap(
        source=str(values.get("source", SOURCE)),
        from_s=START_S + start,
        to_s=START_S + end,
        reason=str(values.get("reason", "dropped")),
    )


def _sample(gpu: int, values: Mapping[str, Any], at_s: float, number: int) -> Sample:
    known = {field.name for field in fields(Sample)} - {"at_s", "gpu", "extra"}
    extra = {key[6:]: float(value) for key, value in values.items() if key.startswith("extra.")}
    plain: dict[str, Any] = {key: value for key, value in values.items() if not key.startswith("extra.")}
    if "throttle" in plain:
        plain["throttle_reasons"] = tuple(str(plain.pop("throttle")).split(","))
    if "pids" in plain:
        plain["processes"] = tuple(_process(text) for text in str(plain.pop("pids")).split(",") if text != "none")
    _refuse(set(plain) - known, known | {"throttle", "pids"}, number)
    return Sample(at_s=at_s, gpu=gpu, extra=extra, **{"uuid": f"GPU-{gpu}", **plain})


def _process(text: str) -> GpuProcess:
    """`4711`, or `4711/834` for a process whose parent is 834."""
    pid, _, parent = text.partition("/")
    return GpuProcess(pid=int(pid), ppid=int(parent) if parent else None)


def _refuse(unknown: set[str], known: set[str], number: int) -> None:

    for name in sorted(unknown):
        raise BadStory(number, f"unknown field `{name}`. {nearest(name, known)}")


def _indices(value: Any, number: int) -> Iterator[int]:
    """`0`, `0,2` or `0-7`."""
    for part in str(value).split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise BadStory(number, f"`gpu={value}` is not like 0, 0,2 or 0-7")
        yield from range(int(first), int(last or first) + 1)


def _value(text: str) -> Any:
    if text[:1] in "\"'":
        return text[1:-1]
    for word, value in (("true", True), ("false", False), ("null", None)):
        if text == word:
            return value
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def story_text(example: ExampleBody, folder: Path) -> str:
    """The story of an example: its own text, the file in replays/ that it names, or its one line.

    Raises:
        OSError: the file it names cannot be read.
    """
    if example.line is not None:
        return f"0s {example.line}"
    story = example.replay or ""
    if "\n" not in story.strip() and story.strip().endswith((".log", ".replay")):
        return (folder / "replays" / story.strip()).read_text("utf-8")
    return story


def lines_of(example: ExampleBody, folder: Path) -> list[str]:
    """The log lines of an example, for whoever only looks at text; [] where the story cannot be read."""
    try:
        return [step.text for step in read_story(story_text(example, folder)) if isinstance(step, Text)]
    except (OSError, BadStory):  # told by SIG045 and by running the examples
        return []


def given_probe(example: ExampleBody) -> Probe | None:
    """The facts that an example sets directly."""
    if not example.given:
        return None
    return Probe(at_s=START_S, source=SOURCE, origin="example", facts=dict(example.given))
