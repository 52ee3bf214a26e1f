"""Which GPUs belong to a server, and how we know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .gpus import GpuState
from .runs import RunState


@dataclass(frozen=True, slots=True)
class Placement:
    """GPU index to rank ("" where only the GPU is known). `how` says what it rests on; empty gpus mean unknown."""

    gpus: Mapping[int, str]
    how: str


def place(run: RunState | None, gpus: Sequence[GpuState]) -> Placement:
    """All GPUs of the telemetry, until processes tell more."""
    if run is None:
        return Placement({}, "no run")
    return Placement({gpu.index: "" for gpu in gpus}, "all GPUs of the telemetry")
