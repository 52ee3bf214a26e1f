"""Prometheus metrics over a view of the board. Names and labels are the contract; labels are bounded by the configured
servers, the closed list of topics, the GPUs there are and the sources that are read.

Every series exists from the first scrape: 0 where nothing happened, NaN where nothing is known. The families are made
anew for each scrape, so that what vanished is not told any more.
"""

import math
import platform
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from ..model.finding import Release, Run
from ..model.readings import THROTTLE_REASONS
from ..model.words import Answer, Phase, Severity, State
from .state import Board, ChannelHealth, Gpu, RankLoad, View

PREFIX: Final = "sglang_watchdog_"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_MIB: Final = 1024.0 * 1024.0
_KB: Final = 1000.0  # NVML's PCIe throughput is in KB/s
NAN: Final = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What ledger and notifier say about themselves at a scrape."""

    ledger_durable: bool = True
    ledger_bytes: int = 0
    ledger_backlog: int = 0
    tasks: int = 0
    notifications: Mapping[str, ChannelHealth] = field(default_factory=dict)  # by channel


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its series: label values in the order of `labels`, and a number; None is written as NaN."""

    type: str  # gauge or counter
    name: str  # with prefix, without _total
    help: str
    labels: tuple[str, ...]
    rows: Sequence[tuple[tuple[str, ...], float | None]]

    def metric(self) -> Metric:
        family = _family(self)
        for values, value in self.rows:
            family.add_metric(values, NAN if value is None else value)
        return family

    def text(self) -> str:
        """The exposition format 0.0.4, byte for byte as prometheus_client writes it but several times faster: a scrape
        of some thousand series must not hold up the threads that read the log."""
        name = self.name + ("_total" if self.type == "counter" else "")
        order = sorted(range(len(self.labels)), key=self.labels.__getitem__)
        head = f"# HELP {name} {_escape_help(self.help)}\n# TYPE {name} {self.type}\n"
        if not order:
            return head + "".join(f"{name} {_number(value)}\n" for _, value in self.rows)
        labels = ",".join(self.labels[each] + '="{}"' for each in order)
        template = (name + "{{" + labels + "}} {}\n").format
        return head + "".join(template(*[_escape(values[each]) for each in order], _number(value)) for values, value in self.rows)


def _family(of: Family) -> CounterMetricFamily | GaugeMetricFamily:
    if of.type == "counter":
        return CounterMetricFamily(of.name, of.help, labels=of.labels)
    return GaugeMetricFamily(of.name, of.help, labels=of.labels)


def gauge(name: str, help: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], float | None]]) -> Family:
    return Family("gauge", PREFIX + name, help, labels, list(rows))


def counter(name: str, help: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], float | None]]) -> Family:
    return Family("counter", PREFIX + name, help, labels, list(rows))


class BoardCollector(Collector):
    """Reads the board at each scrape. `signature_verdicts` adds a series for each signature and verdict: opt-in, since
    a library of some hundred signatures makes some thousand series, so for the named ones only."""

    def __init__(
        self,
        board: Board,
        *,
        revision: str = "",
        signature_verdicts: Iterable[str] = (),
        health: Callable[[], Health] = Health,
    ) -> None:
        self._board, self._revision, self._signature_verdicts, self._health = (
            board,
            revision,
            frozenset(signature_verdicts),
            health,
        )
        self._of_process = ProcessCollector(registry=None)
        self._written: tuple[tuple[int, int], str] = ((-1, 0), "")  # the families of findings, by what they were written from

    def tell_verdicts(self, signatures: Iterable[str]) -> None:
        """From the next scrape on these signatures have series of their own."""
        self._signature_verdicts = frozenset(signatures)

    def collect(self) -> Iterator[Metric]:
        return (family.metric() for family in self.families())

    def exposition(self) -> bytes:
        """What /metrics answers."""
        view = self._board.view()
        return (self._findings(view) + "".join(family.text() for family in self._others(view))).encode("utf-8", "replace")

    def families(self) -> Iterator[Family]:
        view = self._board.view()
        yield from _findings(view)
        yield from self._others(view)

    def _findings(self, view: View) -> str:
        """A series for each topic and state of each server: nine tenths of a scrape, and the same from one to the next unless a
        finding moved. Written once for each version; several threads may scrape at a time, so the pair is replaced as a whole."""
        version = (view.findings_version, len(view.servers))
        written_from, text = self._written
        if written_from != version:
            text = "".join(family.text() for family in _findings(view))
            self._written = (version, text)
        return text

    def _others(self, view: View) -> Iterator[Family]:
        yield from _verdicts(view, self._signature_verdicts)
        yield from _servers(view)
        yield from _load(view)
        yield from _roofline(view)
        yield from _gpus(view.gpus)
        yield from _sources(view)
        yield from _own(view, self._revision, self._health())
        yield from _process(self._of_process)


