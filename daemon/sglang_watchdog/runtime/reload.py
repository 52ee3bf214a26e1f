"""Reads configuration and signatures again while the daemon runs: everything is read and checked first, then taken up as a whole or
not at all."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..config.changes import changed, needing_restart
from ..config.settings import Settings
from ..library.load import Loaded, load
from ..scan.patterns import PatternSet, compile_patterns
from ..sinks.web.security import OpenBindRefused, refuse_open_bind
from ..sinks.web.serving import TlsInvalid, check_tls
from ..sinks.web.tokens import Token, TokenStore
from .plan import Plan, ServerPlan
from .prepare import BadConfiguration, Prepared


class ReloadRefused(Exception):
    """What was read cannot be used; the message says what and where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """How the daemon came by its plan."""

    started_with: Settings
    read_again: Callable[[Plan], Prepared]  # given the running plan; raises BadConfiguration
    own_token: Token | None = None  # made for a daemon without configured ones
    is_verbose: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """What a reload puts in force."""

    plan: Plan
    tokens: tuple[Token, ...]
    settings: Settings | None
    library: Loaded
    patterns: PatternSet
    changed: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()


def read(running: Plan, settings: Settings | None, configured: Configured | None) -> Fresh:
    """Read and check everything again; `settings` are those in force. Takes as long as a start; call it in a thread.

    Raises:
        ReloadRefused
    """
    plan, new = running, settings
    tokens: tuple[Token, ...] = ()
    if configured is not None:
        try:
            prepared = configured.read_again(running)
        except BadConfiguration as fault:
            raise ReloadRefused(fault.short) from fault
        plan, tokens, new = taken_up(running, prepared.plan), prepared.tokens, prepared.settings
        if not tokens and plan.token_file is None and configured.own_token is not None:
            tokens = (configured.own_token,)
        _check_what_runs(plan, tokens)
    loaded = load(plan.signatures.folders, disable=plan.signatures.disable, override=plan.signatures.override)
    if loaded.errors:
        raise ReloadRefused("; ".join(fault.render().splitlines()[0] for fault in loaded.errors[:3]))
    differs = needing_restart(changed(configured.started_with, new)) if configured is not None and new is not None else ()
    moved = changed(settings, new) if settings is not None and new is not None else ()
    return Fresh(
        plan=plan, tokens=tokens, settings=new, library=loaded, patterns=compile_patterns(loaded.library, "auto"),
        changed=tuple(name for name in moved if name not in needing_restart(moved)), needs_restart=differs,
    )  # fmt: skip


def taken_up(running: Plan, fresh: Plan) -> Plan:
    """The running plan with what can change while it runs (`config.changes.LIVE`) from the fresh one."""
    servers = {server.name: server for server in fresh.servers}
    return replace(
        running, external_url=fresh.external_url, root_path=fresh.root_path, allowed_hosts=fresh.allowed_hosts,
        reads_need_token=fresh.reads_need_token, metrics_open=fresh.metrics_open, limits=fresh.limits, token_file=fresh.token_file,
        retention=fresh.retention, signatures=fresh.signatures, notify=fresh.notify, verdict_metrics=fresh.verdict_metrics,
        log_level=fresh.log_level, servers=tuple(_server(one, servers.get(one.name)) for one in running.servers),
    )  # fmt: skip


def _server(running: ServerPlan, fresh: ServerPlan | None) -> ServerPlan:
    if fresh is None:
        return running
    judged = fresh.engine
    return replace(
        running,
        engine=replace(
            running.engine, load=judged.load, idle_after_s=judged.idle_after_s, expected_power_limit_w=judged.expected_power_limit_w
        ),
    )


def _check_what_runs(plan: Plan, tokens: tuple[Token, ...]) -> None:
    """The new configuration may be good for a start and yet not for the address that is bound now."""
    try:
        refuse_open_bind([plan.host], TokenStore(tokens, file=plan.token_file))
    except OpenBindRefused as fault:
        raise ReloadRefused(f"the last token cannot go while the daemon listens there: {fault}") from fault
    if plan.tls is not None:
        try:
            check_tls(plan.tls)
        except TlsInvalid as fault:
            raise ReloadRefused(str(fault)) from fault
