"""Puts a triage together: the command, the releases, the model, the GPU, and the judgement of each release."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from packaging.version import Version

from ..library.flag_table import UnknownRelease
from ..sources.model_files import UnreadableConfig, read_model_config
from .command import ROUTER, LaunchCommand, NotACommand, mask_words, read_command
from .config_file import read_config
from .gpu_facts import UnknownGpu, gpu_facts
from .judge import judge, known_fields
from .knowledge import Knowledge
from .model_names import hinted_quantization, named_facts
from .options import read_options
from .report import Told, group
from .start import place_of, with_files
from .verdicts import FlagVerdict, Judgement

_IMAGE_TAG = re.compile(r"(?:^|/)sglang(?:-\w+)?:v?(\d+\.\d+\.\d+(?:\.?(?:post|rc)\d+)?)(?![\d.])")  # lmsysorg/sglang:v0.5.9-cu129


class UsageError(ValueError):
    """The request cannot be understood; the text says what to give instead."""


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked. `release` empty: `installed`, and if that is empty too, all releases that were read."""

    words: Sequence[str]
    release: str = ""
    installed: str = ""
    gpu: str = ""
    gpu_memory_gib: float | None = None
    gpu_count: int | None = None
    model_config: Path | None = None
    model: str = ""  # a name that tells the model where the command's path does not
    folder: Path = field(default_factory=Path.cwd)


def triage(knowledge: Knowledge, request: Request) -> Told:
    """Judge the launch.

    Raises:
        UsageError: no command, no such release, GPU or config.json.
    """
    try:
        command = read_command(request.words[0] if len(request.words) == 1 else list(request.words))
        gpu = gpu_facts(request.gpu, knowledge.gpus, request.gpu_memory_gib, _gpu_count(request, command))
        model = _model(knowledge, request, command)
    except (NotACommand, UnknownGpu, UnreadableConfig) as error:
        raise UsageError(str(error)) from error
    facts = {"model.weights_least_gib": 0.0, **gpu, **model.facts}  # weights take at least nothing, where no more is known
    place = place_of(command, request.folder, installed=request.installed)
    judgements = [
        replace(one, notes=(*one.notes, *model.notes))
        for each in _judgements(knowledge, request, command, facts)
        for one in (with_files(knowledge, each, place, command.arguments),)
    ]
    last = judgements[-1].read_at
    described, undescribed = known_fields(knowledge, last)
    return Told(
        group(judgements),
        str(gpu.get("gpu.name", "")),
        model.name,
        mask_words(command.arguments),
        described=len(described),
        undescribed=undescribed,
    )


def _judgements(knowledge: Knowledge, request: Request, command: LaunchCommand, facts: Mapping[str, Any]) -> list[Judgement]:
    image = _of_image(command)
    wanted = request.release or image or request.installed
    if not wanted:
        return [judge_release(knowledge, one, command, facts, request.folder) for one in knowledge.table.releases]
    try:
        sampled = knowledge.table.sampled(wanted)
    except UnknownRelease as error:
        raise UsageError(str(error)) from error
    each = [judge_release(knowledge, one, command, facts, request.folder) for one in sampled]
    one = replace(each[0] if len(each) == 1 else _between(each), release=wanted)
    if image and request.release and image != request.release:
        told = f"the command's image holds SGLang {image}, and {request.release} was asked for: judged is {request.release}"
        one = replace(one, notes=(told, *one.notes))
    return [one]


def _of_image(command: LaunchCommand) -> str:
    """The release that the container image before the command is tagged with; "" if there is none."""
    found = next((tag for word in command.before if (tag := _IMAGE_TAG.search(word))), None)
    return found[1] if found is not None else ""


def judge_release(knowledge: Knowledge, release: str, command: LaunchCommand, facts: Mapping[str, Any], folder: Path) -> Judgement:
    """Judge on one sampled release, the config file of the command included."""
    options = knowledge.table.options_at(release)
    words, kind = _without_model_type(command, release)
    if kind == "diffusion":
        raise UsageError("--model-type diffusion starts SGLang's server for images and video; its flags are others and are not known here")
    config = read_config(command.arguments, options, folder)
    flags = [*read_options(config.words, options, config.name), *read_options(words, options)]
    notes = [config.problem] if config.problem else []
    if command.launcher == ROUTER and any(flag.typed.startswith("--router-") for flag in flags):
        flags = [flag for flag in flags if not flag.typed.startswith("--router-")]
        notes.append("flags of the router (--router-…) are not judged: only those that it hands to its servers")
    judgement = judge(knowledge, release, flags, facts, is_whole_command=bool(command.launcher) and not config.is_missing, notes=notes)
    return replace(judgement, starts=False) if config.problem and not config.is_missing else judgement


