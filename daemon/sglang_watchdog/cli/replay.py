"""`sglang-watchdog replay`."""

import argparse
import sys
from pathlib import Path


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="sglang-watchdog replay",
        description="Play captures (folders with server.log and nvml.jsonl, plain or .gz) into files that a running daemon tails. "
        "Several captures follow one another.",
    )
    p.add_argument("captures", nargs="+", type=Path, metavar="CAPTURE")
    p.add_argument("--into", type=Path, required=True, metavar="FILE", help="the log to write; it is appended to")
    p.add_argument("--samples-into", type=Path, metavar="FILE", help="the recording to write (default: FILE.nvml.jsonl)")
    p.add_argument("--speed", type=float, default=1.0, metavar="N", help="event seconds in one second (default 1)")
    p.add_argument("--longest-wait", type=float, default=2.0, metavar="S", help="cut longer waits to this many real seconds (default 2)")
    p.add_argument("--shift-to-now", action="store_true", help="move all times so that the first capture begins now")
    p.add_argument("--timezone", default="UTC", metavar="TZ", help="zone of the captures' stamps (default UTC)")
    return p


def main(name: str, argv: list[str]) -> int:  # noqa: ARG001 - one signature for all commands
    p = parser()
    options = p.parse_args(argv)
    if options.speed <= 0:
        p.error("--speed must be above 0")
    from ..offline.replay import Capture, NotACapture, Pace, play
    from ..parse.zone import UnknownZone, Zone

    try:
        captures = [Capture.at(path) for path in options.captures]
        zone = Zone.named(options.timezone)
    except (NotACapture, UnknownZone) as fault:
        p.error(str(fault))
    samples_into = options.samples_into or options.into.with_name(options.into.name + ".nvml.jsonl")
    try:
        lines, samples = play(
            captures,
            options.into,
            samples_into if any(capture.samples for capture in captures) else None,
            zone=zone,
            pace=Pace(speed=options.speed, longest_wait_s=options.longest_wait),
            shift_to_now=options.shift_to_now,
            say=lambda text: print(text, file=sys.stderr),
        )
    except OSError as error:
        print(f"sglang-watchdog replay: {error.filename or options.into}: {error.strerror}", file=sys.stderr)
        return 4
    print(f"{lines} lines into {options.into}, {samples} samples into {samples_into}", file=sys.stderr)
    return 0
