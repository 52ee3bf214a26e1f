"""What is read of each GPU, by which NVML call, with what to try when that call is not answered.

Costs measured on H200 decide the three rates: microseconds at each tick, milliseconds at every tenth, the rest once a
minute. Every quantity is a chain, newest call first; a call that a product or driver does not know is asked once.
"""

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from .nvml_calls import Calls, Trouble, trouble
from .nvml_gpm import GpmReader
from .telemetry_recording import reason_names

Nvml: TypeAlias = Any  # the pynvml module of nvidia-ml-py, which has no types
Handle: TypeAlias = Any
Reading: TypeAlias = dict[str, Any]

_MIB: Final = 1 << 20
ALL_LINKS: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Quantity:
    """One thing to know, and the calls that tell it, best first: (name for people, function to a reading)."""

    name: str
    calls: tuple[tuple[str, Callable[[Nvml, Handle], Reading]], ...]


def _utilization(nvml: Nvml, handle: Handle) -> Reading:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    return {"sm_util": rates.gpu, "mem_util": rates.memory}


def _memory_v2(nvml: Nvml, handle: Handle) -> Reading:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    return {"mem_total_mib": memory.total / _MIB, "mem_used_mib": memory.used / _MIB, "mem_reserved_mib": memory.reserved / _MIB}


def _memory_v1(nvml: Nvml, handle: Handle) -> Reading:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)  # "used" includes what the driver reserves
    return {"mem_total_mib": memory.total / _MIB, "mem_used_mib": memory.used / _MIB}


def _reasons(function: str) -> Callable[[Nvml, Handle], Reading]:
    return lambda nvml, handle: {"throttle_reasons": list(reason_names(getattr(nvml, function)(handle)))}


def _remapped(nvml: Nvml, handle: Handle) -> Reading:
    corrected, uncorrected, pending, failed = nvml.nvmlDeviceGetRemappedRows(handle)
    return {"remap_corrected": corrected, "remap_uncorrected": uncorrected, "remap_pending": pending, "remap_failed": failed}


def _margin_to_threshold(nvml: Nvml, handle: Handle) -> Reading:
    slowdown = nvml.nvmlDeviceGetTemperatureThreshold(handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
    return {"temp_margin_c": slowdown - nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)}


def _links(nvml: Nvml, handle: Handle) -> Reading:
    states = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            states.append(nvml.nvmlDeviceGetNvLinkState(handle, link))
        except nvml.NVMLError as error:
            if link == 0 or trouble(error) not in (Trouble.UNSUPPORTED, Trouble.STALE):
                raise
            break  # links are numbered without holes; the first unknown one ends them
    return {"nvlink_links": len(states), "nvlink_links_up": sum(1 for state in states if state)}


def _fabric(version: str) -> Callable[[Nvml, Handle], Reading]:
    def read(nvml: Nvml, handle: Handle) -> Reading:
        info = getattr(nvml, f"c_nvmlGpuFabricInfo_{version}_t")()
        nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
        found = {"fabric_state": info.state, "fabric_status": info.status, "fabric_health_mask": info.healthMask}
        if version == "v3":
            found["fabric_health"] = info.healthSummary
        return found

    return read


def _one(key: str, function: str, *arguments: Any, scale: float = 1.0) -> tuple[str, Callable[[Nvml, Handle], Reading]]:
    """A call that returns one number."""

    def read(nvml: Nvml, handle: Handle) -> Reading:
        value = getattr(nvml, function)(handle, *arguments)
        return {key: value * scale if scale != 1.0 else value}

    return function, read


