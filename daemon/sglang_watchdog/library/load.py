"""Reads folders of signature files into one compiled library.

The built-in folder comes first and the operator's own after it; an id of a later folder takes the place of the same id
of an earlier one. A broken file is reported and left out, so that one bad edit does not blind the watchdog to
everything else.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from ..config.faults import Fault, nearest
from ..config.yaml_source import Document, Way
from ..model.signature import Library, Milestone, Pattern
from ..model.words import Severity, Status
from .compile import Compiler
from .files import (
    SCHEMA,
    SignatureFile,
    default_root,
    read_body,
    read_json_table,
    read_table,
    shown_name,
    signature_paths,
)
from .schema import GpusFile, LibraryFile, MilestonesFile, ModelsFile, TopicsFile

FIELDS_TABLE: Final = "server_args_fields.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """An operator's own severity or threshold for one signature."""

    severity: Severity | None = None
    threshold: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What was read. `library` holds everything without faults; `files` every signature that compiled, drafts too."""

    library: Library
    faults: tuple[Fault, ...] = ()
    files: tuple[SignatureFile, ...] = ()
    milestone_patterns: tuple[tuple[Document, Mapping[str, Pattern], Mapping[str, Way]], ...] = ()  # a folder each

    @property
    def errors(self) -> tuple[Fault, ...]:
        return tuple(fault for fault in self.faults if not fault.is_warning)


@dataclass(slots=True)
class _Reading:
    """What has been gathered so far, folder by folder."""

    topics: dict[str, Severity] = field(default_factory=dict)
    models: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    shapes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    parameter_bytes: dict[str, tuple[float, float]] = field(default_factory=dict)
    gpus: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    milestones: list[Milestone] = field(default_factory=list)
    milestone_patterns: dict[str, Pattern] = field(default_factory=dict)
    release_fields: dict[str, tuple[str, str]] = field(default_factory=dict)
    version: str = "0.0.0"
    releases: tuple[str, ...] = ()
    files: dict[str, SignatureFile] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    milestone_files: list[tuple[Document, Mapping[str, Pattern], Mapping[str, Way]]] = field(default_factory=list)


def load(
    folders: Sequence[Path] = (),
    *,
    root: Path | None = None,
    disable: Iterable[str] = (),
    override: Mapping[str, Override] | None = None,
    drafts: bool = False,
) -> Loaded:
    """Load the built-in library (or `root`), then each of `folders`. `drafts` takes signatures of status draft too."""
    reading = _Reading()
    layers = [root or default_root(), *folders]
    for folder in layers:
        _read_tables(folder, reading)
    overrides = override or {}
    for folder in layers:
        _read_signatures(folder, reading, overrides)
    _check_names([*disable, *overrides], reading)
    return Loaded(
        library=_library(reading, frozenset(disable), drafts),
        faults=tuple(reading.faults),
        files=tuple(reading.files.values()),
        milestone_patterns=tuple(reading.milestone_files),
    )


def _library(reading: _Reading, disabled: frozenset[str], drafts: bool) -> Library:
    wanted = {Status.TRIAL, Status.STABLE, *([Status.DRAFT] if drafts else [])}
    active = [file for name, file in sorted(reading.files.items()) if file.signature.status in wanted and name not in disabled]
    patterns = dict(reading.milestone_patterns)
    for file in active:
        patterns.update(file.patterns)
    return Library(
        version=reading.version,
        signatures={file.signature.id: file.signature for file in active},
        patterns=patterns,
        milestones=tuple(reading.milestones),
        topics=reading.topics,
        releases=reading.releases,
        release_fields=reading.release_fields,
        models=reading.models,
        shapes=reading.shapes,
        parameter_bytes=reading.parameter_bytes,
        gpus=reading.gpus,
    )


def _read_tables(folder: Path, reading: _Reading) -> None:
    if not folder.is_dir():
        reading.faults.append(
            Fault(
                path=shown_name(folder),
                code=SCHEMA,
                message="is not a folder of signatures",
                help="Make it, or take it out of `signatures: {paths: […]}`.",
            )
        )
        return
    about, _, faults = read_table(folder, "library.yaml", LibraryFile)
    if about is not None and not reading.releases:
        reading.version, reading.releases = about.version, tuple(about.releases)
    topics, _, more = read_table(folder, "topics.yaml", TopicsFile)
    for name, text in topics.topics.items() if topics else ():
        reading.topics[name] = Severity(text[1 : text.index("]")])
    models, _, third = read_table(folder, "models.yaml", ModelsFile)
    if models is not None:
        reading.models.update(models.models)
        reading.shapes.update(models.shapes)
        reading.parameter_bytes.update(models.parameter_bytes)
    gpus, _, fourth = read_table(folder, "gpus.yaml", GpusFile)
    for gpu in gpus.gpus if gpus else ():
        reading.gpus[gpu.name] = gpu.model_dump(exclude_none=True, exclude={"name", "about"})
    fields, fifth = read_json_table(folder / FIELDS_TABLE)
    reading.release_fields.update({name: (row[0], row[1]) for name, row in fields.get("fields", {}).items()})
    reading.faults += [*faults, *more, *third, *fourth, *fifth]
    _read_milestones(folder, reading)


def _read_milestones(folder: Path, reading: _Reading) -> None:
    table, document, faults = read_table(folder, "milestones.yaml", MilestonesFile)
    reading.faults += faults
    compiler = Compiler(document)
    for index, body in enumerate(table.milestones if table else ()):
        taken = sum(len(one.patterns) for one in reading.milestones if one.name == body.name)
        compiler.faults.clear()
        milestone = compiler.milestone(body, taken, ("milestones", index))
        reading.faults += compiler.faults
        if not compiler.faults:
            reading.milestones.append(milestone)
            reading.milestone_patterns.update({name: compiler.patterns[name] for name in milestone.patterns})
    reading.milestone_files.append((document, compiler.patterns, compiler.ways))


def _read_signatures(folder: Path, reading: _Reading, overrides: Mapping[str, Override]) -> None:
    for path in signature_paths(folder) if folder.is_dir() else ():
        body, document, faults = read_body(path)
        if body is None:
            reading.faults += _left_out(faults, path.stem, reading)
            continue
        earlier = reading.files.get(body.id)
        if earlier is not None and earlier.root == folder:
            reading.faults.append(
                document.fault(
                    ("id",),
                    f"the id `{body.id}` is used by {earlier.document.path} too",
                    code=SCHEMA,
                    help="Ids are unique within a folder.",
                )
            )
            continue
        own = overrides.get(body.id, Override())
        if own.threshold is not None and body.threshold is None:
            reading.faults.append(
                Fault(
                    path="configuration",
                    message=f"signature `{body.id}` has no threshold to override",
                    help="Copy the file to your own folder of signatures and change the copy.",
                )
            )
            own = replace(own, threshold=None)
        compiler = Compiler(document)
        signature = compiler.signature(body, reading.topics, own.severity, own.threshold)
        reading.faults += _left_out(compiler.faults, body.id, reading)
        if signature is not None:
            reading.files[body.id] = SignatureFile(path, folder, document, body, signature, compiler.patterns, compiler.ways)


def _left_out(faults: Iterable[Fault], name: str, reading: _Reading) -> list[Fault]:
    """The faults of a file that is left out; if it was to replace another, they say that the other stays."""
    stays = reading.files.get(name)
    note = f"\nUntil then {stays.document.path} stays in force." if stays else ""
    return [replace(fault, help=(fault.help + note).strip()) for fault in faults]


def _check_names(names: Iterable[str], reading: _Reading) -> None:
    for name in names:
        if name not in reading.files:
            reading.faults.append(
                Fault(
                    path="configuration",
                    message=f"there is no signature `{name}`",
                    is_warning=True,
                    help=nearest(name, reading.files),
                )
            )
