"""`sglang-watchdog signatures`: list, show, lint, test, new, matrix, catalogue."""

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from .terminal import colour


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="sglang-watchdog signatures", description="The library: look at it, check it, add to it.")
    p.add_argument("--signatures", type=Path, action="append", default=[], metavar="DIR", help="more signatures, after the built-in ones")
    commands = p.add_subparsers(dest="command", required=True, metavar="COMMAND")
    listed = commands.add_parser("list", help="all signatures, one a line")
    listed.add_argument("--topic", default="", help="only topics that begin so")
    listed.add_argument("--format", choices=("text", "json"), default="text")
    shown = commands.add_parser("show", help="one signature in full")
    shown.add_argument("id")
    linted = commands.add_parser("lint", help="check files against the schema and the rules; exit 78 on faults")
    linted.add_argument("ids", nargs="*")
    tested = commands.add_parser("test", help="play every example through the real scanner and engine")
    tested.add_argument("ids", nargs="*")
    new = commands.add_parser("new", help="a first file for a new signature")
    new.add_argument("id")
    new.add_argument("--area", required=True, help="folder: moe, crash, …")
    new.add_argument("--topic", required=True)
    new.add_argument("--kind", default="forbidden", choices=("forbidden", "expected", "missing", "rate", "telemetry", "correlation"))
    new.add_argument("--into", type=Path, metavar="DIR", help="folder of signatures (default: the library's own)")
    matrix = commands.add_parser("matrix", help="signature by release: present, absent, reworded")
    matrix.add_argument("--check", action="store_true", help="compare the committed table with the files; needs no wheels")
    matrix.add_argument("--wheels", type=Path, nargs="+", metavar="WHEEL", help="read SGLang wheels and write the table anew")
    matrix.add_argument("--cache", type=Path, metavar="DIR", help="where what was read of a wheel is kept")
    lock = commands.add_parser("lock", help="write revisions.lock and the table in signatures/README.md")
    lock.add_argument("--check", action="store_true", help="say whether they are current")
    return p


def main(name: str, argv: list[str]) -> int:  # noqa: ARG001 - one signature for all commands
    options = parser().parse_args(argv)
    from ..library.files import default_root
    from ..library.load import load

    loaded = load(options.signatures, drafts=options.command in ("lint", "test", "show"))
    actions = {"list": _list, "show": _show, "lint": _lint, "test": _test, "new": _new, "matrix": _matrix, "lock": _lock}
    return actions[options.command](options, loaded, default_root())


def _list(options, loaded, root) -> int:  # type: ignore[no-untyped-def]  # noqa: ARG001
    files = sorted((f for f in loaded.files if f.body.topic.startswith(options.topic)), key=lambda f: (f.body.topic, f.body.id))
    if options.format == "json":
        from ..sinks.encode import dumps, signature

        print(dumps([signature(file.signature) for file in files], indent=1))
        return 0
    for file in files:
        s = file.signature
        print(f"{s.topic:<34}{s.severity.value:<10}{s.kind.value:<12}{s.id:<52}{s.title}")
    kinds = Counter(file.signature.kind.value for file in files)
    areas = Counter(file.area for file in files)
    print(f"{len(files)} signatures on {len({f.body.topic for f in files})} topics; "
          f"{', '.join(f'{n} {k}' for k, n in sorted(kinds.items()))}; {', '.join(f'{n} {a}' for a, n in sorted(areas.items()))}",
          file=sys.stderr)  # fmt: skip
    return 0


def _show(options, loaded, root) -> int:  # type: ignore[no-untyped-def]  # noqa: ARG001
    file = next((f for f in loaded.files if f.body.id == options.id), None)
    if file is None:
        from difflib import get_close_matches

        close = get_close_matches(options.id, [f.body.id for f in loaded.files], n=1)
        print(f"there is no signature {options.id!r}{f'; did you mean {close[0]!r}?' if close else ''}", file=sys.stderr)
        return 2
    print(f"# {file.document.path}")
    print(file.path.read_text("utf-8"), end="")
    return 0