def _between(each: Sequence[Judgement]) -> Judgement:
    """A release that was not read itself: what its two neighbours agree on stands, the rest is unknown."""
    low, high = each[0], each[-1]
    flags = [_agreed(one, two, low.read_at, high.read_at) for one, two in zip(low.flags, high.flags, strict=False)]
    note = f"this release was not read itself; {low.read_at} and {high.read_at} around it were"
    return replace(
        high,
        flags=tuple(flags),
        starts=False if False in (low.starts, high.starts) else None if None in (low.starts, high.starts) else True,
        notes=(*high.notes, note),
        suggestions=tuple(one for one in high.suggestions if one in low.suggestions),
    )


def _agreed(one: FlagVerdict, two: FlagVerdict, low: str, high: str) -> FlagVerdict:
    if one.verdict == two.verdict:
        return two
    return replace(
        two,
        verdict="unknown",
        do="",
        because=f"{one.verdict} in {low}, {two.verdict} in {high}, and this release lies between them",
    )


@dataclass(frozen=True, slots=True)
class _Model:
    """What is known of the model: its name as shown, facts by dotted name, and what a reader must know about them."""

    name: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def _model(knowledge: Knowledge, request: Request, command: LaunchCommand) -> _Model:
    """From --model-config, else from the folder that the command names if it is here, else from what the library knows of a
    model of this name.
    """
    path, named = request.model_config, request.model or _value_of(command, "--model-path", "--model")
    if path is None and named and (request.folder / named / "config.json").is_file():
        path = request.folder / named
    if path is not None:
        facts = read_model_config(path)
        if "model.weights_bytes" in facts:  # --quantization may halve or quarter 16-bit weights as they are loaded
            share = 0.25 if _value_of(command, "--quantization") and facts["model.quantization"] == "none" else 1.0
            facts["model.weights_least_gib"] = round(facts["model.weights_bytes"] * share / 2**30, 1)
        architecture = str(facts.get("model.architecture", ""))
        return _Model(f"{named or path.name} ({architecture})" if architecture else named or path.name, facts)
    known_as, facts = named_facts(knowledge, named, _value_of(command, "--served-model-name"))
    if not facts:
        return _Model(named)
    note = f"the model is judged by its name: by what the library knows of {known_as}; --model-config config.json makes sure"
    guess = "" if _value_of(command, "--quantization") else hinted_quantization(known_as)
    hint = (f"the name suggests {guess} weights; that is a guess and nothing is judged by it: --model-config tells",) if guess else ()
    return _Model(f"{named} (by its name: {facts['model.architecture']})", facts, (note, *hint))


def _without_model_type(command: LaunchCommand, release: str) -> tuple[Sequence[str], str]:
    """(the words that reach the server's own parser, what --model-type says): `sglang serve` takes that option for itself from 0.5.10 on
    (cli/serve.py::_extract_model_type_override).
    """
    kind = _value_of(command, "--model-type")
    if command.launcher != "sglang serve" or not kind or Version(release) < Version("0.5.10"):
        return command.arguments, ""
    words, kept, skips = command.arguments, [], False
    for word in words:
        if not skips and word.partition("=")[0] != "--model-type":
            kept.append(word)
        skips = word == "--model-type"
    return kept, kind


def _value_of(command: LaunchCommand, *options: str) -> str:
    for index, word in enumerate(command.arguments):
        name, equals, value = word.partition("=")
        if name in options:
            return value if equals else next(iter(command.arguments[index + 1 : index + 2]), "")
    return ""


def _gpu_count(request: Request, command: LaunchCommand) -> int | None:
    """GPUs that the server sees: what CUDA_VISIBLE_DEVICES of the command lists, at most those of the machine."""
    visible = command.environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not re.fullmatch(r"[\w-]+(,[\w-]+)*", visible):
        return request.gpu_count
    listed = visible.split(",")
    if request.gpu_count is None:
        return len(listed)
    count = request.gpu_count
    unknown = next((place for place, name in enumerate(listed) if name.isdigit() and int(name) >= count), len(listed))
    return min(unknown, count)  # CUDA sees those before the first that is not there
