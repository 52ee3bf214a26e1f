"""Reads unit files as systemd does: directives in order, an empty value resets a list, drop-ins after the unit."""

from pathlib import Path

from .tools import ROOT, run, tool

SYSTEMD = ROOT / "deploy" / "systemd"
UNIT = SYSTEMD / "sglang-watchdog.service"
DROP_INS = sorted((SYSTEMD / "sglang-watchdog.service.d").glob("*.conf"))


def directives(*files: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for file in files:
        for line in file.read_text().splitlines():
            name, is_one, value = line.partition("=")
            if not is_one or line.startswith(("#", ";", "[")):
                continue
            found[name] = [*found.get(name, []), value] if value else []
    return found


def system_calls(unit: dict[str, list[str]]) -> list[str]:
    """What SystemCallFilter= leaves, with systemd's own groups; and RestrictNamespaces=yes, which systemd makes a filter too (here without the
    flags of clone)."""
    groups: dict[str, list[str]] = {}
    current: list[str] = []
    for line in run(tool("systemd-analyze"), "syscall-filter", "--no-pager").stdout.splitlines():
        if line.startswith("@"):
            current = groups.setdefault(line.strip(), [])
        elif line.startswith("    ") and not line.strip().startswith("#"):
            current.append(line.strip())

    def expand(name: str) -> set[str]:
        return {call for each in groups[name] for call in expand(each)} if name.startswith("@") else {name}

    allowed: set[str] = set()
    for value in unit["SystemCallFilter"]:
        calls = {call for name in value.removeprefix("~").split() for call in expand(name)}
        allowed = allowed - calls if value.startswith("~") else allowed | calls
    if unit["RestrictNamespaces"] == ["yes"]:
        allowed -= {"unshare", "setns"}
    return sorted(allowed)