def _say(faults) -> None:  # type: ignore[no-untyped-def]
    from ..config.faults import render_all

    if faults:
        print(render_all(faults), file=sys.stderr)


def _lint(options, loaded, root) -> int:  # type: ignore[no-untyped-def]
    from ..library.catalogue import check_catalogue
    from ..library.lint import lint

    faults = lint(loaded, root=root, only=options.ids)
    if not options.ids and not options.signatures:
        faults += check_catalogue(loaded, root)
    _say(faults)
    errors = [fault for fault in faults if not fault.is_warning]
    print(f"{len(loaded.files)} signatures, {len(errors)} faults, {len(faults) - len(errors)} warnings", file=sys.stderr)
    return 78 if errors else 0


def _test(options, loaded, root) -> int:  # type: ignore[no-untyped-def]  # noqa: ARG001
    from ..library.examples import run_examples

    files = [file for file in loaded.files if not options.ids or file.body.id in options.ids]
    if not files:
        print(f"no signature called {', '.join(options.ids)}", file=sys.stderr)
        return 2
    count = 0
    is_live = sys.stderr.isatty() and colour(sys.stderr)

    def tick(signature: str, example: str) -> None:  # noqa: ARG001
        nonlocal count
        count += 1
        if is_live and count % 20 == 0:
            print(f"\r{count} examples", end="", file=sys.stderr)

    faults = [*loaded.errors, *run_examples(loaded.library, files, flag_runner=_flag_runner(loaded), on_example=tick)]
    _say(faults)
    print(f"{count} examples of {len(files)} signatures, {len(faults)} do not hold", file=sys.stderr)
    return 1 if any(not fault.is_warning for fault in faults) else 0


def _flag_runner(loaded: Any) -> Any:  # noqa: ARG001
    return None


def _new(options, loaded, root) -> int:  # type: ignore[no-untyped-def]
    from ..library.new import new_signature, write_new
    from ..model.words import Kind

    if options.topic not in loaded.library.topics:
        print(f"there is no topic {options.topic!r}; see signatures/topics.yaml", file=sys.stderr)
        return 2
    text = new_signature(options.id, Kind(options.kind), options.topic, loaded.library.releases)
    try:
        path = write_new(options.into or root, options.area, options.id, text)
    except (OSError, ValueError) as error:
        print(f"signatures new: {error}", file=sys.stderr)
        return 4
    print(path)
    print(f"Fill it in, then: sglang-watchdog signatures lint {options.id}, and signatures test {options.id}", file=sys.stderr)
    return 0


def _matrix(options, loaded, root) -> int:  # type: ignore[no-untyped-def]
    from ..library import matrix

    if options.wheels:
        faults = matrix.make(loaded, root, options.wheels, options.cache)
    elif options.check:
        faults = matrix.check(loaded, root)
    else:
        print("give --check, or --wheels sglang-0.5.24-py3-none-any.whl …", file=sys.stderr)
        return 2
    _say(faults)
    errors = [fault for fault in faults if not fault.is_warning]
    rows, releases, _ = matrix.read(root)
    print(f"{len(rows)} patterns by {len(releases)} releases, {len(errors)} faults, {len(faults) - len(errors)} warnings", file=sys.stderr)
    return 78 if errors else 0


def _lock(options, loaded, root) -> int:  # type: ignore[no-untyped-def]
    from ..library.catalogue import README, catalogue, with_catalogue
    from ..library.lock import NAME, lock_text, read_lock

    before, _ = read_lock(root)
    readme = root / README
    wanted = {root / NAME: lock_text(loaded.files, before), readme: with_catalogue(readme.read_text("utf-8"), catalogue(loaded))}
    stale = [path for path, text in wanted.items() if not path.is_file() or path.read_text("utf-8") != text]
    for path in stale:
        print(f"{path.name} {'is stale' if options.check else 'written'}", file=sys.stderr)
        if not options.check:
            path.write_text(wanted[path], "utf-8")
    return 78 if stale and options.check else 0
