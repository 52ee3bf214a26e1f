"""GPU Performance Monitoring: activity of the SMs, the tensor pipes, DRAM, PCIe and NVLink (Hopper and newer).

A metric is computed between two snapshots at least 100 ms apart; the last tick's snapshot is kept, so a reading costs
one snapshot (0.06 to 0.3 ms on H200) and one computation (0.03 to 0.15 ms for the eight metrics below, 2 ms for
fourteen). Snapshots are taken one GPU after the other: taking several in parallel has crashed a client of another
language.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from .nvml_calls import Calls, Trouble, trouble

#: nvmlGpmMetricId_t to key and scale. Percent become ratios, MiB/s KiB/s. PCIe as the GPU sees it: rx is host to GPU.
METRICS: Final = {
    2: ("sm_active", 0.01),
    3: ("sm_occupancy", 0.01),
    5: ("tensor_active", 0.01),
    10: ("dram_active", 0.01),
    20: ("pcie_tx_kbps", 1024.0),
    21: ("pcie_rx_kbps", 1024.0),
    60: ("nvlink_rx_kbps", 1024.0),
    61: ("nvlink_tx_kbps", 1024.0),
}
_APART_S: Final = 0.12  # nvml.h wants more than 100 ms between two snapshots


@dataclass(slots=True)
class GpmReader:
    """GPM of one GPU; `reason` tells why there is none. `answered` holds the keys it has ever told."""

    nvml: Any
    calls: Calls
    index: int
    handle: Any
    reason: str = ""
    answered: set[str] = field(default_factory=set)
    has_computed: bool = False
    _metrics: dict[int, tuple[str, float]] = field(default_factory=lambda: dict(METRICS))
    _before: Any = None
    _spare: Any = None
    _before_s: float = 0.0
    _request: Any = None

    @classmethod
    def open(cls, nvml: Any, calls: Calls, index: int, handle: Any) -> "GpmReader":
        """Ask whether the GPU has GPM and allocate its two snapshots."""
        reader = cls(nvml, calls, index, handle)
        try:
            support = calls(index, "nvmlGpmQueryDeviceSupport", nvml.nvmlGpmQueryDeviceSupport, handle)
            if not support.isSupportedDevice:
                reader.reason = "nvmlGpmQueryDeviceSupport: not on this product (Hopper and newer have it)"
                return reader
            reader._before, reader._spare = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
            reader._request = nvml.c_nvmlGpmMetricsGet_t()
        except (nvml.NVMLError, AttributeError) as error:
            if trouble(error) in (Trouble.LOST, Trouble.GONE):
                raise
            reader.reason = f"nvmlGpmQueryDeviceSupport: {error}"
        return reader

    def read(self, into: dict[str, Any], now_s: float) -> None:
        """Add the metrics since the last reading. A metric that the driver does not know is asked once.

        Raises:
            NVMLError: the GPU or driver is gone; anything else ends GPM here, with its reason.
        """
        if self.reason or (self._before_s and now_s - self._before_s < _APART_S):
            return
        nvml = self.nvml
        try:
            self.calls(self.index, "nvmlGpmSampleGet", nvml.nvmlGpmSampleGet, self.handle, self._spare)
            if self._before_s:
                self._compute(into)
        except nvml.NVMLError as error:
            if trouble(error) in (Trouble.LOST, Trouble.GONE):
                raise
            if trouble(error) is not Trouble.EMPTY:
                self.reason = f"GPM: {error}; another profiler (nv-hostengine, Nsight) may hold the counters"
            return
        self._before, self._spare = self._spare, self._before
        self._before_s = now_s

    def _compute(self, into: dict[str, Any]) -> None:
        request = self._request
        request.version = self.nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(self._metrics)
        request.sample1, request.sample2 = self._before, self._spare
        for place, metric in enumerate(self._metrics):
            request.metrics[place].metricId = metric
        self.calls(self.index, "nvmlGpmMetricsGet", self.nvml.nvmlGpmMetricsGet, request)
        self.has_computed = True
        for place, (metric, (key, scale)) in enumerate(list(self._metrics.items())):
            answer = request.metrics[place]
            if answer.nvmlReturn == 0 and answer.value == answer.value:  # not NaN
                into[key] = answer.value * scale
                self.answered.add(key)
            elif trouble(self.nvml.NVMLError(answer.nvmlReturn)) in (Trouble.UNSUPPORTED, Trouble.STALE):
                del self._metrics[metric]