def registry(collector: BoardCollector) -> CollectorRegistry:
    """A registry of our own, so that nothing of the process's default one leaks in."""
    own = CollectorRegistry(auto_describe=False)
    own.register(collector)
    return own


def _findings(view: View) -> Iterator[Family]:
    firing = {(each.server, each.topic, each.severity) for each in view.findings if each.state is State.FIRING}
    default = [(server, topic, severity) for server in view.servers for topic, severity in view.topics.items()]
    others = sorted(one for one in firing if one[0] in view.servers and one[1] in view.topics and view.topics[one[1]] is not one[2])
    yield gauge(
        "finding_active",
        "1 while a finding of this topic and severity is firing; 0 at the topic's default severity else.",
        ("server", "topic", "severity"),
        (((server, topic, severity.value), float((server, topic, severity) in firing)) for server, topic, severity in (*default, *others)),
    )
    counts = Counter((each.server, each.severity, each.state) for each in view.findings)
    yield gauge(
        "findings",
        "Findings of the current run and of the hardware, by their own severity and state.",
        ("server", "severity", "state"),
        (
            ((server, severity.value, state.value), float(counts[server, severity, state]))
            for server in view.servers
            for severity in Severity
            for state in State
        ),
    )
    yield counter(
        "finding_transitions",
        "How often findings of this topic moved to this state.",
        ("server", "topic", "to"),
        (
            ((server, topic, state.value), float(view.transitions.get((server, topic, state), 0)))
            for server in view.servers
            for topic in view.topics
            for state in State
        ),
    )


def _verdicts(view: View, told: Container[str]) -> Iterator[Family]:
    verdicts = {server: Counter(each.verdict for each in view.coverage.get(server, ())) for server in view.servers}
    yield gauge(
        "signature_verdicts",
        "Signatures by their verdict on the current run.",
        ("server", "verdict"),
        (((server, answer.value), float(verdicts[server][answer])) for server in view.servers for answer in Answer),
    )
    yield gauge(
        "signature_verdict",
        "1 for the verdict of this signature on the current run; of the signatures that the configuration names.",
        ("server", "signature", "verdict"),
        (
            ((server, each.signature, answer.value), float(each.verdict is answer))
            for server in view.servers
            for each in view.coverage.get(server, ())
            if each.signature in told
            for answer in Answer
        ),
    )


def _servers(view: View) -> Iterator[Family]:
    def runs() -> Iterator[tuple[str, Run | None]]:
        return ((server, view.runs.get(server)) for server in view.servers)

    yield gauge(
        "server_phase",
        "1 for the phase the server is in.",
        ("server", "phase"),
        (((server, phase.value), float((run.phase if run else Phase.UNKNOWN) is phase)) for server, run in runs() for phase in Phase),
    )
    yield gauge(
        "server_info",
        "The current run of the server; labels are empty until known.",
        ("server", "run", "sglang_version", "model"),
        (((server, run.id if run else "", version(run.release) if run else "", run.model if run else ""), 1.0) for server, run in runs()),
    )
    yield gauge(
        "server_start_timestamp_seconds",
        "When the current run began, Unix time.",
        ("server",),
        (((server,), run.started_at_s if run else None) for server, run in runs()),
    )
    yield gauge(
        "server_ready_seconds",
        "How long the current run took from its start to ready.",
        ("server",),
        (((server,), run.timings_s.get("ready") if run else None) for server, run in runs()),
    )


def _roofline(view: View) -> Iterator[Family]:
    """Of the newest steady load; NaN until there was one and its inputs are known, and after the end."""
    running = {server: run for server, run in view.runs.items() if run.phase not in (Phase.STOPPED, Phase.CRASHED)}
    known = [(server, running[server].roofline if server in running else None) for server in view.servers]
    yield gauge(
        "server_decode_ceiling_tokens_per_second",
        "Output tokens a second that the GPUs' memory allows under the newest steady load: least and most.",
        ("server", "bound"),
        [
            ((server, bound), getattr(roofline, f"ceiling_{bound}") if roofline is not None else None)
            for server, roofline in known
            for bound in ("low", "high")
        ],
    )
    yield gauge(
        "server_decode_ceiling_ratio",
        "Decode rate over that ceiling, 0 to 1: low against the most, high against the least.",
        ("server", "bound"),
        [
            ((server, bound), getattr(roofline, f"share_{bound}") if roofline is not None else None)
            for server, roofline in known
            for bound in ("low", "high")
        ],
    )


