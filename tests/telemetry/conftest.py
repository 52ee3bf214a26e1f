"""Fixtures for everything that samples: a fake driver in its state directory."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fake_nvml import FakeNvml, build


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    folder = tmp_path_factory.mktemp("fake-nvml")
    return lambda generation: build(folder, generation)


@pytest.fixture
def fake(tmp_path: Path, fake_library: Callable[[int], Path]) -> Callable[..., FakeNvml]:
    """Make a fake driver: `fake(generation=580, count=8, ...)`."""

    def make(generation: int = 580, **state: object) -> FakeNvml:
        made = FakeNvml(tmp_path, fake_library(generation))
        made.set(**state)
        return made

    return make
