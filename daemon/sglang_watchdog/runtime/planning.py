"""From settings to a plan: names resolved, secrets left where they are, everything checked."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..config.secrets import NoSecret, secret_path, token_hash
from ..config.settings import Alertmanager, LoadThresholds, Notify, Server, Settings, Webhook, channel_name
from ..config.settings import Tls as TlsFiles
from ..config.yaml_source import Way
from ..engine.load import LoadSettings
from ..engine.settings import EngineSettings
from ..library.load import Override
from ..model.words import Severity
from ..parse.zone import Zone
from ..sinks.ledger_retention import Retention
from ..sinks.notify.build import Settings as ChannelSettings
from ..sinks.notify.settings import AlertmanagerSettings, ChatSettings, Wanted, WebhookSettings
from ..sinks.web.limits import Limits
from ..sinks.web.serving import Tls
from ..sinks.web.tokens import Token, TokenScope
from .plan import LogPlan, Plan, ServerPlan, SignaturePlan


class BadPlanError(Exception):
    """A setting cannot be carried out on this machine. `way` leads to it in the configuration."""

    def __init__(self, message: str, way: Way = ()) -> None:
        super().__init__(message)
        self.way = way


def plan_of(settings: Settings, *, port_may_move: bool = False, servers: tuple[ServerPlan, ...] = ()) -> Plan:
    """The plan for a configuration; `servers` are those of the command line or of discovery, which come instead of none."""
    host, port = settings.address
    telemetry = settings.telemetry
    configured = tuple(_server(one) for one in settings.servers)
    return Plan(
        servers=_distinct(configured or servers),
        telemetry=f"replay:{telemetry.file}" if telemetry.source == "replay" else telemetry.source,
        sample_s=telemetry.interval_s,
        process_s=telemetry.process_interval_s,
        gpm=telemetry.gpm,
        host=host,
        port=port,
        port_may_move=port_may_move,
        external_url=settings.external_url or "",
        allowed_hosts=tuple(settings.auth.allowed_hosts),
        root_path=settings.root_path,
        reads_need_token=settings.auth.reads_need_token,
        metrics_open=settings.auth.metrics_open,
        limits=Limits(**settings.limits.model_dump()),
        token_file=Path(settings.auth.token_file) if settings.auth.token_file else None,
        tls=_tls(settings.tls),
        log_level=settings.log_level,
        clock=settings.clock,
        wake=settings.tail.wake,
        state_dir=None if settings.state_dir == "none" else Path(settings.state_dir),
        retention=Retention(age_s=settings.retention.days * 86_400.0, size_bytes=int(settings.retention.max_mb * 1024 * 1024)),
        signatures=SignaturePlan(
            folders=tuple(Path(path) for path in settings.signatures.paths),
            disable=tuple(settings.signatures.disable),
            override={
                name: Override(severity=Severity(one.severity) if one.severity else None, threshold=one.threshold)
                for name, one in settings.signatures.override.items()
            },
        ),
        record=Path(telemetry.record) if telemetry.record else None,
        notify=tuple(_channel(index, one, configured or servers) for index, one in enumerate(settings.notify)),
        verdict_metrics=tuple(settings.signatures.verdict_metrics),
    )


def tokens_of(settings: Settings, environment: Mapping[str, str] = os.environ) -> list[Token]:
    """The tokens of `auth`, hashed.

    Raises:
        BadPlanError: a token's file or credential cannot be read.
    """
    tokens = []
    for index, one in enumerate(settings.auth.tokens):
        try:
            tokens.append(Token(one.name, frozenset([TokenScope(one.scope)]), token_hash(one, environment)))
        except NoSecret as fault:
            raise BadPlanError(f"the token {one.name}: {fault}", ("auth", "tokens", index, "file" if one.file else "credential")) from None
    return tokens


def log_plans(server: str, places: list[str], *, alone: bool) -> tuple[LogPlan, ...]:
    """Names for logs: the file's own where the server is the only one, else with the server before it."""
    named = [(where, name_of(where) if alone else f"{server}/{name_of(where)}") for where in places]
    plans = []
    for index, (where, name) in enumerate(named):
        again = sum(other == name for _, other in named[:index])
        plans.append(LogPlan(name=f"{name}#{again + 1}" if again else name, where=where))
    return tuple(plans)


def name_of(where: str) -> str:
    """A short name for a place: the file's name, or the place itself."""
    if where == "-":
        return "stdin"
    return where if where.split(":", 1)[0] in ("journal", "docker", "cri", "kmsg") else Path(where).name


def _distinct(servers: tuple[ServerPlan, ...]) -> tuple[ServerPlan, ...]:
    if len(servers) < 2:
        return servers
    return tuple(
        replace(one, logs=log_plans(one.name, [log.where for log in one.logs], alone=False)) for one in servers
    )


def _server(one: Server) -> ServerPlan:
    gpus = tuple(int(gpu) for gpu in one.gpus if str(gpu).isdigit())
    return ServerPlan(
        name=one.name,
        logs=log_plans(one.name, list(one.logs), alone=True),
        zone=Zone.named(one.timezone) if one.timezone else None,
        url=one.url,
        probe=one.probe,
        metrics=one.metrics,
        model_files=one.model_files,
        labels=dict(one.labels),
        engine=EngineSettings(
            load=_load(one.thresholds), gpus=gpus, expected_power_limit_w=one.expected_power_limit_w, idle_after_s=one.thresholds.idle_after_s
        ),
    )


def _load(one: LoadThresholds) -> LoadSettings:
    return LoadSettings(
        ready_quiet_s=one.ready_quiet_s, window_s=one.window_s, window_max_s=one.window_max_s, decode_lines=one.decode_lines,
        tolerance=one.tolerance, share=one.share, max_silence_s=one.max_silence_s,
    )  # fmt: skip


def _channel(index: int, one: Notify, servers: Sequence[ServerPlan]) -> ChannelSettings:
    name = channel_name(index, one)
    wanted = Wanted(at_least=Severity(one.min_severity), servers=tuple(one.servers), topics=tuple(one.topics))
    if isinstance(one, Alertmanager):
        return AlertmanagerSettings(
            name=name, urls=tuple(one.urls), wanted=wanted, resend_s=one.resend_s, labels=tuple(sorted(one.labels.items())),
            of_server=tuple((server.name, tuple(sorted(server.labels.items()))) for server in servers if server.labels),
            token_file=Path(one.bearer_file) if one.bearer_file else None, ca_file=Path(one.ca) if one.ca else None,
            timeout_s=one.timeout_s,
        )  # fmt: skip
    if isinstance(one, Webhook):
        return WebhookSettings(
            name=name, url=one.url, secret_file=_secret(index, "secret", one.secret_file, one.secret_credential), wanted=wanted,
            ca_file=Path(one.ca) if one.ca else None, timeout_s=one.timeout_s,
        )  # fmt: skip
    return ChatSettings(name=name, urls_file=_secret(index, "urls", one.urls_file, one.urls_credential), wanted=wanted)


def _secret(index: int, what: str, file: str | None, credential: str | None) -> Path:
    """Where the secret lies. Raises BadPlanError."""
    try:
        return secret_path(file, credential, os.environ)
    except NoSecret as fault:
        raise BadPlanError(str(fault), ("notify", index, f"{what}_credential")) from None


def _tls(one: TlsFiles | None) -> Tls | None:
    if one is None:
        return None
    return Tls(certificate=Path(one.cert), key=Path(one.key), client_ca=Path(one.client_ca) if one.client_ca else None)
