"""What the driver says of each pair of GPUs: peer access and how far apart they sit. Read once; a pair that is not told is left out.

A status of "ok" does not prove that copies between the two work: only SGLang's own test at its start does.
"""

from collections.abc import Iterator
from typing import Final

from .nvml_calls import Calls, Trouble, trouble
from .nvml_quantities import DriverGone, GpuReader, Nvml

_READ: Final = 0  # NVML_P2P_CAPS_INDEX_READ and WRITE; nvidia-ml-py 13 gives the first as a tuple by mistake
_WRITE: Final = 1
_MOST_GPUS: Final = 16  # 360 calls


def read_pairs(nvml: Nvml, calls: Calls, one: GpuReader, others: list[GpuReader]) -> None:
    """Put `p2p_status_N` and `topology_N` into the facts of both GPUs of each pair; N is the other's index.

    Raises:
        DriverGone: the driver was unloaded or replaced.
    """
    if len(others) >= _MOST_GPUS:
        return
    for other in others:
        for name, value in _told(nvml, calls, one, other):
            one.facts[f"{name}_{other.index}"] = value
            other.facts[f"{name}_{one.index}"] = value


def _told(nvml: Nvml, calls: Calls, one: GpuReader, other: GpuReader) -> Iterator[tuple[str, int]]:
    try:
        status = [
            int(calls(one.index, "nvmlDeviceGetP2PStatus", nvml.nvmlDeviceGetP2PStatus, one.handle, other.handle, kind)) for kind in (_READ, _WRITE)
        ]
        yield "p2p_status", max(status)
    except (nvml.NVMLError, AttributeError) as error:
        _unless_gone(error)
    try:
        name = "nvmlDeviceGetTopologyCommonAncestor"
        yield "topology", int(calls(one.index, name, nvml.nvmlDeviceGetTopologyCommonAncestor, one.handle, other.handle))
    except (nvml.NVMLError, AttributeError) as error:
        _unless_gone(error)


def _unless_gone(error: Exception) -> None:
    """A driver or a virtual machine that does not tell is an ordinary state; one that is gone is not."""
    if trouble(error) is Trouble.GONE:
        raise DriverGone(str(error)) from error
