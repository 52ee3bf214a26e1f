"""Writes grafana/dashboards/*.json from dashboards.py. `--check` says whether the committed files are current.

Plain Python, so that it runs wherever the tests do; the shape is Grafana's Classic model, which provisioning reads.
"""

import json
import sys
from pathlib import Path

from dashboards import ALL

FOLDER = Path(__file__).resolve().parent / "dashboards"


def rendered() -> dict[str, str]:
    """File name to content."""
    return {f"{each.uid.removeprefix('sglang-watchdog-')}.json": json.dumps(each.json(), indent=2) + "\n" for each in ALL}


def stale() -> list[str]:
    files = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    wanted = rendered()
    return sorted(name for name in files.keys() | wanted.keys() if files.get(name) != wanted.get(name))


def main() -> int:
    if "--check" in sys.argv[1:]:
        print("\n".join(f"{name} is not what dashboards.py says: python grafana/build.py" for name in stale()), end="")
        return 1 if stale() else 0
    for name, text in rendered().items():
        (FOLDER / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