def version(release: Release) -> str:
    """One release, or the two ends of the range it lies in."""
    if release.min is None or release.max is None or release.min == release.max:
        return release.min or release.max or ""
    return f"{release.min}..{release.max}"


def _load(view: View) -> Iterator[Family]:
    loads: list[tuple[str, str, RankLoad]] = []
    for server in view.servers:
        known = view.load.get(server) or {"": RankLoad()}
        run = view.runs.get(server)
        if run is not None and run.phase in (Phase.STOPPED, Phase.CRASHED):
            known = dict.fromkeys(known, RankLoad())  # what a server said last is not what it does now
        loads.extend((server, rank, known[rank]) for rank in sorted(known))
    for name, help, quantity in (
        ("server_running_requests", "Requests running, from the newest batch line.", "running_requests"),
        ("server_queue_requests", "Requests waiting, from the newest batch line.", "queue_requests"),
        (
            "server_decode_tokens_per_second",
            "Output tokens a second, from the newest Decode line.",
            "decode_tokens_per_s",
        ),
        ("server_kv_used_ratio", "KV slots in use, 0 to 1.", "kv_used_ratio"),
    ):
        yield gauge(name, help, ("server", "rank"), [((server, rank), getattr(load, quantity)) for server, rank, load in loads])


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


_GPU_GAUGES: Final[tuple[tuple[str, str, Callable[[Gpu], float | None]], ...]] = (
    ("gpu_power_watts", "Power drawn.", lambda gpu: gpu.latest.power_w),
    ("gpu_power_limit_watts", "Power limit in force.", lambda gpu: gpu.latest.power_limit_w),
    ("gpu_power_ratio", "Power drawn over the limit in force.", lambda gpu: gpu.power_ratio),
    (
        "gpu_sm_utilization_ratio",
        "Share of time with any kernel resident, 0 to 1.",
        lambda gpu: _times(gpu.latest.sm_util, 0.01),
    ),
    ("gpu_sm_active_ratio", "Share of SM cycles with a warp resident, 0 to 1.", lambda gpu: gpu.latest.sm_active),
    (
        "gpu_dram_active_ratio",
        "Share of cycles the memory interface was busy, 0 to 1.",
        lambda gpu: gpu.latest.dram_active,
    ),
    (
        "gpu_tensor_active_ratio",
        "Share of cycles the tensor pipes were busy, 0 to 1.",
        lambda gpu: gpu.latest.tensor_active,
    ),
    ("gpu_pcie_receive_bytes_per_second", "PCIe traffic to the GPU.", lambda gpu: _times(gpu.latest.pcie_rx_kbps, _KB)),
    (
        "gpu_pcie_transmit_bytes_per_second",
        "PCIe traffic from the GPU.",
        lambda gpu: _times(gpu.latest.pcie_tx_kbps, _KB),
    ),
    ("gpu_pcie_link_generation", "PCIe generation of the link now.", lambda gpu: gpu.latest.pcie_gen),
    ("gpu_pcie_link_width", "PCIe lanes of the link now.", lambda gpu: gpu.latest.pcie_width),
    ("gpu_temperature_celsius", "Core temperature.", lambda gpu: gpu.latest.temp_c),
    ("gpu_sm_clock_hertz", "SM clock now.", lambda gpu: _times(gpu.latest.sm_clock_mhz, 1e6)),
    ("gpu_memory_used_bytes", "Device memory in use.", lambda gpu: _times(gpu.latest.mem_used_mib, _MIB)),
)


def _gpus(gpus: tuple[Gpu, ...]) -> Iterator[Family]:
    for name, help, read in _GPU_GAUGES:
        yield gauge(name, help, ("gpu",), [((str(gpu.gpu),), read(gpu)) for gpu in gpus])
    yield counter(
        "gpu_energy_joules",
        "Energy since the driver was loaded.",
        ("gpu",),
        [((str(gpu.gpu),), gpu.latest.energy_j) for gpu in gpus],
    )
    yield gauge(
        "gpu_throttle_active",
        "1 while the driver names this reason for holding clocks back.",
        ("gpu", "reason"),
        [((str(gpu.gpu), reason), _is_throttled(gpu, reason)) for gpu in gpus for reason in THROTTLE_REASONS],
    )
    yield gauge(
        "gpu_info",
        "The GPU's identity.",
        ("gpu", "uuid", "name"),
        [((str(gpu.gpu), gpu.uuid or "", gpu.name or ""), 1.0) for gpu in gpus],
    )
    yield gauge(
        "gpu_server",
        "1 for each rank of a server that runs on the GPU.",
        ("gpu", "server", "rank"),
        [((str(gpu.gpu), server, rank), 1.0) for gpu in gpus for server, rank in gpu.placements],
    )


