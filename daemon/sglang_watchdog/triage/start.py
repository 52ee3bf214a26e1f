"""What the start reads from the disk: the model's folder and the files that flags name, and whether they are there.

Only a machine that is to run the server can be asked. Where SGLang is installed beside us and nothing says that the command
runs elsewhere, a missing path ends the start; otherwise it is an open question, and the start is not known.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from .command import MASK, LaunchCommand
from .config_file import config_path
from .knowledge import Knowledge
from .verdicts import FlagVerdict, Judgement, OpenQuestion

_ELSEWHERE = frozenset({"docker", "podman", "nerdctl", "kubectl", "apptainer", "singularity", "enroot", "srun", "ssh", "ray", "sky", "modal"})
_REPOSITORY = re.compile(r"[\w.-]+(?:/[\w.-]+)?")  # a hub's own rule: one name, or owner and name


@dataclass(frozen=True, slots=True)
class Place:
    """Where the command is to run. `is_here`: on this machine, so that its files can be looked at."""

    folder: Path
    is_here: bool


def place_of(command: LaunchCommand, folder: Path, *, installed: str) -> Place:
    """`installed`: the release of SGLang on this machine, "" if there is none."""
    is_elsewhere = any(word.rpartition("/")[2] in _ELSEWHERE for word in command.before)
    return Place(folder, bool(installed) and not is_elsewhere)


def with_files(knowledge: Knowledge, judgement: Judgement, place: Place, words: Iterable[str] = ()) -> Judgement:
    """The judgement with what the paths of the command come to. `words` are those of the command, for --config."""
    flags: list[FlagVerdict] = []
    questions: list[OpenQuestion] = []
    config = _config(list(words), place)
    if config is not None:  # said here, with what it means for the start
        judgement = replace(judgement, notes=tuple(note for note in judgement.notes if "is not here" not in note))
    if config is not None and place.is_here:
        notes = (*judgement.notes, f"{config.because}: the server does not start. {config.do}")
        judgement = replace(judgement, starts=False, notes=notes)
    elif config is not None:
        questions.append(config)
    for verdict in judgement.flags:
        missing = _missing(knowledge, verdict, place)
        if missing is None:
            flags.append(verdict)
        elif place.is_here:
            because = f"{missing.because}: the server does not start"
            flags.append(replace(verdict, verdict="conflict", because=because, do=missing.do, starts=False, open=()))
        else:
            flags.append(verdict)
            questions.append(missing)
    starts = judgement.starts if all(flag.starts for flag in flags) else False
    if starts and questions:
        starts = None
    return replace(judgement, flags=tuple(flags), starts=starts, files=(*judgement.files, *questions))


def _config(words: list[str], place: Place) -> OpenQuestion | None:
    name = config_path(words)
    if not name or (place.folder / name).is_file():
        return None
    where = "" if place.is_here else ", so the flags in it are not known, nor whether it is there where the server starts"
    return OpenQuestion("--config", "path", f"{name} is not on this machine{where}", _cure(name, place))


def _missing(knowledge: Knowledge, verdict: FlagVerdict, place: Place) -> OpenQuestion | None:
    known = knowledge.flags.get(verdict.field)
    value = verdict.value
    if known is None or not known.path or not isinstance(value, str) or value in ("", MASK) or not verdict.starts or verdict.verdict == "overridden":
        return None
    if verdict.verdict == "unknown" and "$" in value:
        return None
    path = place.folder / Path(value).expanduser()
    if known.path == "model" and (path.exists() or not _is_local(value)):
        return _without_config(verdict, path, place) if path.is_dir() else None
    if known.path == "file" and (path.is_file() or "/" not in value):
        return None
    return OpenQuestion(verdict.flag, "path", f"{value} is not on this machine", _cure(value, place))


def _is_local(value: str) -> bool:
    """Whether a model's name can only be a path: no repository of a hub, no address."""
    return "://" not in value and (value.startswith(("/", "./", "../", "~")) or not _REPOSITORY.fullmatch(value))


def _without_config(verdict: FlagVerdict, path: Path, place: Place) -> OpenQuestion | None:
    """A folder in which transformers finds no config.json is no model; Mistral's own format has params.json."""
    if any((path / name).is_file() for name in ("config.json", "params.json")) or any(path.glob("*.gguf")):
        return None
    do = "Name the folder that holds the weights; with a hub's cache that is snapshots/<revision> below the model's."
    return OpenQuestion(verdict.flag, "path", f"{verdict.value} holds no config.json" + ("" if place.is_here else " on this machine"), do)


def _cure(name: str, place: Place) -> str:
    if place.is_here:
        return f"Check {name}; relative paths count from the folder in which the server is started."
    return "Run triage on the machine (or in the container) that starts the server, in its folder."
