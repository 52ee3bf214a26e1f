"""`sglang-watchdog signatures`: list, stats, show, lint, test, new, matrix, lock."""

import argparse
import re
import sys
from collections import Counter
from dataclasses import replace
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
    commands.add_parser("stats", help="how many signatures by area, kind, severity and topic, and topics without any")
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
    new.add_argument("--into", type=Path, metavar="DIR", help="folder of signatures (default: that of --signatures, else the checkout's own)")
    matrix = commands.add_parser("matrix", help="signature by release: present, absent, reworded")
    matrix.add_argument("--check", action="store_true", help="compare the committed table with the files; needs no wheels")
    matrix.add_argument("--wheels", type=Path, nargs="+", metavar="WHEEL", help="read SGLang wheels and write the table anew")
    matrix.add_argument("--cache", type=Path, metavar="DIR", help="where what was read of a wheel is kept")
    lock = commands.add_parser("lock", help="write revisions.lock and the table in README.md, of --signatures DIR or of the checkout")
    lock.add_argument("--check", action="store_true", help="say whether they are current")
    return p


def main(name: str, argv: list[str]) -> int:  # noqa: ARG001 - one signature for all commands
    options = parser().parse_args(argv)
    from ..library.files import default_root
    from ..library.load import load

    loaded = load(options.signatures, drafts=options.command in ("lint", "test", "show"))
    known = {file.body.id for file in loaded.files} | {Path(fault.path).stem for fault in loaded.errors}
    missing = [one for one in getattr(options, "ids", ()) if one not in known]
    if missing:
        print("\n".join(_no_signature(one, loaded) for one in missing), file=sys.stderr)
        return 2
    actions = {"list": _list, "stats": _stats, "show": _show, "lint": _lint, "test": _test, "new": _new, "matrix": _matrix, "lock": _lock}
    return actions[options.command](options, loaded, default_root())


def _no_signature(name: str, loaded: Any) -> str:
    from ..config.faults import nearest

    hint = nearest(name, [file.body.id for file in loaded.files]) or "`sglang-watchdog signatures list` shows all."
    return f"there is no signature `{name}`. {hint}"


def _own_root(options: argparse.Namespace, root: Path) -> Path | None:
    """The folder that may be written: the one named last, else the checkout's; None in an installed package."""
    if options.signatures:
        return Path(options.signatures[-1])
    from ..library.files import is_installed

    return None if is_installed(root) else root


def _ask_for_folder(command: str) -> int:
    print(f"signatures {command}: the built-in signatures are part of the installed package and stay as they are; "
          f"name a folder of your own: sglang-watchdog signatures --signatures /etc/sglang-watchdog/signatures.d {command} …",
          file=sys.stderr)  # fmt: skip
    return 2


def _list(options, loaded, root) -> int:  # type: ignore[no-untyped-def]  # noqa: ARG001
    files = sorted((f for f in loaded.files if f.body.topic.startswith(options.topic)), key=lambda f: (f.body.topic, f.body.id))
    if options.format == "json":
        from ..sinks.encode import dumps, signature

        print(dumps([signature(file.signature) for file in files], indent=1))
        return 0
    for file in files:
        s = file.signature
        print(f"{s.topic:<34}{s.severity.value:<10}{s.kind.value:<12}{s.id:<52}{s.title}")
    print(f"{len(files)} signatures on {len({f.body.topic for f in files})} topics; `signatures stats` counts them", file=sys.stderr)
    return 0


def _stats(options, loaded, root) -> int:  # type: ignore[no-untyped-def]  # noqa: ARG001
    from ..library.catalogue import topics_without

    files = [file for file in loaded.files if file.body.status != "retired"]
    print(f"{len(files)} signatures on {len({file.body.topic for file in files})} of {len(loaded.library.topics)} topics, "
          f"{sum(len(file.patterns) for file in files)} patterns, {sum(len(file.body.examples) for file in files)} examples")  # fmt: skip
    counts = {
        "kind": Counter(file.signature.kind.value for file in files),
        "severity": Counter(file.signature.severity.value for file in files),
        "status": Counter(file.signature.status.value for file in files),
        "area": Counter(file.area for file in files),
        "topic": Counter(file.body.topic for file in files),
    }
    for title, counter in counts.items():
        print(f"\nby {title}")
        for name, count in sorted(counter.items()):
            print(f"{count:>5}  {name}")
    print(f"\nTopics without a signature: {', '.join(topics_without(loaded)) or 'none'}")
    return 0


def _show(options, loaded, root) -> int:  # type: ignore[no-untyped-def]  # noqa: ARG001
    file = next((f for f in loaded.files if f.body.id == options.id), None)
    if file is None:
        print(_no_signature(options.id, loaded), file=sys.stderr)
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
    from ..config.faults import nearest
    from ..library.new import new_signature, write_new
    from ..model.words import Kind

    target = options.into or _own_root(options, root)
    if target is None:
        return _ask_for_folder("new")
    if options.topic not in loaded.library.topics:
        print(f"there is no topic `{options.topic}`. {nearest(options.topic, loaded.library.topics) or 'See signatures/topics.yaml.'}",
              file=sys.stderr)  # fmt: skip
        return 2
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", options.id):
        print(f"`{options.id}` is no id: lower-case words joined by hyphens, as in moe-default-config", file=sys.stderr)
        return 2
    text = new_signature(options.id, Kind(options.kind), options.topic, loaded.library.releases)
    try:
        path = write_new(target, options.area, options.id, text)
    except (OSError, ValueError) as error:
        print(f"signatures new: {error}", file=sys.stderr)
        return 4
    print(path)
    own = f" --signatures {target}" if options.into or options.signatures else ""
    print(f"Fill it in, then: sglang-watchdog signatures{own} lint {options.id}, and signatures{own} test {options.id}", file=sys.stderr)
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
    from ..library.catalogue import BEGIN, README, catalogue, with_catalogue
    from ..library.lock import NAME, lock_text, read_lock

    target = _own_root(options, root)
    if target is None:
        return _ask_for_folder("lock")
    if not target.is_dir():
        print(f"signatures lock: {target} is no folder of signatures", file=sys.stderr)
        return 2
    inside = replace(loaded, files=tuple(file for file in loaded.files if file.root == target))
    before, _ = read_lock(target)
    wanted = {target / NAME: lock_text(inside.files, before)}
    readme = target / README
    if target == root or (readme.is_file() and BEGIN in readme.read_text("utf-8")):
        wanted[readme] = with_catalogue(readme.read_text("utf-8"), catalogue(inside))
    stale = [path for path, text in wanted.items() if not path.is_file() or path.read_text("utf-8") != text]
    for path in stale:
        print(f"{path} {'is stale' if options.check else 'written'}", file=sys.stderr)
        if not options.check:
            path.write_text(wanted[path], "utf-8")
    return 78 if stale and options.check else 0
