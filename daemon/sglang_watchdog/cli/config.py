"""`sglang-watchdog config`: check, show, schema, token."""

import argparse
import json
import os
import re
import sys
from pathlib import Path

DEFAULT = Path("/etc/sglang-watchdog/watchdog.yaml")


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="sglang-watchdog config", description="Check and show the configuration; exit 78 if it is bad.")
    commands = p.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (("check", "every fault at once, with file, line and column"), ("show", "what is in force, and who set it")):
        command = commands.add_parser(name, help=text)
        command.add_argument("files", nargs="*", type=Path, metavar="FILE", help=f"default {DEFAULT} and its conf.d; later ones win")
        command.add_argument("--config", type=Path, action="append", default=[], metavar="F", help="the same, as for run")
        command.add_argument("--format", choices=("text", "json"), default="text")
        if name == "check":
            command.add_argument("--strict", action="store_true", help="refuse also what only a reload refuses: faults in your own signatures")
    commands.add_parser("schema", help="JSON Schema, for editors")
    token = commands.add_parser("token", help="a new API token: the secret to stderr, its entry for the configuration to stdout")
    token.add_argument("name", metavar="NAME", help="who holds it: letters, digits, . _ -")
    token.add_argument("--scope", choices=("read", "write"), default="read", help="write includes reading (default read)")
    return p


def files_of(named: list[Path]) -> list[Path]:
    """The files to read: those named, else the default with its conf.d if it is there."""
    from ..config.layers import configuration_files

    if named:
        return [file for path in named for file in configuration_files(path)]
    return configuration_files(DEFAULT) if DEFAULT.is_file() else []


def main(name: str, argv: list[str]) -> int:  # noqa: ARG001 - one signature for all commands
    options = parser().parse_args(argv)
    if options.command == "schema":
        from ..config.settings import json_schema

        print(json.dumps(json_schema(), indent=1))
        return 0
    if options.command == "token":
        return _token(options.name, options.scope)
    from ..config.faults import render_all
    from ..config.layers import configure
    from ..config.show import show_json, show_text

    files = files_of([*options.files, *options.config])
    configuration = configure(files, os.environ)
    if configuration.faults:
        print(render_all(configuration.faults), file=sys.stderr)
    if configuration.settings is None:
        return 78
    if options.command == "show":
        print(json.dumps(show_json(configuration), indent=1) if options.format == "json" else show_text(configuration))
        return 0
    from ..runtime.preflight import doubts
    from ..runtime.prepare import BadConfiguration, prepare

    try:
        prepared = prepare(configuration)
    except BadConfiguration as fault:
        print(str(fault).strip("\n"), file=sys.stderr)
        return 78
    for doubt in doubts(prepared.plan):
        print(f"note: {doubt}", file=sys.stderr)
    signatures = _signatures(prepared.settings.signatures.paths)
    read = ", ".join(map(str, files)) or "no file: defaults and environment"
    but = f", but {signatures} faults in signatures: a start leaves those out, a reload is refused" if signatures else ""
    print(f"{read}: good{but}", file=sys.stderr)
    return 78 if signatures and options.strict else 0


def _token(name: str, scope: str) -> int:
    from ..sinks.web.tokens import TokenScope, make

    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        print(f"sglang-watchdog config token: {name!r}: a name is 1 to 64 letters, digits, `.`, `_` and `-`", file=sys.stderr)
        return 2
    text, token = make(name, [TokenScope(scope)])
    print(f"The token, shown this once and kept nowhere: {text}\nThe line below goes under `auth: tokens:` of the configuration.", file=sys.stderr)
    print(f"- {{name: {name}, scope: {scope}, sha256: {token.digest}}}")
    return 0


def _signatures(paths: list[str]) -> int:
    from ..config.faults import render_all
    from ..library.load import load

    errors = load([Path(path) for path in paths]).errors
    if errors:
        print(render_all(errors), file=sys.stderr)
    return len(errors)
