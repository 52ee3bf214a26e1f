"""What the telemetry source knows about itself: for `/api/v1/gpus`, `doctor` and the findings about blind telemetry."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from ..model.observation import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuStatus:
    """One GPU as the sampler sees it."""

    gpu: int
    uuid: str | None = None
    name: str | None = None
    error: str | None = None  # why it is not asked at present
    sources: Mapping[str, str] = field(default_factory=dict)  # quantity: the NVML call that tells it
    blind: Mapping[str, str] = field(default_factory=dict)  # quantity: why nothing tells it
    facts: Mapping[str, Json] = field(default_factory=dict)  # maxima, architecture, bandwidth
    mig_instances: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlStatus:
    """State is one of: starting, sampling, no-library, no-driver, mismatch, no-gpu, no-binding, init-failed, lost-all,
    driver-gone, driver-reloaded, mig-toggled, hung, stuck (hung, and the kernel does not let it die), crashed, stopped.
    """

    state: str = "starting"
    reason: str = ""
    since_s: float | None = None
    driver: str | None = None
    nvml: str | None = None
    cuda: str | None = None
    events_error: str | None = "not registered yet"  # None: Xid events are delivered
    period_s: float | None = None
    tick_ms: float | None = None  # what the last tick cost
    tick_max_ms: float | None = None
    cpu_ratio: float | None = None  # of one core, over the last ten ticks
    child_pid: int | None = None
    children: int = 0  # processes started so far
    gpus: tuple[GpuStatus, ...] = ()
    calls: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # name: count, mean, median, max in microseconds

    @property
    def is_up(self) -> bool:
        """Whether samples come."""
        return self.state == "sampling"

    def to_json(self) -> dict[str, Json]:
        """The same as plain JSON values."""
        return asdict(self)


def advice(state: str) -> str:
    """Return what a person can do about a state; empty where nothing is wrong."""
    return {
        "no-library": "Install the NVIDIA driver, or give the container its runtime; logs are watched meanwhile.",
        "no-driver": "Load the kernel module (modprobe nvidia); it is tried again every minute.",
        "mismatch": "The driver was updated under its kernel module: reload it or reboot, then restart the servers.",
        "no-gpu": "Give the container a GPU (--gpus), or bind the card to the NVIDIA driver.",
        "no-binding": "Install nvidia-ml-py and uninstall the package named pynvml.",
        "hung": "A call into the driver did not return and its process was ended; see the kernel log for Xid lines.",
        "stuck": "The driver holds a process in the kernel that cannot be ended: drain the node and reboot it.",
        "lost-all": "No GPU answers any more; look for Xid 79 in the kernel log, then power-cycle the node.",
        "crashed": "The sampler process ended by itself; its last words are in the reason.",
    }.get(state, "")
