"""The board: what holds right now, in memory, filled by the runtime and read by page, API and metrics.

Changes of the engine move runs and findings; samples, coverage, sources and load are put on it as they come. Reading
takes a view, which never changes any more, so that a slow reader sees one moment and holds nobody up. Bounded: a server
has one current run, each GPU a fixed history, and closed findings of earlier runs are the ledger's business.
"""

import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ..model.finding import Change, Coverage, Finding, FindingChanged, Run
from ..model.observation import Gap, Sample
from ..model.words import Severity, State

OPEN: Final = frozenset({State.PENDING, State.FIRING})
_CLOSED_KEPT: Final = 500  # closed findings of one server's current run
_HISTORY: Final = 900  # samples of one GPU: 15 minutes at one a second
_GAPS_KEPT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLoad:
    """What one rank's newest batch lines say. None: not said yet."""

    running_requests: float | None = None
    queue_requests: float | None = None
    decode_tokens_per_s: float | None = None
    kv_used_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatus:
    """How one source is doing; `why` and `do` speak when it is not reading."""

    name: str
    kind: str  # file, journal, docker, cri, stdin, kmsg, nvml, replay, process, probe
    server: str = ""  # "" for sources of the whole machine
    format: str = "plain"
    state: str = "reading"  # reading, waiting, failed, ended
    why: str = ""
    do: str = ""
    path: str = ""
    timezone: str = ""  # with where it is from: "UTC (--timezone)"
    lines: int = 0
    bytes: int = 0
    sglang_lines: int = 0
    offset: int | None = None  # of the next byte to read
    size_bytes: int | None = None
    lag_bytes: int | None = None
    rotations: int = 0
    gaps: tuple[Gap, ...] = ()  # the newest hundred
    gap_count: int = 0
    from_start: bool | None = None  # the first byte read was the first byte written
    last_line_at_s: float | None = None
    watermark_s: float | None = None

    @property
    def fault(self) -> str:
        """Why it is not read, with its name."""
        return self.why if self.why.startswith(self.name) else f"{self.name}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reload:
    """How the last loading of configuration and signatures went. Settings by dotted name, as `listen`."""

    was_successful: bool = True
    at_s: float | None = None
    error: str = ""
    changed: tuple[str, ...] = ()  # what it put in force
    needs_restart: tuple[str, ...] = ()  # differs from what the daemon started with and cannot change while it runs


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelHealth:
    """How one channel of notifications is doing; counts since the start."""

    sent: int = 0
    failed: int = 0  # attempts
    waiting: int = 0
    dead: int = 0  # given up, kept in the ledger
    error: str = ""  # of the newest attempt; "" after a success
    sent_s: float | None = None  # the newest success


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as last read, and which rank of which server runs on it."""

    gpu: int
    uuid: str | None
    name: str | None
    latest: Sample
    history: tuple[Sample, ...] = ()  # oldest first
    placements: tuple[tuple[str, str], ...] = ()  # (server, rank); rank "" where only the server is known

    @property
    def power_ratio(self) -> float | None:
        """0 to 1 of the limit in force."""
        if self.latest.power_w is None or not self.latest.power_limit_w:
            return None
        return self.latest.power_w / self.latest.power_limit_w


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The board at one moment. Nothing in it changes."""

    version: str
    library_version: str
    started_at_s: float
    clock: str
    servers: tuple[str, ...]
    topics: Mapping[str, Severity]
    runs: Mapping[str, Run]  # current run of each server
    findings: tuple[Finding, ...]  # open ones, and closed ones of the current runs
    coverage: Mapping[str, tuple[Coverage, ...]]
    load: Mapping[str, Mapping[str, RankLoad]]
    gpus: tuple[Gpu, ...]
    sources: tuple[SourceStatus, ...]
    transitions: Mapping[tuple[str, str, State], int]
    reload: Reload
    engine_errors: int
    nvml_up: bool | None
    ready_because: str  # "" when ready, else what is still awaited
    findings_version: int = 0  # the same number: the same servers, topics, findings and transitions


@dataclass(slots=True)
class _Server:
    run: Run | None = None
    findings: dict[str, Finding] = field(default_factory=dict)
    coverage: tuple[Coverage, ...] = ()
    load: Mapping[str, RankLoad] = field(default_factory=dict)


