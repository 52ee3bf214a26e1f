"""The merged configuration for people: each value, who set it, secrets masked."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from .layers import DEFAULT, Configuration, leaves
from .settings import MASKED
from .shapes import field_at
from .yaml_source import Way

MASK: Final = "********"
USER_INFO: Final = re.compile(r"//[^/@\s]+@")


@dataclass(frozen=True, slots=True)
class Setting:
    """`path` as in the file, `servers.0.name`."""

    path: str
    value: Any
    origin: str


def settings_shown(configuration: Configuration) -> Iterator[Setting]:
    """Every setting with its origin; nothing where the configuration has errors."""
    if configuration.settings is None:
        return
    for way, value in leaves(configuration.settings.model_dump(mode="json")):
        origin = configuration.merged.origin(way) if _was_set(configuration, way) else None
        yield Setting(".".join(map(str, way)), masked(configuration.settings, way, value), str(origin or DEFAULT))


def _was_set(configuration: Configuration, way: Way) -> bool:
    """True if a layer names this setting or, as in `telemetry: nvml`, the short form of its group."""
    origins = configuration.merged.origins
    if way in origins:
        return True
    value: Any = configuration.merged.value
    for step in way:
        if not isinstance(value, (dict, list)):
            return True
        try:
            value = value[step]  # type: ignore[index]
        except (KeyError, IndexError):
            return False
    return True


def masked(settings: BaseModel, way: Way, value: Any) -> Any:
    """The value, or a mask where it is secret; names and passwords are cut out of addresses."""
    if value is None:
        return None
    found = field_at(settings, way)
    if found is not None and MASKED in _metadata(found):
        return MASK
    return USER_INFO.sub(f"//{MASK}@", value) if isinstance(value, str) else value


def _metadata(field: Any) -> list[Any]:
    text = [item for item in field.metadata if isinstance(item, str)]
    for option in getattr(field.annotation, "__args__", ()):
        text += [item for item in getattr(option, "__metadata__", ()) if isinstance(item, str)]
    return text


def show_text(configuration: Configuration) -> str:
    """One setting a line, aligned, with its origin as a comment."""
    rows = [(setting.path, json.dumps(setting.value, ensure_ascii=False), setting.origin)
            for setting in settings_shown(configuration)]  # fmt: skip
    width = max((len(f"{path}: {value}") for path, value, _ in rows), default=0)
    return "\n".join(f"{path + ': ' + value:<{min(width, 60)}}  # {origin}" for path, value, origin in rows)


def show_json(configuration: Configuration) -> list[dict[str, Any]]:
    return [{"setting": one.path, "value": one.value, "origin": one.origin} for one in settings_shown(configuration)]
