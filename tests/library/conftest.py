"""A folder of signatures built by the test, so that each story holds the few lines that matter."""

from pathlib import Path
from textwrap import dedent

import pytest

from sglang_watchdog.library.load import load

TOPICS = """
version: 1
topics:
  moe.triton-untuned: "[warning] Runs with the default config."
  moe.triton-inactive: "[info] Not in use."
  gpu.power-underused: "[warning] Power far below the limit."
  crash.scheduler: "[critical] The scheduler died."
"""

GOOD = """
id: {id}
revision: 1
status: trial
kind: forbidden
topic: moe.triton-untuned
title: Triton MoE kernels run untuned
summary: "{{ranks}} found no tuned file."
explanation: No tuned file exists for this shape.
remediation: Tune it.
match: {{starts: Using default MoE kernel config, level: warning}}
examples:
  - {{line: Using default MoE kernel config. Performance might be sub-optimal!, then: firing, from: {{source: f.py}}}}
  - {{line: Using MoE kernel config from /x/E=60.json., then: nothing, from: {{source: f.py}}}}
"""


class Folder:
    """A folder of signatures on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.put("topics.yaml", TOPICS)
        self.put("library.yaml", "version: 1.2.3\nreleases: [0.5.10, 0.5.11, 0.5.12]\n")

    def put(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip("\n"))
        return path

    def good(self, name: str = "moe/moe-default.yaml", **changes: str) -> Path:
        """A sound signature with some top-level keys replaced by YAML text, or removed where the text is empty."""
        text = GOOD.format(id=Path(name).stem).lstrip("\n")
        kept = []
        for line in text.splitlines():
            key = line.partition(":")[0]
            if key in changes or (kept and line.startswith(" ") and kept[-1] is None):
                kept.append(None)
            else:
                kept.append(line)
        lines = [line for line in kept if line is not None]
        lines += [f"{key.rstrip('_')}: {value.strip()}" for key, value in changes.items() if value]
        return self.put(name, "\n".join(lines) + "\n")

    def load(self, *folders: Path, **options):
        return load(folders, root=self.path, **options)


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "signatures")


@pytest.fixture
def own(tmp_path):
    """The operator's own folder."""
    own = Folder(tmp_path / "signatures.d")
    for name in ("topics.yaml", "library.yaml"):
        (own.path / name).unlink()
    return own
