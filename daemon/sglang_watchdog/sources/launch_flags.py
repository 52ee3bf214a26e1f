"""Turns a launch command into facts. Only what was given is known: defaults and what SGLang resolves are not."""

import json
from collections.abc import Mapping, Sequence

from ..model.observation import Json
from ..parse.redact import is_secret_name, is_secret_option, is_secret_record, redact


def facts_of_flags(flags: Sequence[str], fields: Mapping[str, str] | None = None) -> dict[str, Json]:
    """Return `args.NAME` for each flag of a launch command, secrets left out.

    `fields` names the argument of flags that are spelled otherwise ("--tp": "tp_size"); all others are their own name. Values are
    numbers or JSON where they read as such; a flag without a value is true, several values are a list.
    """
    facts: dict[str, Json] = {}
    index = 0
    while index < len(flags):
        flag, equals, value = flags[index].partition("=")
        index += 1
        if not flag.startswith("--"):
            continue
        values = [value] if equals else []
        while not equals and index < len(flags) and not _is_flag(flags[index]):
            values.append(flags[index])
            index += 1
        name = (fields or {}).get(flag, flag.removeprefix("--").replace("-", "_"))
        if not (is_secret_option(flag) or is_secret_name(name) or is_secret_record(name)):
            read = [_value(each) for each in values]
            facts[f"args.{name}"] = True if not read else read[0] if len(read) == 1 else read
    return facts


def _is_flag(text: str) -> bool:
    return text.startswith("-") and not text.lstrip("-").replace(".", "", 1).isdigit()


def _value(text: str) -> Json:
    try:
        read: Json = json.loads(text)
    except ValueError:
        return redact(text)
    return redact(text) if isinstance(read, str | dict | list) or read is None else read