def _is_throttled(gpu: Gpu, reason: str) -> float | None:
    reasons = gpu.latest.throttle_reasons
    return None if reasons is None else float(reason in reasons)


def _sources(view: View) -> Iterator[Family]:
    yield counter(
        "source_read_bytes",
        "Bytes read from the source.",
        ("source",),
        [((each.name,), float(each.bytes)) for each in view.sources],
    )
    yield counter(
        "source_lines",
        "Lines read from the source.",
        ("source",),
        [((each.name,), float(each.lines)) for each in view.sources],
    )
    yield gauge(
        "source_lag_bytes",
        "Bytes written but not yet read.",
        ("source",),
        [((each.name,), each.lag_bytes) for each in view.sources],
    )
    yield counter(
        "source_gaps",
        "Stretches known not to have been seen.",
        ("source",),
        [((each.name,), float(each.gap_count)) for each in view.sources],
    )
    yield gauge(
        "source_last_line_timestamp_seconds",
        "Stamp of the newest line, Unix time.",
        ("source",),
        [((each.name,), each.last_line_at_s) for each in view.sources],
    )
    yield gauge(
        "source_up",
        "1 while the source can be read.",
        ("source",),
        [((each.name,), float(each.state in ("reading", "ended"))) for each in view.sources],
    )


def _own(view: View, revision: str, health: Health) -> Iterator[Family]:
    yield gauge(
        "build_info",
        "The running release.",
        ("version", "revision", "library", "python"),
        [((view.version, revision, view.library_version, platform.python_version()), 1.0)],
    )
    yield gauge("start_timestamp_seconds", "When the daemon started, Unix time.", (), [((), view.started_at_s)])
    yield gauge(
        "config_last_reload_successful",
        "1 if the newest loading of configuration and signatures was accepted.",
        (),
        [((), float(view.reload.was_successful))],
    )
    yield gauge("config_last_reload_timestamp_seconds", "When that was, Unix time.", (), [((), view.reload.at_s)])
    yield gauge(
        "config_restart_needed",
        "Settings that were changed in the files and wait for a restart.",
        (),
        [((), float(len(view.reload.needs_restart)))],
    )
    yield counter(
        "engine_errors",
        "Faults of our own: an observation or a signature the engine could not handle.",
        (),
        [((), float(view.engine_errors))],
    )
    nvml_up = math.nan if view.nvml_up is None else float(view.nvml_up)
    yield gauge("nvml_up", "1 while the GPUs can be read; NaN where none are to be read.", (), [((), nvml_up)])
    yield gauge(
        "ledger_durable",
        "1 while changes reach the disk, 0 while they are kept in memory only.",
        (),
        [((), float(health.ledger_durable))],
    )
    yield gauge("ledger_bytes", "Size of the ledger.", (), [((), float(health.ledger_bytes))])
    yield gauge("tasks", "Parts of the daemon at work in its event loop.", (), [((), float(health.tasks))])
    yield gauge("ledger_backlog", "Writes waiting for the ledger.", (), [((), float(health.ledger_backlog))])
    channels = sorted(health.notifications.items())
    yield counter("notifications", "Notifications delivered.", ("channel",), [((name,), one.sent) for name, one in channels])
    yield counter("notification_failures", "Attempts that failed.", ("channel",), [((name,), one.failed) for name, one in channels])
    yield gauge("notification_queue", "Notifications waiting.", ("channel",), [((name,), one.waiting) for name, one in channels])
    yield gauge(
        "notification_dead_letters",
        "Notifications given up and kept in the ledger.",
        ("channel",),
        [((name,), one.dead) for name, one in channels],
    )


def _process(collector: ProcessCollector) -> Iterator[Family]:
    """The standard process_* metrics; none where there is no /proc."""
    for metric in collector.collect():
        yield Family(metric.type, metric.name, metric.documentation, (), [((), sample.value) for sample in metric.samples])


def _escape(text: str) -> str:
    if "\\" in text or "\n" in text or '"' in text:
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return text


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "NaN"
    if value == 0.0:  # most series of a healthy server
        return "0.0"
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]
