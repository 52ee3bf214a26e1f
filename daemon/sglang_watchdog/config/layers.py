"""Puts the configuration together: defaults, files in order, environment, flags; and remembers who set what.

Mappings are merged key by key. A list of a later layer takes the place of an earlier one, except `servers`, which are
merged by name so that each can stand in a file of its own in conf.d.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from .faults import Fault, nearest
from .settings import Settings, as_telemetry
from .shapes import fault_of, field_names, names_at
from .yaml_source import Document, Way, read_yaml, read_yaml_file

PREFIX: Final = "SGLANG_WATCHDOG_"
NOT_SETTINGS: Final = frozenset({"SGLANG_WATCHDOG_CONFIG"})  # names the files themselves
DEFAULT: Final = "default"
CODE: Final = "CFG001"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was set: a file with its place, a variable, or a flag."""

    document: Document
    way: Way
    label: str = ""  # of variables and flags

    def __str__(self) -> str:
        return self.label or f"{self.document.path}:{self.document.at(self.way).line}"


@dataclass(slots=True)
class Merged:
    """The value of all layers together, and the origin of each key and item in it."""

    value: dict[str, Any] = field(default_factory=dict)
    origins: dict[Way, Origin] = field(default_factory=dict)

    def origin(self, way: Way) -> Origin | None:
        """Who set `way`, or the nearest thing around it."""
        return self.trace(way)[0]

    def trace(self, way: Way) -> tuple[Origin | None, Way]:
        """Who set `way` or the nearest thing around it, and the steps from there that no layer has."""
        known: Way = ()
        used = 0
        for index, step in enumerate(way):
            if (*known, step) in self.origins:
                known, used = (*known, step), index + 1
        return self.origins.get(known), way[used:]


@dataclass(frozen=True, slots=True)
class Configuration:
    """`settings` is None if there is an error among `faults`."""

    settings: Settings | None
    faults: tuple[Fault, ...] = ()
    merged: Merged = field(default_factory=Merged)
    files: tuple[Path, ...] = ()


def configuration_files(path: Path) -> list[Path]:
    """The file and, in order, the *.yaml of the conf.d beside it."""
    return [path, *sorted((path.parent / "conf.d").glob("*.yaml"))]


def configure(
    files: Sequence[Path] = (), environment: Mapping[str, str] | None = None, flags: Mapping[str, tuple[Way, Any]] | None = None
) -> Configuration:
    """Read and check everything. `flags` maps a flag as it is typed to the setting and the value it stands for."""
    merged = Merged()
    faults: list[Fault] = []
    for path in files:
        document = read_yaml_file(path, code=CODE)
        faults += document.faults
        if isinstance(document.value, dict):
            _merge(merged, document.value, document, (), ())
        elif document.value is not None and not document.faults:
            faults.append(
                document.fault(
                    (),
                    "a mapping of settings is needed here",
                    code=CODE,
                    help=f"Begin with one of: {', '.join(sorted(field_names(Settings)))}.",
                )
            )
    for name, value in sorted((environment or {}).items()):
        if name.startswith(PREFIX) and name not in NOT_SETTINGS:
            faults += _set(merged, tuple(part.lower() for part in name[len(PREFIX) :].split("__")), value, name)
    for flag, (way, value) in (flags or {}).items():
        faults += _set(merged, way, value, flag)
    if faults:
        return Configuration(None, tuple(faults), merged, tuple(files))
    try:
        return Configuration(Settings.model_validate(merged.value), (), merged, tuple(files))
    except ValidationError as error:
        found = [_located(dict(item), merged) for item in error.errors(include_url=False)]
        return Configuration(None, tuple(found), merged, tuple(files))


def _located(item: dict[str, Any], merged: Merged) -> Fault:
    """A complaint about the merged value, shown where it was set."""
    way: Way = tuple(item["loc"])
    origin, rest = merged.trace(way)
    if origin is None:
        return fault_of(item, Document("configuration", ""), Settings, CODE)
    return fault_of(item, origin.document, Settings, CODE, shown=() if origin.label else (*origin.way, *rest))


