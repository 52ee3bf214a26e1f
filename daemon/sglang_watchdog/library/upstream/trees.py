"""The Python files of one release, from a wheel or an unpacked tree."""

import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...engine.releases import Version

WHEEL: Final = re.compile(r"sglang-([^-]+)-.*\.whl$")
# Tests, benchmarks, the frontend language and diffusion do not run in a server.
ELSEWHERE: Final = re.compile(r"sglang/(test/|multimodal_gen/|eval/|lang/|cli/killall|benchmark/|bench_|profiler)")


class NoSource(ValueError):
    """A path that is neither a wheel of SGLang, an unpacked tree, nor a folder of wheels."""


@dataclass(frozen=True, slots=True)
class Tree:
    """One release; `path` is a wheel or a directory that holds `sglang/`."""

    version: str
    path: Path

    def files(self) -> Iterator[tuple[str, str]]:
        """(name below the root, text) of every Python file that runs in a server."""
        if self.path.suffix == ".whl":
            with zipfile.ZipFile(self.path) as wheel:
                for name in sorted(wheel.namelist()):
                    if _belongs(name):
                        yield name, wheel.read(name).decode("utf-8", "replace")
            return
        for path in sorted((self.path / "sglang").rglob("*.py")):
            name = path.relative_to(self.path).as_posix()
            if _belongs(name):
                yield name, path.read_text("utf-8", "replace")


def _belongs(name: str) -> bool:
    return name.startswith("sglang/") and name.endswith(".py") and not ELSEWHERE.match(name)


def find_trees(paths: Sequence[Path]) -> list[Tree]:
    """The releases at `paths`, oldest first; a folder stands for every wheel in it.

    Raises:
        NoSource: with the path that is none.
    """
    found: list[Tree] = []
    for path in paths:
        inside = sorted(path.glob("sglang-*.whl")) if path.is_dir() else [path]
        trees = [Tree(wheel[1], one) for one in inside if (wheel := WHEEL.match(one.name))]
        if not trees and (path / "sglang" / "srt").is_dir():
            trees = [Tree(_version_of(path), path)]
        if not trees:
            raise NoSource(f"{path} is neither a wheel of SGLang, an unpacked one, nor a folder of wheels")
        found += trees
    return sorted({tree.version: tree for tree in found}.values(), key=lambda tree: Version(tree.version))


def _version_of(root: Path) -> str:
    for info in sorted(root.glob("sglang-*.dist-info")):
        return info.name.removeprefix("sglang-").removesuffix(".dist-info")
    raise NoSource(f"{root} does not tell its release: there is no sglang-….dist-info in it")
