"""Finds the files of a library in its folders and reads them, one by one, into checked bodies."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from ..config.faults import Fault
from ..config.shapes import Shape, shape
from ..config.yaml_source import Document, Way, read_yaml_file
from ..model.signature import Pattern, Signature
from .schema import SignatureBody

SYNTAX: Final = "SIG001"
SCHEMA: Final = "SIG002"
COMPILE: Final = "SIG003"
TABLES: Final = frozenset(
    {
        "topics.yaml",
        "milestones.yaml",
        "models.yaml",
        "gpus.yaml",
        "ignored.yaml",
        "retired.yaml",
        "library.yaml",
        "decisions.yaml",
    }
)

GENERATED: Final = "It is generated; `sglang-watchdog signatures matrix` makes it anew from the wheels."

FileShape = TypeVar("FileShape", bound=Shape)


@dataclass(frozen=True, slots=True)
class SignatureFile:
    """A signature as it stands in its file, with what it compiles to."""

    path: Path
    root: Path
    document: Document
    body: SignatureBody
    signature: Signature
    patterns: Mapping[str, Pattern] = field(default_factory=dict)
    ways: Mapping[str, Way] = field(default_factory=dict)  # pattern id -> where it stands in the file

    @property
    def area(self) -> str:
        return self.path.parent.name if self.path.parent != self.root else ""

    def fault(
        self,
        code: str,
        way: Way,
        message: str,
        *,
        note: str = "",
        help: str = "",
        key: bool = False,
        is_warning: bool = False,
    ) -> Fault:
        """A fault of this file that points at `way`."""
        return self.document.fault(way, message, code=code, note=note, help=help, key=key, is_warning=is_warning)


def default_root() -> Path:
    """The built-in library: beside the package in an installed wheel, in the repository's signatures/ otherwise."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "signatures"
    return inside if inside.is_dir() else package.parent.parent / "signatures"


def is_installed(root: Path) -> bool:
    """Whether a folder of signatures is part of an installed package, which an update replaces as a whole."""
    return root.resolve().is_relative_to(Path(__file__).resolve().parent.parent)


def shown_name(path: Path) -> str:
    """The path as it is printed: below the current directory without it."""
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path.as_posix()


def signature_paths(root: Path) -> Iterator[Path]:
    """Every signature file of a folder, in a fixed order: all *.yaml but the tables, hidden files and replays."""
    for path in sorted((*root.rglob("*.yaml"), *root.rglob("*.yml"))):
        parts = path.relative_to(root).parts
        if "replays" in parts or any(part.startswith(".") for part in parts):
            continue
        if len(parts) == 1 and path.name in TABLES:
            continue
        yield path


def read_table(root: Path, name: str, model: type[FileShape]) -> tuple[FileShape | None, Document, list[Fault]]:
    """One of the tables at the top of a folder; (None, …, []) where the folder has none."""
    path = root / name
    if not path.is_file():
        return None, Document(shown_name(path), ""), []
    document = read_yaml_file(path, shown_name(path), code=SYNTAX)
    value, faults = shape(document, model, code=SCHEMA)
    return value, document, faults


def read_body(path: Path) -> tuple[SignatureBody | None, Document, list[Fault]]:
    """One signature file, checked against the schema and against its own name."""
    document = read_yaml_file(path, shown_name(path), code=SYNTAX)
    body, faults = shape(document, SignatureBody, code=SCHEMA)
    if body is not None and body.id != path.stem:
        faults = [
            document.fault(
                ("id",),
                f"the id `{body.id}` is not the file's name `{path.stem}`",
                code=SCHEMA,
                help="Rename the file or the id; they are the same.",
            )
        ]
        return None, document, faults
    return body, document, faults


def read_json_table(path: Path) -> tuple[dict[str, Any], list[Fault]]:
    """A generated JSON table; {} where there is none."""
    if not path.is_file():
        return {}, []
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        return {}, [Fault(path=shown_name(path), code=SYNTAX, message=f"cannot be read: {error}", help=GENERATED)]
    if not isinstance(value, dict):
        return {}, [Fault(path=shown_name(path), code=SYNTAX, message="is not a JSON object", help=GENERATED)]
    return value, []
