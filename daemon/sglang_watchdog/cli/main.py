"""The command line: finds the command and imports only what that command needs."""

import errno
import importlib
import os
import sys
from collections.abc import Mapping
from typing import Final

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "run": ("run", "watch servers: tail logs, sample GPUs, serve the API and metrics"),
    "check": ("check", "judge log files, with a telemetry recording if there is one"),
    "triage": ("triage", "what each flag of a launch command does on this release, model and GPU"),
    "explain": ("explain", "a finding or signature in full: what, why, what to do"),
    "findings": ("ask", "ask the running daemon for findings"),
    "runs": ("ask", "ask the running daemon for runs"),
    "gpus": ("ask", "ask the running daemon for GPUs"),
    "coverage": ("ask", "ask the running daemon what it could judge and what not"),
    "sources": ("ask", "ask the running daemon what it reads"),
    "compare": ("compare", "two runs side by side: arguments, release, speed, findings"),
    "signatures": ("signatures", "list, show, lint, test, new, matrix"),
    "replay": ("replay", "play a capture (log and samples) into files, as if it happened now"),
    "config": ("config", "check, show, schema, token"),
    "doctor": ("doctor", "what can be seen from here, what not, and how to mend it"),
}


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    code = 0
    try:
        code = _code_of(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has enough. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"sglang-watchdog: the output cannot be written: {error.strerror}; free space or write it elsewhere", file=sys.stderr)
        return 4
    return code


def _code_of(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help())
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        print(f"sglang-watchdog {version()}")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        print(f"sglang-watchdog: there is no command {name!r}.{_nearest(name)} See sglang-watchdog --help.", file=sys.stderr)
        return 2
    module = importlib.import_module(f".{COMMANDS[name][0]}", __package__)
    try:
        return int(module.main(name, arguments[1:]))
    except SystemExit as end:  # argparse: help was printed, or the command line is wrong
        return int(end.code or 0)


def version() -> str:
    from ..config.about import version as installed

    return installed()


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [
        "usage: sglang-watchdog COMMAND …",
        "",
        "Tells, with proof, which code path an SGLang server is on and what holds it back.",
        "",
    ]
    lines += [f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    lines += [
        "",
        "sglang-watchdog COMMAND --help tells more.",
        "Exit codes: 0 nothing at or above --fail-on, 1 findings, 2 usage, 3 no SGLang record or an unreadable log, 4 failure, 78 bad configuration.",
    ]
    return "\n".join(lines)


def _nearest(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, COMMANDS, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


if __name__ == "__main__":
    sys.exit(main())
