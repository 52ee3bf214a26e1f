"""Everything that can be fed to the engine. Times are Unix seconds UTC; `at_s` None means the line could not be dated.

Log observations come from the scanner in the order of their source; secrets and user text are already cut from `text`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

COMMAND_LINE: Final = "process command line"  # origin of a probe that tells the launch command

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None


@dataclass(frozen=True, slots=True)
class Position:
    """Where a line stands: `line` counts newlines from 1, `offset` is the byte where it begins in the unpacked source."""

    source: str
    line: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A pattern of the library was found in one line."""

    at_s: float | None
    position: Position
    pattern: str  # Pattern.id
    rank: str = ""  # "TP0", "DP1 TP3 EP3" as the log prints it; "" for processes without one
    text: str = ""  # the record, redacted, at most 2,000 characters
    captures: Mapping[str, str] = field(default_factory=dict)
    header: Position | None = None  # the record, or first line, of the traceback that this line belongs to
    dated: bool = True  # False: no stamp of its own, `at_s` is carried from the line before


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The last line of a traceback. One that is chained to another ends twice: what was raised last comes last."""

    at_s: float | None  # of the record that holds the traceback
    position: Position
    rank: str = ""
    text: str  # `torch.OutOfMemoryError: CUDA out of memory. …`, redacted; of a message of several lines the first
    words: str = ""  # the same without the sentences in its quotes, which users may have written
    header: Position  # the record, or first line, of the traceback


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One `Prefill batch` or `Decode batch` record. A field that the line does not print is None."""

    at_s: float | None
    position: Position
    rank: str = ""
    text: str = ""
    is_decode: bool
    running_requests: int | None = None
    queue_requests: int | None = None
    new_sequences: int | None = None  # prefill only
    new_tokens: int | None = None  # prefill only
    cached_tokens: int | None = None  # prefill only
    used_tokens: int | None = None  # "#token" or "#full token": KV slots in use
    kv_used_ratio: float | None = None  # 0 to 1: "token usage" or "full token usage"
    tokens_per_s: float | None = None  # decode: "gen throughput"; prefill: "input throughput"
    graph: bool | None = None  # "cuda graph: True|False"; normal to be False on prefill lines
    accept_length: float | None = None  # speculation
    accept_rate: float | None = None
    retracted_requests: int | None = None
    forward_occupancy: float | None = None  # 0 to 1
    extra: Mapping[str, float] = field(default_factory=dict)  # any other numeric field, by its snake_case name


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """HTTP answers of one second, counted by status and kind of path; additive."""

    at_s: float | None
    position: Position  # of the first line counted
    status: int
    kind: str  # "generate" (a generating endpoint), "health", "metrics", "other"
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """The server_args record that begins a run (or joins another node to one). Secrets in `args` are already masked."""

    at_s: float | None
    position: Position
    args: Mapping[str, Json]
    digest: str  # 16 hex digits over the original line, secrets left out
    text: str = ""
    complete: bool = True  # False: the line was cut, `args` holds what could be read
    release_min: str | None = None  # the releases whose field set this is, oldest and newest; None if no sampled one fits
    release_max: str | None = None
    update: bool = False  # `Global server args updated!` of a rank: the run goes on with other arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A progress bar moved: the last drawing in its line."""

    at_s: float | None
    position: Position
    rank: str = ""
    what: str  # "weights", "capture", "compile", "deepgemm", "autotune" or "other"
    done: int
    total: int
    elapsed_s: float | None = None  # as the bar prints it


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What a stretch of a source held besides recognised records; additive over blocks."""

    at_s: float | None
    source: str
    lines: int
    bytes: int
    sglang_lines: int  # lines with SGLang's prefix, or recognised as SGLang's without one
    odd_lines: int  # SGLang messages found in lines without its prefix (custom logging)
    first_position: Position | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A source was opened, or a new file began in it. `from_start`: the first byte read is the first byte written."""

    at_s: float | None
    source: str
    from_start: bool
    format: str = "plain"  # plain, gzip, docker, cri, journal, export, stdin


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A stretch of a source that we know we did not see."""

    source: str
    from_s: float | None
    to_s: float | None
    reason: str  # truncated, rotated-away, unreadable, poll-failed, dropped, joined-late …
    from_offset: int | None = None
    to_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """The source has delivered all it had, and will deliver nothing stamped at or before `at_s`."""

    source: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """One process on a GPU as NVML lists it."""

    pid: int
    ppid: int | None = None
    mem_mib: float | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One reading of one GPU. None means not read, never 0. Names and units are the contract's telemetry recording."""

    at_s: float
    gpu: int  # NVML index
    source: str = "gpus"
    uuid: str | None = None
    name: str | None = None
    error: str | None = None  # NVML failure of this GPU, e.g. "GPU is lost"
    power_w: float | None = None  # the driver's 1 s average where it has one
    power_instant_w: float | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    energy_j: float | None = None
    sm_util: float | None = None  # 0-100: share of time with any kernel resident
    mem_util: float | None = None  # 0-100
    pcie_tx_kbps: float | None = None
    pcie_rx_kbps: float | None = None
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replay: int | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    mem_clock_mhz: float | None = None
    mem_clock_max_mhz: float | None = None
    temp_c: float | None = None
    pstate: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    mem_used_mib: float | None = None
    mem_total_mib: float | None = None
    sm_active: float | None = None  # 0-1, GPM
    sm_occupancy: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None
    nvlink_tx_kbps: float | None = None
    nvlink_rx_kbps: float | None = None
    ecc_uncorrected: int | None = None
    xid: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    extra: Mapping[str, float] = field(default_factory=dict)  # further numeric readings (remap_pending, recovery_action …)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuEvent:
    """An event of a GPU between samples: {"event": "xid", "xid": 79} in a recording, or the driver's event set."""

    at_s: float
    gpu: int
    event: str  # xid, lost, unresponsive, recovered
    source: str = "gpus"
    uuid: str | None = None
    xid: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Facts from another source than the log: a process command line, /server_info, /metrics, a model's config.json."""

    at_s: float
    source: str
    origin: str  # "process command line", "/server_info", "config.json", "configuration" …
    facts: Mapping[str, Json]  # dotted names: args.tp_size, model.num_experts, run.sglang_version
    error: str | None = None  # the probe failed; a time-out is itself a signal
    command: tuple[str, ...] | None = None  # arguments of the launch command, secrets masked
    started_s: float | None = None  # when that process began: it launched no run that began before


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSeen:
    """The state of a process of the server."""

    at_s: float
    source: str
    pid: int
    role: str  # launcher, scheduler, detokenizer, other
    rank: str = ""
    state: str  # running, sleeping, disk-sleep, stopped, zombie, gone
    exit_code: int | None = None
    port_open: bool | None = None
    cpu_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """An operator's word: acknowledge, unacknowledge, silence, unsilence. Arrives in order with everything else."""

    at_s: float
    action: str
    by: str
    target: str  # finding id or silence id
    note: str = ""
    until_s: float | None = None
    matchers: Mapping[str, str] = field(default_factory=dict)


LogObservation: TypeAlias = Hit | Raised | Batch | Access | Dump | Progress | Tally
Observation: TypeAlias = LogObservation | Opened | Gap | Watermark | Sample | GpuEvent | Probe | ProcessSeen | Command
