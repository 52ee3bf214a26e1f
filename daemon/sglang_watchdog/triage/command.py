"""Reads a launch command as a shell and SGLang's start do: the words, the environment, the options and their values.

Real commands come from shells, containers, compose files and process lists. Whatever stands around the server's own
command (`docker run …`, `VAR=x`, `bash -c "…"`, a pipe behind it) is told apart from its arguments here; what the
arguments mean for one release is `options`' business.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_CONTINUED = re.compile(r"[\\^`][ \t]*\r?\n")  # sh, cmd.exe, PowerShell
_STOPS = re.compile(r"[|&;<>()]+")
_DESCRIPTOR = re.compile(r"(?<=\s)[0-9](?=>)")  # the 2 of `2>&1` is no argument; the lexer would make it one
_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "/bin/bash", "/bin/sh", "/usr/bin/bash"})
_SECRET_VARIABLE = re.compile(r"(?i)(?:^|_)(?:key|secret|passw\w*|credentials?|token|pat)$")
_SECRET_FIELD = re.compile(r"(?i)(?:^|_)(?:key|secret|passw\w*|credentials?|(?:auth|access|bearer|hf)_token)$")
_SECRET_WHOLE = frozenset({"hicache_storage_backend_extra_config", "model_loader_extra_config"})
MASK = "***"
ROUTER = "python -m sglang_router.launch_server"


class NotACommand(ValueError):
    """The text cannot be split as a shell would: an open quote, or no server's command in it."""


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """What starts the server: its launcher, the arguments behind it, the variables set for it."""

    launcher: str  # "python -m sglang.launch_server", "sglang serve", "" for bare flags
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = field(default=(), compare=False)  # the words before the launcher: docker run …, numactl …


def split_words(text: str) -> list[str]:
    """Split as a POSIX shell; continued lines are joined, comments dropped, operators stand alone.

    Raises:
        NotACommand: a quote is left open.
    """
    joined = _DESCRIPTOR.sub("", _CONTINUED.sub(" ", text.strip()))
    if joined.startswith("["):
        listed = _json_words(joined)
        if listed is not None:
            return listed
    lexer = shlex.shlex(joined, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError as error:
        raise NotACommand(f"cannot split the command as a shell would: {error}; is a quote left open?") from error
    return _without_comments(words)


def _json_words(text: str) -> list[str] | None:
    """`["python3", "-m", …]`, the exec form of container files."""
    try:
        listed = json.loads(text)
    except ValueError:
        return None
    return [str(item) for item in listed] if isinstance(listed, list) else None


def _without_comments(words: list[str]) -> list[str]:
    """A word that begins with # ends what we read; a shell would end the line, and our lines are joined already."""
    for index, word in enumerate(words):
        if word.startswith("#"):
            return words[:index]
    return words


def read_command(source: str | Sequence[str]) -> LaunchCommand:
    """Find the server's command in a text or in words that a shell has split already. Bare flags are taken as they are.

    Raises:
        NotACommand: open quotes, or words that neither launch SGLang nor are flags.
    """
    words = split_words(source) if isinstance(source, str) else list(source)
    if not isinstance(source, str) and len(words) == 1 and any(mark in words[0] for mark in " \n"):
        words = split_words(words[0])
    return _find(words, {})


def _find(words: list[str], environment: dict[str, str]) -> LaunchCommand:
    for index, word in enumerate(words):
        if word in _SHELLS and "-c" in words[index + 1 : index + 4]:
            script = words[words.index("-c", index) + 1 :][:1]
            if script and "sglang" in script[0]:
                inner = _find(split_words(script[0]), {**environment, **_variables(words[:index])})
                return replace(inner, before=(*words[:index], *inner.before))
        launcher, length = _launcher_at(words, index)
        if launcher:
            variables = {**environment, **_variables(words[:index])}
            return LaunchCommand(launcher, tuple(_until_stop(words[index + length :])), variables, tuple(words[:index]))
    rest = [word for word in words if not _ASSIGNMENT.fullmatch(word) or word.startswith("-")]
    if rest and rest[0].startswith("-"):
        return LaunchCommand("", tuple(_until_stop(rest)), {**environment, **_variables(words[: len(words) - len(rest)])})
    raise NotACommand(
        "neither a command that starts SGLang (python -m sglang.launch_server …, sglang serve …) nor flags: " + (" ".join(words[:6]) or "nothing given")
    )


def _launcher_at(words: list[str], index: int) -> tuple[str, int]:
    """The launcher that begins at `index` and how many words it takes."""
    word, rest = words[index], words[index + 1 :]
    if word == "-m" and rest[:1] in (["sglang.launch_server"], ["sglang_router.launch_server"]):
        return f"python -m {rest[0]}", 2
    if word == "-m" and rest[:2] in (["sglang.cli.main", "serve"], ["sglang.cli", "serve"]):
        return "sglang serve", 3
    name = word.rsplit("/", 1)[-1]
    if name == "sglang" and rest[:1] == ["serve"]:
        return "sglang serve", 2
    if name == "launch_server.py" or word in ("sglang.launch_server", "sglang::launch_server"):
        return "python -m sglang.launch_server", 1
    return "", 0


def _until_stop(words: list[str]) -> list[str]:
    """The arguments up to a pipe, a redirection or the next command."""
    for index, word in enumerate(words):
        if _STOPS.fullmatch(word):
            return words[:index]
    return words


def _variables(words: list[str]) -> dict[str, str]:
    """`VAR=x`, `export VAR=x`, and docker's `-e VAR=x`, `--env=VAR=x` before the launcher."""
    found: dict[str, str] = {}
    for word in words:
        text = word.split("=", 1)[1] if word.startswith(("--env=", "-e=")) else word
        if _ASSIGNMENT.fullmatch(text) and not text.startswith("-"):
            name, _, value = text.partition("=")
            found[name] = MASK if _SECRET_VARIABLE.search(name) else value
    return found


def is_secret(field_name: str) -> bool:
    """Whether the field holds a credential by its name, or may hold one inside."""
    return bool(_SECRET_FIELD.search(field_name)) or field_name in _SECRET_WHOLE


def mask_words(words: Sequence[str]) -> str:
    """The command as it may be shown: values of secret options replaced."""
    shown: list[str] = []
    hide_next = False
    for word in words:
        name, equals, _ = word.partition("=")
        if hide_next and not word.startswith("--"):
            shown.append(MASK)
            hide_next = False
            continue
        hide_next = word.startswith("--") and is_secret(name.lstrip("-").replace("-", "_"))
        if hide_next and equals:
            shown.append(f"{name}={MASK}")
            hide_next = False
        else:
            shown.append(shlex.quote(word))
    return " ".join(shown)
