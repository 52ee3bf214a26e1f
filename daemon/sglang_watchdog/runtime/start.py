"""From the command line to a running daemon: settings, plan, tokens, log, event loop."""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import structlog

from ..config.about import version
from ..config.faults import Fault
from ..config.layers import configuration_files
from ..config.places import scheme_of
from ..config.settings import Settings
from ..engine.settings import FlagJudge
from ..model.signature import Library
from ..model.words import State
from ..parse.zone import UnknownZone, Zone
from ..sinks.ledger_reads import FindingFilter
from ..sinks.web.tokens import Token, TokenScope, TokenStore, make
from . import logging
from .daemon import Daemon, PortTakenError
from .discovery import discover
from .lock import AlreadyWatched, state_lock
from .plan import Plan, ServerPlan
from .planning import log_plans
from .preflight import doubts
from .prepare import BadConfiguration, Layers, prepare
from .printing import Printer
from .reload import Configured

log = structlog.get_logger()

DEFAULT_CONFIG: Final = Path("/etc/sglang-watchdog/watchdog.yaml")


class Refused(Exception):
    """The daemon cannot start here."""


def start(options: argparse.Namespace, *, is_colour: bool, flags: Callable[[Library], FlagJudge] | None = None) -> int:
    """Run until told to stop; the exit code."""
    logging.configure("debug" if options.verbose else "info")
    layers, zone = _layers(options), _zone(options.timezone)
    prepared = prepare(layers.read(), servers=lambda settings: _servers(options, settings, zone), port_may_move=options.next_free_port)
    plan, tokens = prepared.plan, list(prepared.tokens)
    logging.configure("debug" if options.verbose else plan.log_level)
    if not plan.servers:
        raise Refused(
            "nothing to watch: no LOG, no servers in the configuration, and no SGLang server was found on this machine; "
            "`sglang-watchdog doctor` says what was looked for"
        )
    own = None
    if not tokens and plan.token_file is None:
        own, token = make("local", [TokenScope.WRITE])
        tokens = [token]
    configured = Configured(
        started_with=prepared.settings,
        read_again=lambda running: prepare(layers.read(), servers=lambda _: running.servers),
        own_token=tokens[0] if own is not None else None,
        is_verbose=options.verbose,
    )
    printer = Printer(is_colour=is_colour) if options.print_findings else None
    try:
        with state_lock(plan.state_dir):
            _run(plan, _store(tokens, plan), configured, own, printer, flags)
    except PortTakenError as fault:
        raise Refused(f"{fault}; choose another with --listen HOST:PORT, or --next-free-port") from None
    except AlreadyWatched as fault:
        raise Refused(str(fault)) from None
    return 0


def _run(
    plan: Plan, tokens: TokenStore, configured: Configured, own: str | None, printer: Printer | None,
    flags: Callable[[Library], FlagJudge] | None,
) -> None:  # fmt: skip
    say = _sayer(plan, own)

    def started(address: str) -> None:
        say(address)
        if printer is not None:
            printer.still(still)

    on_news = printer.news if printer is not None else None
    daemon = Daemon(plan, version(), tokens=tokens, configured=configured, say=started, on_news=on_news, flags=flags)
    open_ones = FindingFilter(state=(State.FIRING.value, State.PENDING.value), server=tuple(server.name for server in plan.servers))
    still = daemon.ledger.findings(open_ones, limit=10_000).items
    try:
        asyncio.run(daemon.run())
    finally:
        if printer is not None:
            printer.close()


def _sayer(plan: Plan, own: str | None) -> Callable[[str], None]:
    def say(address: str) -> None:
        # The token goes behind the #, which a browser never sends; only a person at a terminal gets to see it.
        shown = f"{address}#token={own}" if own is not None and (sys.stdout.isatty() or plan.port_may_move) else address
        print(f"status page  {shown}", flush=True)
        for server in plan.servers:
            print(f"watching     {server.name}: {', '.join(one.where for one in server.logs)}", flush=True)
        for doubt in doubts(plan):
            print(f"note         {doubt}", file=sys.stderr, flush=True)

    return say


def _store(tokens: list[Token], plan: Plan) -> TokenStore:
    return TokenStore(tokens, file=plan.token_file, on_fault=lambda text: log.error("token file", part="auth", error=text))


def _layers(options: argparse.Namespace) -> Layers:
    """Defaults, files, environment, flags."""
    named = options.config or ([DEFAULT_CONFIG] if DEFAULT_CONFIG.is_file() and not options.logs else [])
    flags: dict[str, tuple[tuple[str | int, ...], Any]] = {}
    if options.telemetry:
        flags["--telemetry"] = (("telemetry",), options.telemetry)
    elif options.logs and not named:
        flags["--telemetry"] = (("telemetry",), "nvml")
    if options.listen:
        flags["--listen"] = (("listen",), options.listen)
    if options.clock:
        flags["--clock"] = (("clock",), options.clock)
    if options.signatures:
        flags["--signatures"] = (("signatures", "paths"), [str(path) for path in options.signatures])
    if options.record:
        flags["--record"] = (("telemetry", "record"), str(options.record))
    state = _state_dir(options, named=bool(named))
    if state is not None:
        flags["--state-dir"] = (("state_dir",), state)
    return Layers(
        files=lambda: [file for path in named for file in configuration_files(path)], environment=dict(os.environ), flags=flags
    )


def _state_dir(options: argparse.Namespace, *, named: bool) -> str | None:
    """What the flag says; under systemd its state folder; without a configuration nothing is kept, unless asked."""
    if options.state_dir is not None:
        return str(options.state_dir)
    systemd = os.environ.get("STATE_DIRECTORY")
    if systemd:
        return systemd.split(":")[0]
    return None if named else "none"


def _servers(options: argparse.Namespace, settings: Settings, zone: Zone | None) -> tuple[ServerPlan, ...]:
    """The logs of the command line as one server; without any, the servers that run here."""
    if options.logs:
        places = [where if where == "-" or scheme_of(where) else str(Path(where).absolute()) for where in options.logs]
        return (ServerPlan(name="sglang", logs=log_plans("sglang", places, alone=True), zone=zone),)
    if settings.servers:
        return ()
    try:
        return discover()
    except OSError as error:
        raise Refused(f"the processes of this machine cannot be listed ({error}); mount /proc, or name the log: sglang-watchdog run LOG") from None


def _zone(text: str | None) -> Zone | None:
    if text is None:
        return None
    try:
        return Zone.named(text)
    except UnknownZone as fault:
        raise BadConfiguration([Fault(path="--timezone", message=str(fault))]) from None
