"""The shipped flag knowledge, read once, and a judge over it as short as a test's sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sglang_watchdog.triage.command import read_command
from sglang_watchdog.triage.gpu_facts import gpu_facts
from sglang_watchdog.triage.knowledge import Knowledge, load_knowledge
from sglang_watchdog.triage.run import judge_release
from sglang_watchdog.triage.verdicts import Judgement

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def knowledge() -> Knowledge:
    return load_knowledge()


@pytest.fixture(scope="session")
def judged(knowledge: Knowledge) -> Callable[..., Judgement]:
    """Judge a command as `release` takes it; `model` names facts without their root."""

    def judge(command: str, release: str, gpu: str = "", model: dict[str, Any] | None = None, folder: Path = Path("/nowhere")):
        facts = gpu_facts(gpu, knowledge.gpus) | {f"model.{name}": value for name, value in (model or {}).items()}
        return judge_release(knowledge, knowledge.table.sampled(release)[0], read_command(command), facts, folder)

    return judge
