"""Recognises the processes of an SGLang server by their command lines and titles.

Titles as setproctitle writes them: `sglang::scheduler` with `_DP0`, `_PP0`, `_TP3`, `_EP3` for each size above one,
`sglang::detokenizer`, `sglang::data_parallel_controller` and others. The launcher keeps its command line.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_RANKS: Final = re.compile(r"_((?:DP|PP|ATTN_CP|MOE_DP|TP|EP)\d+)")


@dataclass(frozen=True, slots=True)
class Title:
    """What a process is: role as in ProcessSeen, rank as the log prints it ("DP0 TP3")."""

    role: str
    rank: str = ""


def title_of(arguments: Sequence[str]) -> Title | None:
    """Return what a command line says, None if it is none of SGLang's.

    Shells and wrappers that carry a launch command as text (`bash -c "python -m sglang.launch_server"`) are not the server.
    """
    if not arguments:
        return None
    title = arguments[0].split(" ")[0]
    if title.startswith("sglang::"):
        return _of_child(title.removeprefix("sglang::"))
    return Title("launcher") if launch_arguments(arguments) is not None else None


def _of_child(name: str) -> Title:
    role = next((each for each in ("scheduler", "detokenizer") if name.startswith(each)), "other")
    return Title(role, " ".join(_RANKS.findall(name)))


def launch_arguments(arguments: Sequence[str]) -> tuple[str, ...] | None:
    """Return the flags of a launch command, None if this is no launcher: `python -m sglang.launch_server`, `sglang serve`, a script."""
    program = os.path.basename(arguments[0])
    rest = tuple(arguments[1:])
    if not program.startswith(("python", "pypy")):
        return rest[1:] if program == "sglang" and rest[:1] == ("serve",) else None
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        rest = rest[1:]  # options of the interpreter
    if rest[:2] == ("-m", "sglang.launch_server"):
        return rest[2:]
    if not rest or rest[0] == "-m":
        return None
    script = os.path.basename(rest[0])
    if script == "sglang" and rest[1:2] == ("serve",):
        return rest[2:]
    return rest[1:] if script == "launch_server.py" else None
