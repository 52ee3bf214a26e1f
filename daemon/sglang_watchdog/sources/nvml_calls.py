"""Every call into NVML goes through `Calls`: it leaves its name where the parent can read it, and its cost is kept.

The parent cannot ask a process that hangs inside the driver where it hangs. So each call writes its name into a page
that both share before it begins, and clears it afterwards.
"""

import mmap
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

PAGE_BYTES: Final = 128
_RECENT: Final = 128


class Trouble(Enum):
    """What an NVML return code means for us."""

    UNSUPPORTED = "unsupported"  # this product, driver or permission never answers: do not ask again
    EMPTY = "empty"  # nothing to say just now
    LOST = "lost"  # this GPU is gone or needs a reset
    GONE = "gone"  # the driver is gone, reloaded or replaced: only a fresh process helps
    STALE = "stale"  # the handle or an enum is not known (any more)
    ODD = "odd"  # anything else


#: NVML return codes (nvml.h) to what they mean. 17, 19, 20, 23 and 999 stay "odd".
TROUBLES: Final = {
    1: Trouble.GONE,  # Uninitialized
    2: Trouble.STALE,  # InvalidArgument
    3: Trouble.UNSUPPORTED,
    4: Trouble.UNSUPPORTED,  # NoPermission
    6: Trouble.EMPTY,  # NotFound: no sample, no process
    7: Trouble.EMPTY,  # InsufficientSize: the list grew between two calls
    9: Trouble.GONE,  # DriverNotLoaded
    10: Trouble.EMPTY,  # Timeout
    12: Trouble.GONE,  # LibraryNotFound
    13: Trouble.UNSUPPORTED,  # FunctionNotFound: driver older than the call
    15: Trouble.LOST,  # GpuIsLost
    16: Trouble.LOST,  # ResetRequired
    18: Trouble.GONE,  # LibRmVersionMismatch
    21: Trouble.EMPTY,  # NoData
    22: Trouble.UNSUPPORTED,  # VgpuEccNotSupported
    25: Trouble.UNSUPPORTED,  # ArgumentVersionMismatch: struct newer than the driver
    26: Trouble.UNSUPPORTED,  # Deprecated
    27: Trouble.EMPTY,  # NotReady: the driver still initialises
    28: Trouble.LOST,  # GpuNotFound
}


def trouble(error: Exception) -> Trouble:
    """Classify an NVMLError by its code; a call that the binding lacks is unsupported."""
    if isinstance(error, AttributeError):
        return Trouble.UNSUPPORTED
    return TROUBLES.get(int(getattr(error, "value", 999)), Trouble.ODD)


@dataclass(slots=True)
class CallCost:
    """What one NVML call has cost so far, in microseconds."""

    count: int = 0
    total_us: float = 0.0
    max_us: float = 0.0
    recent_us: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))

    def add(self, spent_us: float) -> None:
        """Note one call."""
        self.count += 1
        self.total_us += spent_us
        self.max_us = max(self.max_us, spent_us)
        self.recent_us.append(spent_us)

    def summary(self) -> dict[str, float]:
        """Count, mean over all, median of the last 128 and maximum over all."""
        ordered = sorted(self.recent_us)
        return {
            "count": self.count,
            "mean_us": round(self.total_us / self.count, 1),
            "median_us": round(ordered[len(ordered) // 2], 1),
            "max_us": round(self.max_us, 1),
        }


class Calls:
    """Calls NVML functions, names them on the shared page while they run, and keeps their costs."""

    def __init__(self, page: mmap.mmap | None = None) -> None:
        self.costs: dict[str, CallCost] = {}
        self._page = page
        self._labels: dict[tuple[int, str], bytes] = {}
        self._idle = b"".ljust(PAGE_BYTES, b"\0")

    def __call__(self, gpu: int, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run one call. `gpu` -1: of the whole driver. What it raises passes through."""
        if self._page is not None:
            label = self._labels.get((gpu, name))
            if label is None:
                label = self._labels[gpu, name] = f"{gpu} {name}".encode()[: PAGE_BYTES - 1].ljust(PAGE_BYTES, b"\0")
            self._page[:] = label
        began = time.perf_counter()
        try:
            return function(*arguments)
        finally:
            spent_us = (time.perf_counter() - began) * 1e6
            cost = self.costs.get(name)
            if cost is None:
                cost = self.costs[name] = CallCost()
            cost.add(spent_us)
            if self._page is not None:
                self._page[:] = self._idle


def read_page(page: mmap.mmap) -> tuple[int, str] | None:
    """Return GPU and name of the call that the other process is in, None between calls."""
    gpu, _, name = bytes(page[:]).rstrip(b"\0").decode("ascii", "replace").partition(" ")
    return (int(gpu), name) if name and gpu.lstrip("-").isdigit() else None
