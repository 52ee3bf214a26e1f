"""How people are told."""

from dataclasses import dataclass
from pathlib import Path

from ...model.words import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often and how long. A flapping finding makes at most 1 + T / repeat_s webhook notifications in T seconds."""

    wait_s: float = 5.0  # before the first attempt, so that a cause can fold its effects
    repeat_s: float = 300.0  # between two notifications of one finding
    timeout_s: float = 10.0  # of one attempt
    backoff_s: float = 5.0  # before the second attempt; doubles, with jitter
    backoff_most_s: float = 300.0
    deadline_s: float = 4 * 3600.0  # then it goes to the dead letters
    queue: int = 10_000  # waiting for one channel; beyond it the oldest go to the dead letters


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """A signed POST for each transition. The signature follows the Standard Webhooks scheme."""

    name: str
    url: str
    secret_file: Path
    at_least: Severity = Severity.WARNING
    ca_file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """Chats by apprise; each line of the file is one of its URLs, which hold secrets."""

    name: str
    urls_file: Path
    at_least: Severity = Severity.WARNING


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertmanagerSettings:
    """Every peer of the cluster gets every alert, as Alertmanager wants it; instead of rules in Prometheus, never
    beside them."""

    name: str
    urls: tuple[str, ...]  # base addresses, without /api/v2
    at_least: Severity = Severity.WARNING
    resend_s: float = 60.0
    resolved_for_s: float = 300.0  # how long a resolved alert is sent again
    token_file: Path | None = None
    ca_file: Path | None = None
    alive_alert: bool = True  # an alert that always fires, for a dead man's switch
