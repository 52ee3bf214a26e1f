"""Everything an operator can set, with its default; the contract's Configuration section as data.

Secrets are never values here: tokens are hashes, and keys are read from a file or a systemd credential when they are used.
"""

# ruff: noqa: RUF012  (pydantic copies defaults; none is shared)
import re
from datetime import timedelta
from ipaddress import ip_address
from typing import Annotated, Any, Final, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, field_validator, model_validator

from .places import valid_place
from .shapes import Shape

MASKED: Final = "masked"  # metadata of fields that `config show` masks
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=64)]
SignatureId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Severity = Literal["info", "warning", "critical"]
Seconds = Annotated[float, Field(gt=0)]
# Addresses of our own: a prefix that begins like one could not be told from it once a proxy has taken the prefix off.
OWN_ADDRESSES: Final = frozenset({"api", "docs", "openapi.json", "metrics", "healthz", "readyz", "livez", "-"})
OFFSET: Final = re.compile(r"([+-])(\d\d):?(\d\d)$")


def listed(value: Any) -> Any:
    """A list of one may be written without its list; a list in the environment is separated by commas."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")] if "," in value else [value]
    return [value] if isinstance(value, (int, dict)) else value


def valid_zone(text: str) -> str:
    """`UTC`, `Europe/Berlin` or `+02:00`."""
    offset = OFFSET.fullmatch(text)
    if offset:
        if timedelta(hours=int(offset[2]), minutes=int(offset[3])) >= timedelta(hours=24):
            raise ValueError(f"`{text}` is not an offset of less than a day")
        return text
    try:
        ZoneInfo(text)
    except (ValueError, OSError, KeyError):
        raise ValueError(f"`{text}` is no time zone; write it like UTC, Europe/Berlin or +02:00") from None
    return text


def split_address(text: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:17853`, `[::1]:17853`, `:17853` (every address) or `17853` (loopback).

    Raises:
        ValueError: it is none of these; the message says how to write it.
    """
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise ValueError(f"`{text}` is no address to listen on; write it like 127.0.0.1:17853 or [::1]:17853")
    if not host:
        host = "0.0.0.0" if ":" in text else "127.0.0.1"  # noqa: S104  (asked for, and then a token is demanded)
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """True for addresses that only this machine reaches."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


Zone = Annotated[str, AfterValidator(valid_zone)]
Texts = Annotated[list[str], BeforeValidator(listed)]
Places = Annotated[list[Annotated[str, AfterValidator(valid_place)]], BeforeValidator(listed)]


class LoadThresholds(Shape):
    """When a server counts as under load; shares 0 to 1."""

    ready_quiet_s: Seconds = 10.0
    window_s: Annotated[float, Field(ge=5, le=300)] = 15.0
    window_max_s: Annotated[float, Field(ge=5, le=600)] = 60.0
    decode_lines: Annotated[int, Field(ge=1)] = 3
    tolerance: Annotated[float, Field(gt=0, le=1)] = 0.30
    share: Annotated[float, Field(gt=0, le=1)] = 0.90
    max_silence_s: Seconds = 5.0
    idle_after_s: Seconds = 60.0

    @model_validator(mode="after")
    def _in_order(self) -> "LoadThresholds":
        if self.window_max_s < self.window_s:
            raise ValueError("`window_max_s` is shorter than `window_s`")
        return self


class Server(Shape):
    """One SGLang server. `logs`: paths, globs, journal:UNIT, docker:NAME or cri:POD."""

    name: Name
    logs: Places = []
    timezone: Zone | None = Field(default=None, description="Of the log's stamps; default: inferred")
    gpus: Annotated[list[int | str], BeforeValidator(listed)] = Field(default=[], description="Indices or UUIDs")
    url: str | None = Field(default=None, description="The server's own address, for probes")
    expected_power_limit_w: Annotated[float, Field(gt=0)] | None = None
    labels: dict[Annotated[str, StringConstraints(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")], str] = Field(
        default={}, description="Put on every alert about this server that Alertmanager is sent, after the channel's own"
    )
    command: str | None = Field(default=None, description="Launch command, where no log shows the arguments")
    probe: bool = Field(default=True, description="One GET of /server_info on loopback when the log lacks the arguments")
    metrics: bool = Field(default=True, description="GET of the server's own /metrics on loopback every 15 s")
    model_files: bool = Field(default=True, description="Read config.json at a local --model-path, for the memory roofline")
    thresholds: LoadThresholds = LoadThresholds()

    @field_validator("url")
    @classmethod
    def _is_http(cls, value: str | None) -> str | None:
        return _http(value)


def as_telemetry(value: Any) -> Any:
    """`nvml`, `none` or `replay:FILE`, as on the command line."""
    if not isinstance(value, str):
        return value
    source, _, file = value.partition(":")
    return {"source": source, **({"file": file} if file else {})}


class Telemetry(Shape):
    """GPU samples."""

    source: Literal["nvml", "none", "replay"] = "nvml"
    file: str | None = Field(default=None, description="The recording, for source replay")
    interval_s: Annotated[float, Field(ge=0.1, le=60)] = 1.0
    process_interval_s: Annotated[float, Field(ge=0.1, le=600)] = Field(
        default=1.0, description="How often processes are listed; more than 1 s makes findings about foreign processes unknown or late"
    )
    gpm: bool = Field(default=True, description="Read tensor, SM and memory activity where the GPU has it")
    record: str | None = Field(default=None, description="Write every sample to this file (.gz compresses)")

    @model_validator(mode="after")
    def _has_file(self) -> "Telemetry":
        if self.source == "replay" and not self.file:
            raise ValueError("source replay needs `file`, the recording to play")
        return self


class Token(Shape):
    """Who may ask. Exactly one of `sha256` (of the token), `file` and `credential` (systemd)."""

    name: Name
    scope: Literal["read", "write"] = "read"
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$"), MASKED] | None = None
    file: str | None = None
    credential: str | None = None

    @model_validator(mode="after")
    def _has_one(self) -> "Token":
        if sum(value is not None for value in (self.sha256, self.file, self.credential)) != 1:
            raise ValueError("a token needs exactly one of `sha256`, `file`, `credential`")
        return self


class Auth(Shape):
    tokens: list[Token] = []
    token_file: str | None = Field(
        default=None, description="One token a line, `NAME SCOPE sha256:HASH`; a changed file is in force at the next request"
    )
    reads_need_token: bool = Field(default=False, description="On loopback too, where several people share the machine")
    metrics_open: bool = Field(default=False, description="/metrics without a token, beyond loopback too")
    allowed_hosts: Texts = Field(default=[], description="Further names accepted in the Host header")


class Tls(Shape):
    """HTTPS instead of HTTP. Files in PEM; a renewed certificate at the same place is taken up by a reload."""

    cert: str = Field(description="The certificate, with the chain behind it")
    key: str = Field(description="Its key, without a passphrase")
    client_ca: str | None = Field(default=None, description="Clients must show a certificate signed by it")


class HttpLimits(Shape):
    """How much clients may ask of the API. Rates are of one client address."""

    body_bytes: Annotated[int, Field(ge=1024, le=16 << 20)] = 64 << 10
    header_bytes: Annotated[int, Field(ge=1024, le=1 << 20)] = 16 << 10
    connections: Annotated[int, Field(ge=4, le=10_000)] = 256
    connections_per_client: Annotated[int, Field(ge=1, le=10_000)] = 64
    streams: Annotated[int, Field(ge=1, le=1_000)] = 32
    request_s: Annotated[float, Field(gt=0, le=600)] = 10.0
    stream_stall_s: Annotated[float, Field(gt=0, le=600)] = 15.0
    heartbeat_s: Annotated[float, Field(gt=0, le=600)] = 15.0
    requests_per_s: Annotated[float, Field(gt=0)] = 100.0
    burst: Annotated[int, Field(ge=1)] = 400
    failures_per_s: Annotated[float, Field(gt=0)] = 1.0
    failures_burst: Annotated[int, Field(ge=1)] = 20


class Tail(Shape):
    """How log files are followed."""

    wake: Literal["inotify", "poll"] = Field(
        default="inotify", description="poll looks four times a second: for file systems whose inotify does not tell of every change"
    )


class Retention(Shape):
    days: Annotated[float, Field(gt=0)] = 90.0
    max_mb: Annotated[float, Field(ge=1)] = 512.0


class SignatureOverride(Shape):
    severity: Severity | None = None
    threshold: float | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> "SignatureOverride":
        if self.severity is None and self.threshold is None:
            raise ValueError("an override needs `severity` or `threshold`")
        return self


class Signatures(Shape):
    paths: Texts = Field(default=[], description="Folders of your own signatures, later ones win")
    disable: Annotated[list[SignatureId], BeforeValidator(listed)] = []
    override: dict[SignatureId, SignatureOverride] = {}
    verdict_metrics: Annotated[list[SignatureId], BeforeValidator(listed)] = Field(
        default=[], description="Signatures whose verdict gets a metric of its own"
    )


class Receiver(Shape):
    """What every kind of notification has."""

    name: Name | None = None
    min_severity: Severity = "warning"
    servers: Annotated[list[Name], BeforeValidator(listed)] = Field(default=[], description="Only these; empty: all")
    topics: Texts = Field(default=[], description="Only topics that begin so; empty: all")
    timeout_s: Seconds = 10.0


class Alertmanager(Receiver):
    """Pushes to every Alertmanager of a cluster (never to a load balancer in front of it)."""

    type: Literal["alertmanager"]
    urls: Annotated[list[str], BeforeValidator(listed)] = Field(min_length=1)
    resend_s: Seconds = 60.0
    labels: dict[str, str] = {}
    bearer_file: str | None = None
    ca: str | None = None

    @field_validator("urls")
    @classmethod
    def _are_http(cls, value: list[str]) -> list[str]:
        return [str(_http(url)) for url in value]


class Webhook(Receiver):
    """Posts JSON, signed with the secret."""

    type: Literal["webhook"]
    url: Annotated[str, MASKED]
    secret_file: str | None = None
    secret_credential: str | None = None
    ca: str | None = None

    @field_validator("url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        return str(_http(value))

    @model_validator(mode="after")
    def _one_secret(self) -> "Webhook":
        if (self.secret_file is None) == (self.secret_credential is None):
            raise ValueError("a webhook needs exactly one of `secret_file`, `secret_credential`: what it sends is signed")
        return self


class Apprise(Receiver):
    """Chats, through the optional package apprise. Its addresses hold secrets, so they stand in a file, one a line."""

    type: Literal["apprise"]
    urls_file: str | None = None
    urls_credential: str | None = None

    @model_validator(mode="after")
    def _has_addresses(self) -> "Apprise":
        if (self.urls_file is None) == (self.urls_credential is None):
            raise ValueError("apprise needs exactly one of `urls_file`, `urls_credential`")
        return self


Notify = Annotated[Alertmanager | Webhook | Apprise, Field(discriminator="type")]


class Settings(Shape):
    """The whole configuration."""

    servers: list[Server] = []
    telemetry: Annotated[Telemetry, BeforeValidator(as_telemetry)] = Telemetry()
    listen: str = "127.0.0.1:17853"
    external_url: str | None = Field(default=None, description="Address of this daemon for links in notifications")
    root_path: str = Field(default="", description="Path prefix under which a proxy serves this daemon, like /gpu-7/watchdog")
    auth: Auth = Auth()
    tls: Tls | None = None
    limits: HttpLimits = HttpLimits()
    state_dir: str = "/var/lib/sglang-watchdog"
    retention: Retention = Retention()
    signatures: Signatures = Signatures()
    notify: list[Notify] = []
    clock: Literal["wall", "log"] = "wall"
    tail: Tail = Tail()
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="Of the daemon's own log")

    @field_validator("listen")
    @classmethod
    def _is_address(cls, value: str) -> str:
        split_address(value)
        return value

    @field_validator("external_url")
    @classmethod
    def _is_http(cls, value: str | None) -> str | None:
        return _http(value)

    @field_validator("root_path")
    @classmethod
    def _is_prefix(cls, value: str) -> str:
        bare = value.rstrip("/")
        if bare and not re.fullmatch(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._~-]+)+", bare):
            raise ValueError(f"`{value}` is no path prefix; write it like /gpu-7/watchdog")
        if bare and bare.split("/")[1] in OWN_ADDRESSES:
            raise ValueError(f"`{value}` begins like an address of the API itself; choose another prefix, like /watchdog")
        return bare

    @field_validator("notify")
    @classmethod
    def _are_named_apart(cls, value: list[Notify]) -> list[Notify]:
        names = [channel_name(index, one) for index, one in enumerate(value)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the channel name `{twice[0]}` is given twice; what waits to be told is kept by name")
        return value

    @field_validator("servers")
    @classmethod
    def _are_distinct(cls, value: list[Server]) -> list[Server]:
        names = [server.name for server in value]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the server name `{twice[0]}` is given twice; names are labels in API and metrics")
        return value

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to bind."""
        return split_address(self.listen)

    @property
    def needs_token(self) -> bool:
        """True if reading needs a token: the address is reachable from elsewhere."""
        return not is_loopback(self.address[0])

    @model_validator(mode="after")
    def _is_guarded(self) -> "Settings":
        has_tokens = bool(self.auth.tokens or self.auth.token_file)
        if self.needs_token and not has_tokens:
            raise ValueError(
                f"listen {self.listen} is reachable from other machines and `auth: {{tokens: […]}}` is empty; "
                "add a token, or listen on 127.0.0.1"
            )
        if self.auth.reads_need_token and not has_tokens:
            raise ValueError("`auth.reads_need_token` without a token in `auth.tokens` would keep everybody out; add one")
        known = {server.name for server in self.servers}
        for receiver in self.notify:
            for name in receiver.servers if known else ():
                if name not in known:
                    raise ValueError(f"notify names the server `{name}`, which `servers` does not")
        return self


def channel_name(index: int, one: Notify) -> str:
    """The name of a channel: its own, else its type and place in the list, from 1."""
    return one.name or f"{one.type}-{index + 1}"


def _http(url: str | None) -> str | None:
    if url is not None and not re.match(r"https?://[^\s/]+", url):
        raise ValueError(f"`{url}` is no address; write it like http://127.0.0.1:30000")
    return url


def json_schema() -> dict[str, Any]:
    """JSON Schema of the configuration, for editors and for `config schema`."""
    return Settings.model_json_schema(by_alias=True)
