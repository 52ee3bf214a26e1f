"""The fake libnvidia-ml.so.1: built by the system's compiler, loaded by the real binding, moved by a state file."""

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "fakes" / "nvml" / "fake_nvml.c"


def compiler() -> str:
    """Return a C compiler; without one the test is skipped with the package to install (under CI=true it fails)."""
    found = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        missing = "no C compiler for the fake NVML; install gcc (Debian, Ubuntu: apt install gcc libc6-dev)"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return found


def build(folder: Path, generation: int = 580) -> Path:
    """Compile the fake as a driver of this branch would export it; return the folder for LD_LIBRARY_PATH."""
    library = folder / f"nvml-{generation}" / "libnvidia-ml.so.1"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [
                compiler(),
                "-shared",
                "-fPIC",
                "-O1",
                "-Wall",
                "-Werror",
                f"-DGENERATION={generation}",
                "-Wl,-soname,libnvidia-ml.so.1",
                "-o",
                str(library),
                str(SOURCE),
                "-lpthread",
            ],
            check=True,
        )
    return library.parent


@dataclass
class FakeNvml:
    """State of the fake hardware. Every change is written at once, whole, under a new inode."""

    folder: Path
    library: Path
    state: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.path = self.folder / "state"
        self._write()

    def set(self, **values: object) -> None:
        """Set values of all GPUs, or of the driver; `__` stands for a dot."""
        self.update({key.replace("__", "."): value for key, value in values.items()})

    def gpu(self, index: int, **values: object) -> None:
        """Set values of one GPU; None takes a line away."""
        self.update({f"gpu.{index}.{key.replace('__', '.')}": value for key, value in values.items()})

    def update(self, values: dict[str, object]) -> None:
        for key, value in values.items():
            if value is None:
                self.state.pop(key, None)
            else:
                self.state[key] = str(value)
        self._write()

    def environment(self) -> dict[str, str]:
        """The environment of a process that loads the fake."""
        return {**os.environ, "LD_LIBRARY_PATH": str(self.library), "FAKE_NVML_STATE": str(self.path)}

    def _write(self) -> None:
        new = self.path.with_suffix(".new")
        new.write_text("".join(f"{key} {value}\n" for key, value in self.state.items()))
        new.replace(self.path)
