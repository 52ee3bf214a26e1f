"""`sglang-watchdog run`."""

import argparse
import sys
from pathlib import Path

from .terminal import colour


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="sglang-watchdog run",
        description="Watch SGLang servers: tail their logs, sample their GPUs, serve findings over REST and Prometheus. Without LOG and "
        "--config the servers on this machine are found by their processes.",
    )
    p.add_argument("logs", nargs="*", metavar="LOG", help="path, glob, journal:UNIT, docker:NAME, cri:GLOB, or - for standard input")
    p.add_argument("--config", type=Path, action="append", default=[], metavar="F", help="configuration file; later ones win")
    p.add_argument("--telemetry", metavar="SOURCE", help="nvml, none, or replay:FILE[.gz] (default nvml)")
    p.add_argument("--listen", metavar="HOST:PORT", help="address of API, page and metrics (default 127.0.0.1:17853)")
    p.add_argument("--clock", choices=("wall", "log"), help="wall (default), or log: time is the newest stamp, for replays")
    p.add_argument("--record", type=Path, metavar="FILE", help="write the GPU samples as a recording")
    p.add_argument("--state-dir", metavar="DIR", help="where findings are kept over restarts; `none` keeps them in memory")
    p.add_argument("--signatures", type=Path, action="append", default=[], metavar="DIR", help="more signatures")
    p.add_argument("--timezone", metavar="TZ", help="zone of the logs' stamps")
    p.add_argument("--next-free-port", action="store_true", help="if the port is taken, use the next free one and print it")
    p.add_argument("--print-findings", action="store_true", help="print findings to standard output as they come")
    p.add_argument("--verbose", action="store_true", help="say more on standard error")
    return p


def main(name: str, argv: list[str]) -> int:  # noqa: ARG001 - one signature for all commands
    p = parser()
    options = p.parse_intermixed_args(argv)  # a LOG may stand behind options too
    from ..runtime.prepare import BadConfiguration
    from ..runtime.start import Refused, start
    from ..triage.findings import flag_judge

    try:
        return start(options, is_colour=colour(sys.stdout), flags=flag_judge)
    except BadConfiguration as fault:
        print(f"sglang-watchdog run: {fault}", file=sys.stderr)
        return 78
    except Refused as fault:
        print(f"sglang-watchdog run: {fault}", file=sys.stderr)
        return 4