def _merge(merged: Merged, value: Mapping[str, Any], document: Document, way: Way, target: Way, label: str = "") -> None:
    """Lay one mapping over what is there. `way` leads to it in its document, `target` in the merged value."""
    place = _at(merged.value, target)
    for key, given in value.items():
        here: Way = (*target, key)
        inner = as_telemetry(given) if here == ("telemetry",) else given
        merged.origins[here] = Origin(document, (*way, key), label)
        if isinstance(inner, dict) and isinstance(place.get(key), dict):
            _merge(merged, inner, document, (*way, key), here, label)
        elif here == ("servers",) and isinstance(inner, list) and isinstance(place.get(key), list):
            _merge_servers(merged, inner, document, (*way, key), label)
        else:
            _forget(merged, here)
            place[key] = _copied(merged, inner, document, (*way, key), here, label)


def _merge_servers(merged: Merged, servers: list[Any], document: Document, way: Way, label: str) -> None:
    known = merged.value["servers"]
    for index, server in enumerate(servers):
        name = server.get("name") if isinstance(server, dict) else None
        at = next((i for i, old in enumerate(known) if isinstance(old, dict) and name and old.get("name") == name), None)
        if at is None:
            at = len(known)
            known.append(_copied(merged, server, document, (*way, index), ("servers", at), label))
        else:
            _merge(merged, server, document, (*way, index), ("servers", at), label)


def _copied(merged: Merged, value: Any, document: Document, way: Way, target: Way, label: str) -> Any:
    """A copy of `value`, each part of it with its origin."""
    merged.origins[target] = Origin(document, way, label)
    if isinstance(value, dict):
        return {key: _copied(merged, inner, document, (*way, key), (*target, key), label) for key, inner in value.items()}
    if isinstance(value, list):
        return [_copied(merged, inner, document, (*way, i), (*target, i), label) for i, inner in enumerate(value)]
    return value


def _forget(merged: Merged, target: Way) -> None:
    for old in [way for way in merged.origins if way[: len(target)] == target]:
        del merged.origins[old]


def _at(value: Any, way: Way) -> Any:
    for step in way:
        value = value[step]
    return value


def _set(merged: Merged, way: Way, value: Any, label: str) -> list[Fault]:
    """Set one value from a variable or a flag; text that begins like a YAML list or mapping is read as one."""
    document = Document(label, "")
    if isinstance(value, str) and value[:1] in ("[", "{"):
        document = read_yaml(value, label, code=CODE)
        if document.faults:
            return list(document.faults)
        value = document.value
    if way == ("telemetry",) and isinstance(value, str):
        _merge(merged, {"telemetry": value}, document, (), (), label)
        return []
    steps: list[str | int] = [int(step) if isinstance(step, str) and step.isdigit() else step for step in way]
    place: Any = merged.value
    for index, step in enumerate(steps):
        here = tuple(steps[: index + 1])
        fault = _refuse(place, step, here, label)
        if fault:
            return [fault]
        if index == len(steps) - 1:
            _forget(merged, here)
            new = _copied(merged, value, document, (), here, label)
            if isinstance(place, list) and step == len(place):
                place.append(new)
            else:
                place[step] = new
        else:
            place = _entered(place, step, steps[index + 1])
            merged.origins.setdefault(here, Origin(document, (), label))
    return []


def _refuse(place: Any, step: str | int, way: Way, label: str) -> Fault | None:
    if isinstance(place, list):
        if isinstance(step, int) and step <= len(place):
            return None
        return Fault(
            path=label,
            code=CODE,
            message=f"there is no item `{step}` in `{'.'.join(map(str, way[:-1]))}`",
            help=f"Items count from 0; the next free one is {len(place)}.",
        )
    valid = names_at(Settings, way[:-1])
    if valid and step not in valid:
        return Fault(path=label, code=CODE, message=f"unknown setting `{'.'.join(map(str, way))}`", help=nearest(str(step), valid))
    if not isinstance(place, dict):
        return Fault(path=label, code=CODE, message=f"`{'.'.join(map(str, way[:-1]))}` is no group of settings")
    return None


def _entered(place: Any, step: str | int, next_step: str | int) -> Any:
    empty: Any = [] if isinstance(next_step, int) else {}
    if isinstance(place, list):
        if step == len(place):
            place.append(empty)
        return place[int(step)]
    if not isinstance(place.get(step), (dict, list)):
        place[step] = empty
    return place[step]


def leaves(value: Any, way: Way = ()) -> Iterator[tuple[Way, Any]]:
    """Every setting of a plain value; empty lists and mappings are settings too."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*way, key))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from leaves(inner, (*way, index))
    else:
        yield way, value
