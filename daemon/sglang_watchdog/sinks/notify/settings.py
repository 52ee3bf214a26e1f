"""How people are told."""

from dataclasses import dataclass
from pathlib import Path

from ...model.words import Severity
from ..ledger_reads import FindingRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often and how long. A flapping finding makes at most 1 + T / repeat_s webhook notifications in T seconds."""

    wait_s: float = 5.0  # before the first attempt, so that a cause can fold its effects
    repeat_s: float = 300.0  # between two notifications of one finding
    backoff_s: float = 5.0  # before the second attempt; doubles, with jitter
    backoff_most_s: float = 300.0
    deadline_s: float = 4 * 3600.0  # then it goes to the dead letters
    queue: int = 10_000  # waiting for one channel; beyond it the oldest go to the dead letters


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the people behind a channel want to hear of."""

    at_least: Severity = Severity.WARNING
    servers: tuple[str, ...] = ()  # empty: all
    topics: tuple[str, ...] = ()  # beginnings of topics; empty: all

    def why_not(self, row: FindingRow) -> str:
        """Why this finding is not for them; empty if it is."""
        if Severity(row.severity).rank < self.at_least.rank:
            return "its severity is below what this channel wants"
        if self.servers and row.server not in self.servers:
            return "this channel wants other servers"
        return "" if not self.topics or row.topic.startswith(self.topics) else "this channel wants other topics"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """A signed POST for each transition. The signature follows the Standard Webhooks scheme."""

    name: str
    url: str
    secret_file: Path
    wanted: Wanted = Wanted()
    ca_file: Path | None = None
    timeout_s: float = 10.0  # of one attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSettings:
    """Chats by apprise; each line of the file is one of its URLs, which hold secrets."""

    name: str
    urls_file: Path
    wanted: Wanted = Wanted()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertmanagerSettings:
    """Every peer of the cluster gets every alert, as Alertmanager wants it; instead of rules in Prometheus, never
    beside them."""

    name: str
    urls: tuple[str, ...]  # base addresses, without /api/v2
    wanted: Wanted = Wanted()
    labels: tuple[tuple[str, str], ...] = ()  # put on every alert
    of_server: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()  # server -> further labels of its alerts
    timeout_s: float = 10.0
    resend_s: float = 60.0
    resolved_for_s: float = 300.0  # how long a resolved alert is sent again
    token_file: Path | None = None
    ca_file: Path | None = None
    alive_alert: bool = True  # an alert that always fires, for a dead man's switch
