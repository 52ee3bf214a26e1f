"""The YAML file that `--config` names, turned into words as SGLang turns it (srt/server_args_config_parser.py)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..library.flag_declarations import DeclaredOption


@dataclass(frozen=True, slots=True)
class ConfigWords:
    """The words that stand before the command line's own. `problem` says why the file could not be used; the start fails
    with it unless `is_missing`: the file may exist where the server starts.
    """

    words: tuple[str, ...] = ()
    name: str = ""
    problem: str = ""
    is_missing: bool = False


def config_path(words: Sequence[str]) -> str:
    """The file named by `--config FILE`; SGLang looks for exactly that word, so `--config=FILE` is read but not merged."""
    for index, word in enumerate(words[:-1]):
        if word == "--config":
            return words[index + 1]
    return ""


def read_config(words: Sequence[str], options: Mapping[str, DeclaredOption], folder: Path) -> ConfigWords:
    """Read the file that the words name, if any, from `folder`."""
    name = config_path(words)
    if not name:
        return ConfigWords(problem="--config names no file") if words[-1:] in (["--config"], ("--config",)) else ConfigWords()
    if words.count("--config") > 1:
        return ConfigWords(name=name, problem="several --config are refused")
    path = folder / name
    if path.suffix.lower() not in (".yaml", ".yml"):
        return ConfigWords(name=name, problem="SGLang reads only .yaml and .yml")
    if not path.is_file():
        return ConfigWords(name=name, problem=f"{name} is not here, so the flags in it are not known", is_missing=True)
    try:
        data = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        return ConfigWords(name=name, problem=f"{name} is no YAML: {error}")
    if data is None:
        return ConfigWords(name=name)
    if not isinstance(data, dict):
        return ConfigWords(name=name, problem=f"{name} must hold a mapping of options")
    return ConfigWords(tuple(word for key, value in data.items() for word in _words(str(key), value, options)), name)


def _words(key: str, value: Any, options: Mapping[str, DeclaredOption]) -> list[str]:
    """A key becomes `--key` as it is written: an underscore stays one, and argparse then refuses it."""
    option = "--" + key
    declared = options.get("--" + key.replace("_", "-"))
    if isinstance(value, bool):
        if declared is None or declared.action == "flag":
            return [option] if value else []
        return [option, str(value).lower()]
    if isinstance(value, list):
        return [option, *map(str, value)] if value else []
    return [option, str(value)]
