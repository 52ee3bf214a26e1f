"""The GPUs of the node: series for each, identity, and which belong to which server."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..model.observation import Json, Sample
from ..model.readings import THROTTLE_REASONS
from .series import Series, median

_KEEP_S = 900.0
_DIRECT = (
    "power_w",
    "power_limit_w",
    "sm_util",
    "mem_util",
    "sm_active",
    "sm_occupancy",
    "tensor_active",
    "dram_active",
    "pcie_gen",
    "pcie_width",
    "pcie_replay",
    "sm_clock_mhz",
    "temp_c",
    "pstate",
    "mem_used_mib",
    "ecc_uncorrected",
)
_RATIOS = {
    "power_ratio": ("power_w", "power_limit_w"),
    "power_limit_ratio": ("power_limit_w", "power_limit_default_w"),
    "pcie_gen_ratio": ("pcie_gen", "pcie_gen_max"),
    "pcie_width_ratio": ("pcie_width", "pcie_width_max"),
    "sm_clock_ratio": ("sm_clock_mhz", "sm_clock_max_mhz"),
    "mem_clock_ratio": ("mem_clock_mhz", "mem_clock_max_mhz"),
    "mem_used_ratio": ("mem_used_mib", "mem_total_mib"),
}
PAIR_FACTS = ("p2p_status", "topology")
# Distances as `nvidia-smi topo -m` names them (nvml.h, nvmlGpuTopologyLevel_t).
_TOPOLOGY = {0: "on one board", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
# Values that NVML reads rarely stay true until read again: static ones are carried from sample to sample.
_CARRIED = (
    "uuid",
    "name",
    "power_limit_w",
    "power_limit_default_w",
    "pcie_gen_max",
    "pcie_width_max",
    "sm_clock_max_mhz",
    "mem_clock_max_mhz",
    "mem_total_mib",
)


@dataclass(slots=True)
class GpuState:
    """One GPU as its samples show it."""

    index: int
    uuid: str | None = None
    name: str | None = None
    last: Sample | None = None
    series: dict[str, Series] = field(default_factory=dict)
    samples: int = 0
    lost_s: float | None = None
    peers: dict[int, dict[str, int]] = field(default_factory=dict)  # by the other's index: p2p_status, topology

    @property
    def key(self) -> str:
        """Identity of hardware findings: the UUID, else the index."""
        return self.uuid or f"index {self.index}"

    def on_sample(self, sample: Sample) -> None:
        known = self.last
        if known is not None:
            kept = {name: getattr(known, name) for name in _CARRIED if getattr(sample, name) is None}
            sample = replace(sample, **kept)
        self.last = sample
        self.uuid, self.name = sample.uuid or self.uuid, sample.name or self.name
        self.samples += 1
        for name, value in values_of(sample).items():
            self.add(name, sample.at_s, value)
        self._note_peers(sample)

    def _note_peers(self, sample: Sample) -> None:
        """Facts of pairs come among the further readings, `p2p_status_3` and `topology_3`."""
        for name, value in sample.extra.items():
            what, _, other = name.rpartition("_")
            if what in PAIR_FACTS and other.isdigit():
                self.peers.setdefault(int(other), {})[what] = int(value)

    def add(self, name: str, at_s: float, value: float) -> None:
        if name not in self.series:
            self.series[name] = Series(_KEEP_S)
        self.series[name].add(at_s, value)


def values_of(sample: Sample) -> dict[str, float]:
    """The series values that one sample gives; what was not read is left out."""
    out: dict[str, float] = {"error": 1.0 if sample.error else 0.0}
    for name in _DIRECT:
        value = getattr(sample, name)
        if value is not None:
            out[name] = float(value)
    for name, (over, under) in _RATIOS.items():
        top, bottom = getattr(sample, over), getattr(sample, under)
        if top is not None and bottom:
            out[name] = top / bottom
    for name, field_name in (("pcie_tx_bytes_per_s", "pcie_tx_kbps"), ("pcie_rx_bytes_per_s", "pcie_rx_kbps")):
        value = getattr(sample, field_name)
        if value is not None:
            out[name] = value * 1000.0  # nvmlDeviceGetPcieThroughput answers in KB/s
    if sample.nvlink_tx_kbps is not None and sample.nvlink_rx_kbps is not None:
        out["nvlink_bytes_per_s"] = (sample.nvlink_tx_kbps + sample.nvlink_rx_kbps) * 1024.0  # KiB/s
    if sample.throttle_reasons is not None:
        out |= {f"throttle.{reason}": float(reason in sample.throttle_reasons) for reason in THROTTLE_REASONS}
    out |= {f"extra.{name}": float(value) for name, value in sample.extra.items() if not name.startswith(PAIR_FACTS)}
    return out


def group_values(gpus: Iterable[GpuState], series: str, from_s: float, to_s: float) -> list[float]:
    """All values of the GPUs in the window, pooled."""
    values: list[float] = []
    for gpu in gpus:
        found = gpu.series.get(series)
        if found is not None:
            values += found.window(from_s, to_s)
    return values


def medians(gpus: Iterable[GpuState], series: str, from_s: float, to_s: float) -> Mapping[int, float]:
    """Each GPU's median in the window, for GPUs that have a value there."""
    out: dict[int, float] = {}
    for gpu in gpus:
        found = gpu.series.get(series)
        values = found.window(from_s, to_s) if found is not None else []
        if values:
            out[gpu.index] = median(values)
    return out


def pairs_of(gpus: Iterable[GpuState]) -> dict[str, Json]:
    """What is known of the pairs of a group, for gpu.*: those without peer access, and how far apart the farthest sit."""
    group = sorted(gpus, key=lambda gpu: gpu.index)
    pairs = [(one.index, other.index, one.peers.get(other.index, {})) for at, one in enumerate(group) for other in group[at + 1 :]]
    told = [(one, other, pair["p2p_status"]) for one, other, pair in pairs if "p2p_status" in pair]
    out: dict[str, Json] = {}
    if told and len(told) == len(pairs):
        refused = [(one, other) for one, other, status in told if status != 0]
        out["pairs"], out["pairs_refused"] = len(told), len(refused)
        shown = ", ".join(f"{one}-{other}" for one, other in refused[:6])
        out["pairs_refused_text"] = shown + (" …" if len(refused) > 6 else "")
    levels = [pair["topology"] for _, _, pair in pairs if "topology" in pair]
    if levels and len(levels) == len(pairs):
        out["topology_level"] = max(levels)
        out["topology"] = _TOPOLOGY.get(max(levels), str(max(levels)))
    return out
