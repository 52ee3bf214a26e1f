"""What differs between two configurations, and which differences a running daemon can take up."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from .layers import leaves
from .settings import Settings

# As in the table of deploy/README.md; `*` is a server's name. Everything else is read at the start only.
LIVE: Final = (
    "auth.*", "external_url", "limits.*", "log_level", "notify", "retention.*", "root_path", "servers.*.expected_power_limit_w",
    "servers.*.thresholds.*", "signatures.*",
)  # fmt: skip


def changed(before: Settings, after: Settings) -> tuple[str, ...]:
    """The settings that differ, by dotted name: `listen`, `servers.chat.thresholds.window_s`. A list counts as one setting."""
    old, new = _flat(before), _flat(after)
    names = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    names |= {f"servers.{name}" for name in {one.name for one in before.servers} ^ {one.name for one in after.servers}}
    return tuple(sorted(name for name in names if not any(name.startswith(f"{other}.") for other in names)))


def needing_restart(names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of `names` that a running daemon cannot take up."""
    return tuple(name for name in names if not any(fnmatchcase(name, live) for live in LIVE))


def _flat(settings: Settings) -> dict[str, Any]:
    document = settings.model_dump(mode="json")
    servers = {server["name"]: server for server in document.pop("servers")}
    return dict(_settings(document)) | {
        f"servers.{name}{'.' if way else ''}{way}": value for name, server in servers.items() for way, value in _settings(server).items()
    }


def _settings(document: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for way, value in leaves(document):
        steps: list[str] = []
        for step in way:
            if isinstance(step, int):
                break
            steps.append(step)
        name = ".".join(steps)
        found[name] = (*found.get(name, ()), (way[len(steps):], value))
    return found
