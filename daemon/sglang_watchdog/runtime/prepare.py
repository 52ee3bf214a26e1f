"""From configuration files to everything the daemon needs, checked. `run`, `config check` and a reload take this one way, so that
what one refuses all refuse."""

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..config.faults import Fault, render_all
from ..config.layers import Configuration, configure
from ..config.secrets import NoSecret, read_secret
from ..config.settings import Settings
from ..config.yaml_source import Document, Way
from ..sinks.notify.settings import AlertmanagerSettings, ChatSettings, WebhookSettings
from ..sinks.notify.webhook import SecretInvalid, secret
from ..sinks.web.security import OpenBindRefused, refuse_open_bind
from ..sinks.web.serving import ListenInvalid, TlsInvalid, check_tls, resolved
from ..sinks.web.tokens import Token, TokenFileInvalid, TokenStore
from ..sources.places import BadPlace, open_place
from .plan import Plan, ServerPlan
from .planning import BadPlanError, plan_of, tokens_of
from .preflight import refusals

_CODE: Final = "CFG002"  # CFG001 is for what the text itself has wrong


class BadConfiguration(Exception):
    """The configuration cannot be used; the message has every fault, with file, line and column where a file said it."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(render_all(faults))
        self.faults = tuple(faults)

    @property
    def short(self) -> str:
        """In one line, for an answer or a status page."""
        more = f" (and {len(self.faults) - 3} more)" if len(self.faults) > 3 else ""
        return "; ".join(f"{fault.where}: {fault.message}" for fault in self.faults[:3]) + more


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Where the configuration comes from: read again at each reload. `flags` as `configure` takes them."""

    files: Callable[[], Sequence[Path]]
    environment: Mapping[str, str]
    flags: Mapping[str, tuple[Way, Any]]

    def read(self) -> Configuration:
        return configure(self.files(), self.environment, self.flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Good to run."""

    settings: Settings
    plan: Plan
    tokens: tuple[Token, ...]  # without those of the token file, which the store reads itself


def prepare(
    configuration: Configuration, *, servers: Callable[[Settings], tuple[ServerPlan, ...]] = lambda _: (), port_may_move: bool = False
) -> Prepared:
    """The plan and the tokens; `servers` gives those of the command line or of discovery.

    Raises:
        BadConfiguration: the daemon would not start with it.
    """
    settings = configuration.settings
    if settings is None:
        raise BadConfiguration(configuration.faults)
    faults: list[Fault] = []
    try:
        plan = plan_of(settings, port_may_move=port_may_move, servers=servers(settings))
        tokens = tuple(tokens_of(settings))
    except BadPlanError as error:
        raise BadConfiguration([_located(configuration, error.way, str(error))]) from None
    impossible: list[tuple[Way, str]] = [((), text) for text in refusals(plan)]
    for way, message in [*_tokens(plan, tokens), *_tls(plan), *_places(plan, settings), *_channels(plan), *impossible]:
        faults.append(_located(configuration, way, message))
    if faults:
        raise BadConfiguration(faults)
    return Prepared(settings=settings, plan=plan, tokens=tokens)


def _located(configuration: Configuration, way: Way, message: str) -> Fault:
    """The fault, where the setting was set."""
    origin, rest = configuration.merged.trace(way)
    if origin is None:
        return Document("configuration", "").fault((), message, code=_CODE)
    if origin.label:
        return Document(origin.label, "").fault((), message, code=_CODE)
    return origin.document.fault((*origin.way, *rest), message, code=_CODE)


def _tokens(plan: Plan, tokens: tuple[Token, ...]) -> Iterator[tuple[Way, str]]:
    try:
        store = TokenStore(tokens, file=plan.token_file)
    except TokenFileInvalid as fault:
        yield ("auth", "token_file"), str(fault)
        return
    except OSError as fault:
        yield ("auth", "token_file"), f"{plan.token_file} cannot be read: {fault.strerror}. Check the path and its permissions."
        return
    try:
        addresses, _ = resolved(plan.listen)
        refuse_open_bind([where for _, where in addresses], store)
    except ListenInvalid as fault:
        yield ("listen",), str(fault)
    except OpenBindRefused as fault:
        yield ("listen",), str(fault)


def _tls(plan: Plan) -> Iterator[tuple[Way, str]]:
    if plan.tls is None:
        return
    try:
        check_tls(plan.tls)
    except TlsInvalid as fault:
        yield ("tls", "cert" if fault.file == plan.tls.certificate else "key" if fault.file == plan.tls.key else "client_ca"), str(fault)


def _places(plan: Plan, settings: Settings) -> Iterator[tuple[Way, str]]:
    for index, server in enumerate(plan.servers):
        for number, log in enumerate(server.logs):
            try:
                open_place(log.name, log.where)  # opens nothing yet
            except BadPlace as fault:
                yield ("servers", index, "logs", number) if settings.servers else (), str(fault)


def _channels(plan: Plan) -> Iterator[tuple[Way, str]]:
    for index, one in enumerate(plan.notify):
        way: Way = ("notify", index)
        if isinstance(one, AlertmanagerSettings):
            yield from _readable((*way, "bearer_file"), one.token_file)
            yield from _readable((*way, "ca"), one.ca_file)
        elif isinstance(one, WebhookSettings):
            yield from _readable((*way, "ca"), one.ca_file)
            try:
                secret(one.secret_file)
            except SecretInvalid as fault:
                yield (*way, "secret_file"), str(fault)
            except OSError as fault:
                yield (*way, "secret_file"), f"{one.secret_file} cannot be read: {fault.strerror}. Check the path and its permissions."
        elif isinstance(one, ChatSettings):
            yield from _readable((*way, "urls_file"), one.urls_file)
            if importlib.util.find_spec("apprise") is None:
                yield (*way, "type"), "chats need the package apprise: pip install 'sglang-watchdog[notify]'"


def _readable(way: Way, file: Path | None) -> Iterator[tuple[Way, str]]:
    if file is None:
        return
    try:
        read_secret(str(file), None, os.environ)
    except NoSecret as fault:
        yield way, str(fault)
