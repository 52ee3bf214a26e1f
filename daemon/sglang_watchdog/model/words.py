"""The closed vocabularies: the word in the code is the word in the API, the metric label and the YAML."""

from enum import StrEnum


class Severity(StrEnum):
    """critical: down, wrong or about to be; warning: slower or riskier than it should be; info: worth knowing."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0 for info, 2 for critical, so that severities can be compared."""
        return ("info", "warning", "critical").index(self.value)


class Kind(StrEnum):
    """What a signature looks for; see signatures/README.md."""

    FORBIDDEN = "forbidden"
    EXPECTED = "expected"
    MISSING = "missing"
    RATE = "rate"
    TELEMETRY = "telemetry"
    CORRELATION = "correlation"
    FLAG = "flag"


class Answer(StrEnum):
    """The four verdict words; only `yes` makes a finding."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not-applicable"


class State(StrEnum):
    """Where a finding is in its life; resolved was seen to clear, expired means the evidence ran out unseen."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"
    EXPIRED = "expired"


class Phase(StrEnum):
    """Where a run or one of its ranks is."""

    UNKNOWN = "unknown"
    STARTING = "starting"
    LOADING = "loading"
    CAPTURING = "capturing"
    READY = "ready"
    SERVING = "serving"
    IDLE = "idle"
    STOPPING = "stopping"
    STOPPED = "stopped"
    CRASHED = "crashed"


class ScopeKind(StrEnum):
    """What one finding is about; `gpu` findings are hardware and carry no run."""

    RUN = "run"
    RANK = "rank"
    GPU = "gpu"


class Status(StrEnum):
    """How far a signature is proven."""

    DRAFT = "draft"
    TRIAL = "trial"
    STABLE = "stable"
    RETIRED = "retired"
