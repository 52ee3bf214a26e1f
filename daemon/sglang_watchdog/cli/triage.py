"""`sglang-watchdog triage`."""

import argparse
import sys
from pathlib import Path

from .terminal import colour


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="sglang-watchdog triage",
        usage="sglang-watchdog triage [options] -- LAUNCH COMMAND OR FLAGS",
        description="What each flag of a launch command does on this release, model and GPU: acts, is dead, redundant, "
        "overridden, refused, or cannot be told. Nothing is started.",
        epilog="Exit codes: 0 every flag acts and the server starts, 1 a flag does nothing or the start would fail, 2 usage, 4 failure.",
    )
    p.add_argument(
        "--sglang",
        metavar="RELEASE",
        default="",
        help="release, such as 0.5.12 (default: the installed one, else all that were read)",
    )
    p.add_argument("--gpu", metavar="NAME", default="", help='product, such as "RTX PRO 6000" or H200 (default: the first GPU here)')
    p.add_argument("--gpu-memory-gib", type=float, metavar="N", help="memory of one GPU, where the name does not tell it")
    p.add_argument("--gpu-count", type=int, metavar="N", help="GPUs of one machine (default: those here, unless --gpu names others)")
    p.add_argument("--model-config", type=Path, metavar="FILE", help="the model's config.json (default: the model folder's, if it is here)")
    p.add_argument("--model", metavar="NAME", default="", help="name of the model, such as zai-org/GLM-5, where the path does not tell it")
    p.add_argument("--format", choices=("text", "json", "markdown"), default="text")
    p.add_argument("command", nargs="*", metavar="COMMAND", help="the launch command, after --")
    return p


def run_triage(argv: list[str]) -> int:
    """Judge a launch command and print the table; see --help for the exit codes."""
    own, words = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    p = parser()
    options = p.parse_args(own)
    words = [*options.command, *words]
    if not words:
        p.error("give the launch command after --, such as: triage --sglang 0.5.12 -- python -m sglang.launch_server --model-path …")
    from ..triage.gpu_facts import find_gpu
    from ..triage.hardware import installed_sglang, local_gpu, local_gpu_count
    from ..triage.knowledge import BrokenKnowledge, load_knowledge
    from ..triage.report import to_json, to_markdown, to_text
    from ..triage.run import Request, UsageError, triage

    name, memory = (options.gpu, options.gpu_memory_gib) if options.gpu or options.gpu_memory_gib else local_gpu()
    count = options.gpu_count if options.gpu_count is not None or options.gpu or options.gpu_memory_gib else local_gpu_count()
    try:
        knowledge = load_knowledge()
        if name and not options.gpu and find_gpu(name, knowledge.gpus) is None:
            # Seen here, not asked for: no reason to refuse the rest.
            print(f"sglang-watchdog triage: the GPU here, {name!r}, is not in the library: what depends on it stays unknown", file=sys.stderr)
            name = ""
        told = triage(
            knowledge,
            Request(
                words=words,
                release=options.sglang,
                installed=installed_sglang(),
                gpu=name,
                gpu_memory_gib=memory,
                gpu_count=count,
                model_config=options.model_config,
                model=options.model,
            ),
        )
    except UsageError as error:
        print(f"sglang-watchdog triage: {error}", file=sys.stderr)
        return 2
    except BrokenKnowledge as error:
        print(f"sglang-watchdog triage: {error}", file=sys.stderr)
        return 4
    match options.format:
        case "json":
            sys.stdout.write(to_json(told))
        case "markdown":
            sys.stdout.write(to_markdown(told))
        case _:
            sys.stdout.write(to_text(told, colour=colour(sys.stdout)))
    return told.exit_code


def main(name: str, argv: list[str]) -> int:  # noqa: ARG001 - one signature for all commands
    return run_triage(argv)
