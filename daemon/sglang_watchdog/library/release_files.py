"""The Python files of an SGLang release, read from a wheel or an unpacked tree. Nothing is imported or run."""

import ast
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

_DECLARING = ("sglang/srt/server_args.py", "sglang/srt/arg_groups/")


def python_files(origin: Path, wanted: Callable[[str], bool] = bool) -> Iterator[tuple[str, ast.Module]]:
    """Yield (path from `sglang/`, tree) of the wanted files of a wheel or an unpacked tree. Files that do not parse are
    left out.
    """
    for name, text in _texts(origin, wanted):
        try:
            yield name, ast.parse(text, name)
        except SyntaxError:
            continue


def _texts(origin: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    if origin.suffix == ".whl":
        with zipfile.ZipFile(origin) as wheel:
            for name in sorted(wheel.namelist()):
                if name.startswith("sglang/") and name.endswith(".py") and wanted(name):
                    yield name, wheel.read(name).decode("utf-8", "replace")
        return
    for path in sorted((origin / "sglang").rglob("*.py")):
        name = path.relative_to(origin).as_posix()
        if wanted(name):
            yield name, path.read_text("utf-8", "replace")


def read_text(origin: Path, name: str) -> str | None:
    """One file of a wheel or an unpacked tree, or None if it has none of that name."""
    if origin.suffix == ".whl":
        with zipfile.ZipFile(origin) as wheel:
            return wheel.read(name).decode("utf-8", "replace") if name in wheel.namelist() else None
    path = origin / name
    return path.read_text("utf-8", "replace") if path.is_file() else None


def declares(path: str) -> bool:
    """True for the files that declare or resolve arguments rather than use them."""
    return path.startswith(_DECLARING)