#: At every tick: 5 to 35 microseconds each on H200 (memory and the width of the link 60 to 90), GPM 0.2 ms, processes
#: 0.2 ms. One GPU and tick: 0.8 ms.
FAST: Final = (
    Quantity("power", (_one("power_w", "nvmlDeviceGetPowerUsage", scale=0.001),)),
    Quantity(
        "power_limit",
        (
            _one("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", scale=0.001),
            _one("power_limit_w", "nvmlDeviceGetPowerManagementLimit", scale=0.001),
        ),
    ),
    Quantity("utilization", (("nvmlDeviceGetUtilizationRates", _utilization),)),
    Quantity("sm_clock", (_one("sm_clock_mhz", "nvmlDeviceGetClockInfo", 1),)),
    Quantity("mem_clock", (_one("mem_clock_mhz", "nvmlDeviceGetClockInfo", 2),)),
    Quantity(
        "throttle_reasons",
        (
            ("nvmlDeviceGetCurrentClocksEventReasons", _reasons("nvmlDeviceGetCurrentClocksEventReasons")),
            ("nvmlDeviceGetCurrentClocksThrottleReasons", _reasons("nvmlDeviceGetCurrentClocksThrottleReasons")),
        ),
    ),
    Quantity("pstate", (_one("pstate", "nvmlDeviceGetPerformanceState"),)),
    Quantity("temperature", (_one("temp_c", "nvmlDeviceGetTemperatureV", 0), _one("temp_c", "nvmlDeviceGetTemperature", 0))),
    Quantity("memory", (("nvmlDeviceGetMemoryInfo_v2", _memory_v2), ("nvmlDeviceGetMemoryInfo", _memory_v1))),
    Quantity("pcie_gen", (_one("pcie_gen", "nvmlDeviceGetCurrPcieLinkGeneration"),)),
    Quantity("pcie_width", (_one("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"),)),
)

#: At every tenth tick of a GPU, with SLOW_FIELDS: together 5 to 10 milliseconds on H200.
SLOW: Final = (
    Quantity("pcie_replay", (_one("pcie_replay", "nvmlDeviceGetPcieReplayCounter"),)),
    Quantity("ecc", (_one("ecc_uncorrected", "nvmlDeviceGetTotalEccErrors", 1, 0),)),
    Quantity("ecc_corrected", (_one("ecc_corrected", "nvmlDeviceGetTotalEccErrors", 0, 0),)),
    Quantity("remapped_rows", (("nvmlDeviceGetRemappedRows", _remapped),)),
    Quantity(
        "temperature_margin",
        (_one("temp_margin_c", "nvmlDeviceGetMarginTemperature"), ("nvmlDeviceGetTemperatureThreshold", _margin_to_threshold)),
    ),
    Quantity("fan", (_one("fan_percent", "nvmlDeviceGetFanSpeed"),)),
    Quantity("persistence", (_one("persistence", "nvmlDeviceGetPersistenceMode"),)),
)

#: Once a minute, with RARE_FIELDS: about 10 milliseconds on H200, 2 of them for the states of its 18 NVLinks.
RARE: Final = (
    Quantity("nvlink_links", (("nvmlDeviceGetNvLinkState", _links),)),
    Quantity("fabric", (("nvmlDeviceGetGpuFabricInfoV v3", _fabric("v3")), ("nvmlDeviceGetGpuFabricInfoV v2", _fabric("v2")))),
    Quantity("mig", (("nvmlDeviceGetMigMode", lambda nvml, handle: {"mig": nvml.nvmlDeviceGetMigMode(handle)[0]}),)),
    Quantity("ecc_mode", (("nvmlDeviceGetEccMode", lambda nvml, handle: {"ecc_enabled": nvml.nvmlDeviceGetEccMode(handle)[0]}),)),
)


def _capability(nvml: Nvml, handle: Handle) -> Reading:
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return {"architecture_sm": major * 10 + minor}


