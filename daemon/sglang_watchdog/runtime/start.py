"""From the command line to a running daemon: plan, tokens, log, event loop."""

import argparse
import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from ..config.about import version
from ..model.finding import Change, FindingChanged, LineEvidence
from ..model.words import State
from ..parse.zone import UnknownZone, Zone
from ..sinks.web.security import OpenBindRefused
from ..sinks.web.tokens import TokenScope, TokenStore, make
from . import logging
from .daemon import Daemon, PortTakenError
from .plan import LogPlan, Plan, ServerPlan

_PORT = 17853


class BadConfiguration(Exception):
    """The configuration cannot be used."""


class Refused(Exception):
    """The daemon cannot start here."""


def start(options: argparse.Namespace, *, is_colour: bool) -> int:
    """Run until told to stop; the exit code."""
    logging.configure(verbose=options.verbose)
    plan = plan_of(options)
    text, token = make("local", [TokenScope.WRITE])
    tokens = TokenStore([token])

    def say(address: str) -> None:
        print(f"status page  {address}", flush=True)
        print(f"write token  {text}", flush=True)
        for server in plan.servers:
            print(f"watching     {server.name}: {', '.join(one.where for one in server.logs)}", flush=True)

    try:
        daemon = Daemon(plan, version(), tokens=tokens, say=say, on_changes=printer(is_colour) if options.print_findings else None)
        asyncio.run(daemon.run())
    except OpenBindRefused as fault:
        raise Refused(str(fault)) from None
    except PortTakenError as fault:
        raise Refused(f"{fault}; choose another with --listen, or --next-free-port") from None
    return 0


def plan_of(options: argparse.Namespace) -> Plan:
    """The plan that the command line and the configuration files describe."""
    host, port = _listen(options.listen)
    zone = _zone(options.timezone)
    logs = tuple(LogPlan(name=_name(where), where=_absolute(where)) for where in options.logs)
    return Plan(
        servers=(ServerPlan(name="sglang", logs=logs, zone=zone),) if logs else (),
        telemetry=options.telemetry or "none",
        host=host,
        port=port,
        port_may_move=options.next_free_port,
        clock=options.clock or "wall",
        state_dir=_state_dir(options.state_dir),
        signatures=tuple(options.signatures),
        record=options.record,
    )


def _absolute(where: str) -> str:
    return where if where == "-" or ":" in where else str(Path(where).absolute())


def _name(where: str) -> str:
    return "stdin" if where == "-" else Path(where).name


def _zone(text: str | None) -> Zone | None:
    if text is None:
        return None
    try:
        return Zone.named(text)
    except UnknownZone as fault:
        raise BadConfiguration(f"--timezone: {fault}") from None


def _listen(text: str | None) -> tuple[str, int]:
    if text is None:
        return "127.0.0.1", _PORT
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise BadConfiguration(f"--listen {text}: write it like 127.0.0.1:17853 or [::1]:17853")
    return host.strip("[]") or "127.0.0.1", int(port)


def _state_dir(text: str | None) -> Path | None:
    if text == "none":
        return None
    if text is not None:
        return Path(text)
    systemd = os.environ.get("STATE_DIRECTORY")
    if systemd:
        return Path(systemd.split(":")[0])
    return None


def printer(is_colour: bool) -> Callable[[list[Change]], None]:
    """Prints findings as they come: state, severity, title, the first evidence."""
    codes = {"critical": "31;1", "warning": "33;1", "info": "36"}

    def show(changes: list[Change]) -> None:
        for change in changes:
            if not isinstance(change, FindingChanged) or change.was is change.finding.state:
                continue
            finding = change.finding
            word = f"{finding.state.value:<9}{finding.severity.value.upper():<9}"
            if is_colour:
                word = f"\x1b[{codes[finding.severity.value]}m{word}\x1b[0m"
            lines = [f"{word}{finding.title}", f"{'':18}{finding.summary}"]
            quoted = [item for item in finding.evidence if isinstance(item, LineEvidence)]
            if finding.state is State.FIRING and quoted:
                lines.append(f"{'':18}{quoted[0].source}:{quoted[0].line}: {quoted[0].text[:140]}")
            print("\n".join(lines), flush=True)

    return show

