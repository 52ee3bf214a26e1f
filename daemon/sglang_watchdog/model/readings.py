"""What one sample of a GPU holds beside its time, index, processes and extras: names in the order of documents, with their types."""

from collections.abc import Mapping
from typing import Final

#: Bit of `nvmlDeviceGetCurrentClocksEventReasons` to the contract's name; the order is the order in samples.
THROTTLE_BITS: Final[Mapping[int, str]] = {
    0x001: "GpuIdle",
    0x002: "ApplicationsClocksSetting",
    0x004: "SwPowerCap",
    0x008: "HwSlowdown",
    0x010: "SyncBoost",
    0x020: "SwThermalSlowdown",
    0x040: "HwThermalSlowdown",
    0x080: "HwPowerBrakeSlowdown",
    0x100: "DisplayClockSetting",
}
THROTTLE_REASONS: Final = tuple(THROTTLE_BITS.values())

#: Fields of model.observation.Sample as recordings and the API name them.
SAMPLE_FIELDS: Final[Mapping[str, type]] = {
    "uuid": str,
    "name": str,
    "error": str,
    "power_w": float,
    "power_instant_w": float,
    "power_limit_w": float,
    "power_limit_default_w": float,
    "energy_j": float,
    "sm_util": float,
    "mem_util": float,
    "pcie_tx_kbps": float,
    "pcie_rx_kbps": float,
    "pcie_gen": int,
    "pcie_gen_max": int,
    "pcie_width": int,
    "pcie_width_max": int,
    "pcie_replay": int,
    "sm_clock_mhz": float,
    "sm_clock_max_mhz": float,
    "mem_clock_mhz": float,
    "mem_clock_max_mhz": float,
    "temp_c": float,
    "pstate": int,
    "mem_used_mib": float,
    "mem_total_mib": float,
    "sm_active": float,
    "sm_occupancy": float,
    "tensor_active": float,
    "dram_active": float,
    "nvlink_tx_kbps": float,
    "nvlink_rx_kbps": float,
    "ecc_uncorrected": int,
    "xid": int,
}


def names_of(kind: type) -> tuple[str, ...]:
    """The fields of one type."""
    return tuple(name for name, each in SAMPLE_FIELDS.items() if each is kind)