class Board:
    """Written by the runtime from one thread, read from any."""

    def __init__(
        self,
        *,
        version: str,
        started_at_s: float,
        servers: Iterable[str] = (),
        topics: Mapping[str, Severity] | None = None,
        library_version: str = "",
        clock: str = "wall",
    ) -> None:
        self._lock = threading.Lock()
        self._version, self._started_at_s, self._clock = version, started_at_s, clock
        self._topics: Mapping[str, Severity] = dict(topics or {})
        self._library_version = library_version
        self._servers: dict[str, _Server] = {name: _Server() for name in servers}
        self._gpus: dict[int, deque[Sample]] = {}
        self._sources: tuple[SourceStatus, ...] = ()
        self._transitions: Counter[tuple[str, str, State]] = Counter()
        self._reload = Reload()
        self._engine_errors = 0
        self._findings_version = 0
        self._nvml_up: bool | None = False
        self._awaited = "sources are not open yet"

    def apply(self, change: Change) -> None:
        """Take one change of the engine."""
        with self._lock:
            self._findings_version += 1
            if isinstance(change, FindingChanged):
                self._apply_finding(change)
            else:
                self._apply_run(change.run)

    def _apply_finding(self, change: FindingChanged) -> None:
        finding = change.finding
        server = self._servers.setdefault(finding.server, _Server())
        server.findings.pop(finding.id, None)
        server.findings[finding.id] = finding
        if change.was is not finding.state:
            self._transitions[finding.server, finding.topic, finding.state] += 1
        closed = [each.id for each in server.findings.values() if each.state not in OPEN]
        for forgotten in closed[:-_CLOSED_KEPT]:
            del server.findings[forgotten]

    def _apply_run(self, run: Run) -> None:
        server = self._servers.setdefault(run.server, _Server())
        current = server.run
        if current is not None and current.id != run.id and not _is_newer(run, current):
            return  # the end of an earlier run, told late
        if current is None or current.id != run.id:
            server.findings = {each.id: each for each in server.findings.values() if each.state in OPEN or each.run in (None, run.id)}
            server.load = {}
        server.run = run

    def set_servers(self, names: Iterable[str]) -> None:
        """The configured servers; those no longer named disappear with all their series."""
        with self._lock:
            self._servers = {name: self._servers.get(name, _Server()) for name in names}
            self._findings_version += 1

    def set_library(self, topics: Mapping[str, Severity], version: str) -> None:
        with self._lock:
            self._topics, self._library_version = dict(topics), version
            self._findings_version += 1

    def set_coverage(self, server: str, verdicts: Iterable[Coverage]) -> None:
        with self._lock:
            self._servers.setdefault(server, _Server()).coverage = tuple(verdicts)

    def set_load(self, server: str, load: Mapping[str, RankLoad]) -> None:
        """The newest load of each rank, by rank as the log prints it ("" for a server without rank prefixes)."""
        with self._lock:
            self._servers.setdefault(server, _Server()).load = dict(load)

    def set_sources(self, sources: Iterable[SourceStatus]) -> None:
        with self._lock:
            self._sources = tuple(replace(each, gaps=each.gaps[-_GAPS_KEPT:]) for each in sources)

    def add_sample(self, sample: Sample) -> None:
        with self._lock:
            self._gpus.setdefault(sample.gpu, deque(maxlen=_HISTORY)).append(sample)

    def set_gpus(self, present: Iterable[int]) -> None:
        """The GPUs there are; others are forgotten."""
        with self._lock:
            kept = set(present)
            self._gpus = {gpu: history for gpu, history in self._gpus.items() if gpu in kept}

    def set_nvml(self, *, is_up: bool | None) -> None:
        """None: this watchdog was told to read no GPUs."""
        with self._lock:
            self._nvml_up = is_up

    def set_reload(self, reload: Reload) -> None:
        with self._lock:
            self._reload = reload

    def set_ready(self, awaited: str = "") -> None:
        """Ready when nothing is awaited any more; else say what is."""
        with self._lock:
            self._awaited = awaited

    def count_engine_error(self) -> None:
        with self._lock:
            self._engine_errors += 1

    def view(self, *, with_history: bool = False) -> View:
        """The board at this moment; `with_history` copies the GPUs' past readings too."""
        with self._lock:
            runs = {name: server.run for name, server in self._servers.items() if server.run is not None}
            return View(
                version=self._version,
                library_version=self._library_version,
                started_at_s=self._started_at_s,
                clock=self._clock,
                servers=tuple(self._servers),
                topics=self._topics,
                runs=runs,
                findings=tuple(each for server in self._servers.values() for each in server.findings.values()),
                coverage={name: server.coverage for name, server in self._servers.items()},
                load={name: server.load for name, server in self._servers.items()},
                gpus=tuple(_gpu(gpu, self._gpus[gpu], runs, with_history) for gpu in sorted(self._gpus)),
                sources=self._sources,
                transitions=dict(self._transitions),
                reload=self._reload,
                engine_errors=self._engine_errors,
                nvml_up=self._nvml_up,
                ready_because=self._awaited,
                findings_version=self._findings_version,
            )


def _is_newer(run: Run, current: Run) -> bool:
    if run.started_at_s is None or current.started_at_s is None:
        return run.ended_at_s is None or current.ended_at_s is not None
    return run.started_at_s >= current.started_at_s


def _gpu(gpu: int, history: deque[Sample], runs: Mapping[str, Run], with_history: bool) -> Gpu:
    latest = history[-1]
    placements = tuple((server, run.gpus[gpu]) for server, run in sorted(runs.items()) if gpu in run.gpus)
    return Gpu(
        gpu=gpu,
        uuid=latest.uuid,
        name=latest.name,
        latest=latest,
        placements=placements,
        history=tuple(history) if with_history else (),
    )
