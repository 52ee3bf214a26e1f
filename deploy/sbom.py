"""The bill of materials of an installation, as CycloneDX JSON: `sbom.py > sbom.cdx.json`, or `make sbom`.

Names, versions and who needs whom come from requirements.txt (which has the hashes), licences from the installed packages. Nothing in it depends on
the time or the machine, so that a change of it is a change of the dependencies.
"""

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
REQUIREMENTS: Final = ROOT / "deploy" / "requirements.txt"
OURSELVES: Final = "sglang-watchdog"
_HEAD: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?:\s*;\s*(?P<marker>[^\\]+?))?\s*\\?$")
# What packages write that is no SPDX identifier, by the words they use.
_SPDX: Final = {
    "MIT": "MIT", "MIT License": "MIT", "BSD": "BSD-3-Clause", "BSD License": "BSD-3-Clause", "ISC License": "ISC",
    "ISC License (ISCL)": "ISC", "Apache Software License": "Apache-2.0",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Package:
    """One pinned requirement. `needed_by`: names, ours for what pyproject.toml asks for."""

    name: str
    version: str
    needed_by: tuple[str, ...]
    marker: str

    @property
    def reference(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def packages(text: str) -> Iterator[Package]:
    """The entries of a requirements file as pip-compile writes it, in its order."""
    for block in re.split(r"\n(?=[A-Za-z0-9])", text):
        lines = block.strip().splitlines()
        head = _HEAD.match(lines[0]) if lines else None
        if head is None:
            continue
        via = re.findall(r"#\s+(?:via\s+)?([A-Za-z0-9._-]+)(?: \(pyproject\.toml\))?\s*$", "\n".join(line for line in lines if "#" in line), re.MULTILINE)
        yield Package(head["name"], head["version"], tuple(name for name in via if name != "via"), head["marker"] or "")


def licence(name: str) -> str:
    """The SPDX expression of an installed package.

    Raises:
        LookupError: it is not installed, or says its licence in words that are not known here.
    """
    try:
        about = metadata(name)
    except PackageNotFoundError:
        raise LookupError(f"{name} is not installed: make sbom installs what it needs") from None
    said = about.get("License-Expression")
    if said:
        return str(said)
    words = [about.get("License") or "", *(one.rsplit(" :: ", 1)[-1] for one in about.get_all("Classifier") or () if one.startswith("License ::"))]
    known = [_SPDX[word] for word in words if word in _SPDX]
    if not known:
        raise LookupError(f"{name} says its licence as {words}: add it to _SPDX in {Path(__file__).name}")
    return known[0]


def document(found: list[Package], version: str, licences: dict[str, str]) -> dict[str, Any]:
    ours = f"pkg:pypi/{OURSELVES}@{version}"
    references = {OURSELVES: ours, **{one.name: one.reference for one in found}}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application", "bom-ref": ours, "name": OURSELVES, "version": version, "purl": ours,
                "licenses": [{"expression": "Apache-2.0"}],
            }
        },
        "components": [
            {
                "type": "library", "bom-ref": one.reference, "name": one.name, "version": one.version, "purl": one.reference,
                "licenses": [{"expression": licences[one.name]}],
                **({"properties": [{"name": "python:marker", "value": one.marker}]} if one.marker else {}),
            }
            for one in found
        ],
        "dependencies": [
            {"ref": reference, "dependsOn": sorted(one.reference for one in found if name in one.needed_by)}
            for name, reference in references.items()
        ],
    }  # fmt: skip


def written(licences: dict[str, str] | None = None) -> str:
    """The document as committed; `licences` instead of those of installed packages."""
    found = list(packages(REQUIREMENTS.read_text(encoding="utf-8")))
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    known = licences if licences is not None else {one.name: licence(one.name) for one in found}
    return json.dumps(document(found, version, known), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(written())