#: Once for each life of the sampler. The first block rides along in every sample, so that each can be judged alone.
STATIC: Final = (
    Quantity("power_limit_default", (_one("power_limit_default_w", "nvmlDeviceGetPowerManagementDefaultLimit", scale=0.001),)),
    Quantity("sm_clock_max", (_one("sm_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", 1),)),
    Quantity("mem_clock_max", (_one("mem_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", 2),)),
    Quantity("pcie_gen_max", (_one("pcie_gen_max", "nvmlDeviceGetMaxPcieLinkGeneration"),)),
    Quantity("pcie_width_max", (_one("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),)),
)
STATIC_EXTRA: Final = (
    Quantity("pcie_gen_card_max", (_one("pcie_gen_card_max", "nvmlDeviceGetGpuMaxPcieLinkGeneration"),)),
    Quantity("architecture", (("nvmlDeviceGetCudaComputeCapability", _capability),)),
    Quantity("memory_bus", (_one("memory_bus_bits", "nvmlDeviceGetMemoryBusWidth"),)),
    Quantity(
        "bar1",
        (("nvmlDeviceGetBAR1MemoryInfo", lambda nvml, handle: {"bar1_total_mib": nvml.nvmlDeviceGetBAR1MemoryInfo(handle).bar1Total / _MIB}),),
    ),
)


@dataclass(frozen=True, slots=True)
class Field:
    """One entry of nvmlDeviceGetFieldValues. `per_s`: a counter; the reading is its rate."""

    id: int
    key: str
    scale: float = 1.0
    scope: int = 0
    per_s: bool = False


#: NVML_FI_* ids (nvml.h of CUDA 13.3). Counters of nanoseconds become shares of time. The energy counter alone costs
#: 3.5 ms on H200, the others of this batch 0.1 ms each.
SLOW_FIELDS: Final = (
    Field(83, "energy_j", 0.001),
    Field(186, "power_instant_w", 0.001),
    Field(192, "power_limit_requested_w", 0.001),
    Field(82, "mem_temp_c"),
    Field(230, "recovery_action"),
    Field(74, "throttle_share_SwPowerCap", 1e-9, per_s=True),
)
#: 0.6 ms for each PCIe counter, 1.2 for 270 and 271, 1 to 3 for each sum over the NVLinks.
RARE_FIELDS: Final = (
    Field(269, "throttle_share_SwThermalSlowdown", 1e-9, per_s=True),
    Field(270, "throttle_share_HwThermalSlowdown", 1e-9, per_s=True),
    Field(271, "throttle_share_HwPowerBrakeSlowdown", 1e-9, per_s=True),
    Field(173, "pcie_correctable"),
    Field(179, "pcie_nonfatal"),
    Field(180, "pcie_fatal"),
    Field(169, "pcie_l0_recovery"),
    Field(164, "nvlink_mbps"),
    Field(161, "nvlink_replay", scope=ALL_LINKS),
    Field(162, "nvlink_recovery", scope=ALL_LINKS),
    Field(163, "nvlink_crc", scope=ALL_LINKS),
    Field(213, "nvlink_recovered", scope=ALL_LINKS),
    Field(214, "nvlink_recovery_failed", scope=ALL_LINKS),
)
#: Used where GPM tells nothing. By known copies on H200: 52.4 GB/s to the GPU read 55.0 by GPM (packets' overhead
#: included), and 5.3 by the 32-bit byte counters at five readings a second: they wrap every 0.08 s at that rate.
PCIE_FIELDS: Final = (Field(197, "pcie_tx_kbps", 1 / 1024, per_s=True), Field(198, "pcie_rx_kbps", 1 / 1024, per_s=True))
#: KiB of payload: a copy of 382.9 GB/s over NVLink read 383.0 by field 138 and 391.9 by GPM.
NVLINK_FIELDS: Final = (Field(138, "nvlink_tx_kbps", scope=ALL_LINKS, per_s=True), Field(139, "nvlink_rx_kbps", scope=ALL_LINKS, per_s=True))


class GpuLost(Exception):
    """This GPU does not answer any more; `call` found out."""

    def __init__(self, call: str, error: Exception) -> None:
        super().__init__(f"{call}: {error}")
        self.call = call


class DriverGone(Exception):
    """The driver was unloaded, reloaded or replaced under us; a fresh process has to start over."""


class StaleHandle(Exception):
    """A call that had worked calls its arguments invalid: the handle is no longer good."""


@dataclass(slots=True)
class _Counter:
    value: int
    at_s: float


def counter_rate(before: int, now: int, seconds: float, bits: int, hint_per_s: float | None = None) -> float:
    """Return the rate of a counter of `bits` width that may have wrapped between two readings.

    A 32-bit byte counter wraps every 0.08 s at 50 GB/s. `hint_per_s`, a rate measured over a moment too short to
    wrap, tells how often.
    """
    grown = (now - before) % (1 << bits)
    if hint_per_s is not None:
        grown += max(0, round((hint_per_s * seconds - grown) / (1 << bits))) << bits
    return grown / seconds


@dataclass(slots=True)
class GpuReader:
    """Reads one GPU. Learns what it does not answer, and says so in `blind`."""

    nvml: Nvml
    calls: Calls
    index: int
    handle: Handle
    uuid: str
    name: str
    sources: dict[str, str] = field(default_factory=dict)  # quantity: the call that tells it
    blind: dict[str, str] = field(default_factory=dict)  # quantity: why nothing tells it
    static: Reading = field(default_factory=dict)
    facts: Reading = field(default_factory=dict)
    gpm: GpmReader | None = None
    odd_in_row: int = 0
    _steps: dict[str, int] = field(default_factory=dict)
    _dropped: set[tuple[int, int]] = field(default_factory=set)
    _is_without_fields: bool = False
    _counters: dict[str, _Counter] = field(default_factory=dict)
    _moments: dict[str, _Counter] = field(default_factory=dict)
    _bits: dict[str, int] = field(default_factory=dict)

    def start(self, *, gpm: bool = True) -> None:
        """Read what does not change and find out whether GPM is there (`gpm` False: do not ask).

        Raises:
            GpuLost, DriverGone: as all readings.
        """
        for quantity in STATIC:
            self.read(quantity, self.static)
        for quantity in STATIC_EXTRA:
            self.read(quantity, self.facts)
        if "mem_clock_max_mhz" in self.static and "memory_bus_bits" in self.facts:
            # double data rate; H200 says 6,016 bits: 4,814 GB/s, and a copy at GPM's 87.9 % moved 4,242
            self.facts["bandwidth_gbps"] = 2 * self.static["mem_clock_max_mhz"] * self.facts["memory_bus_bits"] / 8 / 1000
        if not gpm:
            self.blind["gpm"] = "switched off by configuration"
            return
        try:
            self.gpm = GpmReader.open(self.nvml, self.calls, self.index, self.handle)
        except self.nvml.NVMLError as error:
            self._is_unsupported("gpm", "nvmlGpmQueryDeviceSupport", error)  # raises

    def read(self, quantity: Quantity, into: Reading) -> None:
        """Read one quantity by the first call of its chain that answers. Nothing is added where none does.

        Raises:
            GpuLost, DriverGone, StaleHandle: see there.
        """
        reasons = self.blind.get(quantity.name, "")
        while (step := self._steps.get(quantity.name, 0)) < len(quantity.calls):
            name, function = quantity.calls[step]
            try:
                into.update(self.calls(self.index, name, function, self.nvml, self.handle))
            except (self.nvml.NVMLError, AttributeError) as error:
                if not self._is_unsupported(quantity.name, name, error):
                    return
                reasons = "; ".join(filter(None, (reasons, f"{name}: {error}")))
                self._steps[quantity.name] = step + 1
                continue
            self.sources[quantity.name] = name
            self.odd_in_row = 0
            return
        if reasons and quantity.name not in self.blind:
            self.blind[quantity.name] = reasons

    def read_gpm(self, into: Reading, now_s: float) -> None:
        """Read what GPM tells; where it is not there, `blind` says why."""
        if self.gpm is None:
            return
        try:
            self.gpm.read(into, now_s)
        except self.nvml.NVMLError as error:
            self._is_unsupported("gpm", "nvmlGpmMetricsGet", error)  # raises
        if self.gpm.reason:
            self.blind["gpm"] = self.gpm.reason
            self.sources.pop("gpm", None)
        elif self.gpm.answered:
            self.sources["gpm"] = "nvmlGpmMetricsGet"

    def fast_fields(self) -> tuple[Field, ...]:
        """The traffic counters to read at each tick: those that GPM does not tell (it costs less and never wraps)."""
        if self.gpm is None or self.gpm.reason:
            return PCIE_FIELDS + NVLINK_FIELDS
        if not self.gpm.has_computed:
            return ()
        return tuple(each for each in PCIE_FIELDS + NVLINK_FIELDS if each.key not in self.gpm.answered)

    def _is_unsupported(self, quantity: str, call: str, error: Exception) -> bool:
        match trouble(error):
            case Trouble.UNSUPPORTED:
                return True
            case Trouble.STALE if quantity not in self.sources:
                return True
            case Trouble.STALE:
                raise StaleHandle(call) from error
            case Trouble.LOST:
                raise GpuLost(call, error) from error
            case Trouble.GONE:
                raise DriverGone(f"{call}: {error}") from error
            case Trouble.ODD:
                self.odd_in_row += 1
                if self.odd_in_row >= 3:  # a fallen GPU may answer Unknown instead of GpuIsLost
                    raise GpuLost(call, error) from error
        return False

    def read_all(self, quantities: Iterable[Quantity], into: Reading) -> None:
        """Read several quantities."""
        for quantity in quantities:
            self.read(quantity, into)

    def read_fields(self, fields: tuple[Field, ...], into: Reading, now_s: float) -> None:
        """Read a batch of fields in one call; entries that are not answered are left out of the next batch.

        `now_s` is a monotonic time: counters become rates between two readings.
        """
        wanted = [each for each in fields if (each.id, each.scope) not in self._dropped]
        for each, entry in self._ask_fields(wanted):
            if entry.nvmlReturn != 0:
                error = self.nvml.NVMLError(entry.nvmlReturn)
                if self._is_unsupported(each.key, f"field {each.id}", error):
                    self._dropped.add((each.id, each.scope))
                    self.blind[each.key] = f"field {each.id}: {error}"
                continue
            value = field_value(entry)
            self.sources[each.key] = f"field {each.id}"
            if not each.per_s:
                into[each.key] = value * each.scale if each.scale != 1.0 else value
                continue
            self._bits[each.key] = 32 if entry.valueType == self.nvml.NVML_VALUE_TYPE_UNSIGNED_INT else 64
            rate = self._rate(each.key, int(value), now_s)
            if rate is not None:
                into[each.key] = rate * each.scale

    def _ask_fields(self, wanted: list[Field]) -> list[tuple[Field, Any]]:
        if not wanted or self._is_without_fields:
            return []
        ids = [(each.id, each.scope) for each in wanted]
        try:
            values = self.calls(self.index, "nvmlDeviceGetFieldValues", self.nvml.nvmlDeviceGetFieldValues, self.handle, ids)
        except (self.nvml.NVMLError, AttributeError) as error:
            if self._is_unsupported("fields", "nvmlDeviceGetFieldValues", error):
                self._is_without_fields = True
                self.blind.update((each.key, f"nvmlDeviceGetFieldValues: {error}") for each in wanted)
            return []
        return list(zip(wanted, values, strict=True))

    def _rate(self, key: str, value: int, now_s: float) -> float | None:
        before = self._counters.get(key)
        self._counters[key] = _Counter(value, now_s)
        if before is None or now_s <= before.at_s:
            return None
        bits = self._bits[key]
        if bits == 64 and value < before.value:
            return None  # began anew
        moment = self._moments.pop(key, None)
        hint = None
        if bits == 32 and moment is not None and now_s > moment.at_s:
            hint = counter_rate(moment.value, value, now_s - moment.at_s, bits)
        return counter_rate(before.value, value, now_s - before.at_s, bits, hint)

    def needs_moment(self) -> bool:
        """Whether PCIe traffic is known from 32-bit counters alone, so that a second reading must tell the wraps."""
        return any(self._bits.get(each.key) == 32 for each in self.fast_fields() if each in PCIE_FIELDS)

    def mark_moment(self, now_s: float) -> None:
        """Note the PCIe counters a moment before they are read for the sample."""
        wanted = [each for each in PCIE_FIELDS if (each.id, each.scope) not in self._dropped]
        for each, entry in self._ask_fields(wanted):
            if entry.nvmlReturn == 0:
                self._moments[each.key] = _Counter(int(field_value(entry)), now_s)

    def processes(self) -> list[tuple[int, float | None]] | None:
        """Return (pid, MiB or None) of the compute processes that this pid namespace may see; None if not told."""
        found: Reading = {}
        for _ in range(3):  # InsufficientSize: the list grew between the two calls of the binding
            self.read(PROCESSES, found)
            if "processes" in found or "processes" in self.blind:
                break
        listed: list[tuple[int, float | None]] | None = found.get("processes")
        return listed


def _processes(function: str) -> tuple[str, Callable[[Nvml, Handle], Reading]]:
    def read(nvml: Nvml, handle: Handle) -> Reading:
        return {"processes": [(each.pid, None if each.usedGpuMemory is None else each.usedGpuMemory / _MIB) for each in getattr(nvml, function)(handle)]}

    return function, read


PROCESSES: Final = Quantity("processes", (_processes("nvmlDeviceGetComputeRunningProcesses_v3"), _processes("nvmlDeviceGetComputeRunningProcesses_v2")))


def field_value(entry: Any) -> float | int:
    """Return the member of the value union that the entry's type names (nvmlValueType_t)."""
    member = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")[entry.valueType]
    value: float | int = getattr(entry.value, member)
    return value
