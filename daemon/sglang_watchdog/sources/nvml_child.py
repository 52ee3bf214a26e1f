"""The process that talks to NVML, started by the sampler as `python -m sglang_watchdog.sources.nvml_child`.

A call into NVML can block for ever in the kernel, and then nothing in its process can be ended. So this process holds
nothing but the sampler, writes JSON lines to its standard output (readings in the schema of recordings, and messages
with a "kind"), and is thrown away when it hangs. It leaves by itself when the driver is gone or replaced, because a
library that was loaded before a driver's update keeps failing; a fresh process loads the fresh library.
"""

import argparse
import ctypes
import json
import mmap
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from .nvml_calls import PAGE_BYTES, Calls, Trouble, trouble
from .nvml_pairs import read_pairs
from .nvml_processes import ProcessNames
from .nvml_quantities import FAST, RARE, RARE_FIELDS, SLOW, SLOW_FIELDS, DriverGone, GpuLost, GpuReader, Nvml, Reading, StaleHandle

_SLOW_EVERY: Final = 10  # ticks
_RARE_EVERY: Final = 60
_BENCH_RETRY_S: Final = 60.0
_MOMENT_S: Final = 0.02  # long enough for a rate, too short for a 32-bit byte counter to wrap (0.08 s at 50 GB/s)
_EVENT_WAIT_MS: Final = 1000
_XID: Final = 0x8
_GPU_UNAVAILABLE: Final = 0x4000

Emit = Callable[[dict[str, Any]], None]


class Leave(Exception):
    """The process ends on purpose; `why` is a word for the parent, the message is for people."""

    def __init__(self, why: str, text: str) -> None:
        super().__init__(text)
        self.why = why


@dataclass(slots=True)
class Bench:
    """A GPU that is not asked for a while."""

    error: str
    retry_at_s: float


@dataclass(slots=True)
class Gpu:
    """One index of NVML's list: its reader, or the reason why it has none."""

    index: int
    reader: GpuReader | None = None
    bench: Bench | None = None
    uuid: str | None = None
    name: str | None = None
    energy_j: float | None = None
    listed_s: float = float("-inf")  # when its processes were
    mig: int | None = None
    instances: list[str] = field(default_factory=list)


class Sampler:
    """All GPUs of this node, tick by tick. Not for use by more than one thread, events apart."""

    def __init__(self, nvml: Nvml, calls: Calls, emit: Emit, *, skip: dict[int, tuple[str, float]], gpm: bool = True, process_s: float = 0.0) -> None:
        """`skip`: GPU index to (why, seconds): GPUs in whose calls an earlier process hung. `gpm` False: leave it alone.

        `process_s`: processes are listed this often, 0: at every tick.
        """
        self._nvml = nvml
        self._calls = calls
        self._emit = emit
        self._names = ProcessNames()
        self._pids: set[int] = set()  # seen since the last status
        self._ticks = 0
        self._gpus: list[Gpu] = []
        self._skip = skip
        self._gpm = gpm
        self._process_s = process_s

    def start(self) -> None:
        """Open NVML and all GPUs, and say hello.

        Raises:
            Leave: no library, no driver, a library of another version, or no GPU.
        """
        try:
            self._calls(-1, "nvmlInit", self._nvml.nvmlInit)
            count = self._calls(-1, "nvmlDeviceGetCount", self._nvml.nvmlDeviceGetCount)
        except self._nvml.NVMLError as error:
            raise Leave(_why(error), _advice(error)) from error
        if count == 0:
            raise Leave("no-gpu", "the driver answers but lists no GPU; in a container, pass one with --gpus")
        now_s = time.monotonic()
        for index in range(count):
            gpu = Gpu(index)
            self._gpus.append(gpu)
            if index in self._skip:
                why, for_s = self._skip[index]
                gpu.bench = Bench(why, now_s + for_s)
            else:
                self._open(gpu)
        for gpu in self._gpus:
            self._read_pairs(gpu)
        self._say_hello()

    def _read_pairs(self, gpu: Gpu) -> None:
        if gpu.reader is not None:
            others = [other.reader for other in self._gpus if other.reader is not None and other is not gpu]
            read_pairs(self._nvml, self._calls, gpu.reader, [other for other in others if f"p2p_status_{other.index}" not in gpu.reader.facts])

    def _open(self, gpu: Gpu) -> None:
        """Look a GPU up and read what does not change; a failure benches it."""
        nvml, calls, index = self._nvml, self._calls, gpu.index
        try:
            handle = calls(index, "nvmlDeviceGetHandleByIndex", nvml.nvmlDeviceGetHandleByIndex, index)
            uuid = calls(index, "nvmlDeviceGetUUID", nvml.nvmlDeviceGetUUID, handle)
            name = calls(index, "nvmlDeviceGetName", nvml.nvmlDeviceGetName, handle)
            reader = GpuReader(nvml, calls, index, handle, uuid, name)
            reader.start(gpm=self._gpm)
        except nvml.NVMLError as error:
            if trouble(error) is Trouble.GONE:
                raise DriverGone(str(error)) from error
            self._put_on_bench(gpu, str(error))
            return
        except (GpuLost, StaleHandle) as error:
            self._put_on_bench(gpu, str(error))
            return
        gpu.reader, gpu.uuid, gpu.name = reader, uuid, name
        if gpu.bench is not None:
            gpu.bench = None
            self._event(gpu, "recovered", "answers again")

    def _put_on_bench(self, gpu: Gpu, error: str) -> None:
        is_new = gpu.bench is None
        gpu.bench = Bench(error, time.monotonic() + _BENCH_RETRY_S)
        gpu.reader = None
        if is_new:
            self._event(gpu, "lost", error)

    def _event(self, gpu: Gpu, event: str, reason: str, xid: int | None = None) -> None:
        entry = {"ts": round(time.time(), 3), "gpu": gpu.index, "event": event, "uuid": gpu.uuid, "reason": reason}
        self._emit(entry | ({} if xid is None else {"xid": xid}))

    def _say_hello(self) -> None:
        nvml = self._nvml
        told = {}
        for key, function in (
            ("driver", "nvmlSystemGetDriverVersion"),
            ("nvml", "nvmlSystemGetNVMLVersion"),
            ("cuda", "nvmlSystemGetCudaDriverVersion_v2"),
        ):
            try:
                told[key] = str(self._calls(-1, function, getattr(nvml, function)))
            except (nvml.NVMLError, AttributeError) as error:
                told[key] = f"unknown ({error})"
        gpus = [{"gpu": gpu.index, "uuid": gpu.uuid, "name": gpu.name, **({"error": gpu.bench.error} if gpu.bench else {})} for gpu in self._gpus]
        self._emit({"kind": "hello", **told, "gpus": gpus})

    def handles(self) -> list[tuple[Gpu, Any]]:
        """Return the GPUs that answer, with their handles, for the event set."""
        return [(gpu, gpu.reader.handle) for gpu in self._gpus if gpu.reader is not None]

    def tick(self, at_s: float) -> None:
        """Read every GPU once and emit its sample, stamped `at_s`.

        Raises:
            Leave: the driver is gone, or no GPU answers any more.
        """
        self._mark_moment()
        for gpu in self._gpus:
            if gpu.bench is not None and time.monotonic() >= gpu.bench.retry_at_s:
                self._open(gpu)
                self._read_pairs(gpu)
        for gpu in self._gpus:
            self._emit(self._sample(gpu, at_s))
        self._ticks += 1
        if self._ticks == 1 or self._ticks % _SLOW_EVERY == 0:
            self._emit(self.status())
        if all(gpu.bench is not None for gpu in self._gpus) and len(self._gpus) > len(self._skip):
            raise Leave("lost-all", f"no GPU answers: {self._gpus[0].bench and self._gpus[0].bench.error}")

    def _mark_moment(self) -> None:
        needy = [gpu.reader for gpu in self._gpus if gpu.reader is not None and gpu.reader.needs_moment()]
        for reader in needy:
            try:
                reader.mark_moment(time.monotonic())
            except (GpuLost, StaleHandle):
                continue  # the reading that follows finds the same and deals with it
        if needy:
            time.sleep(_MOMENT_S)

    def _sample(self, gpu: Gpu, at_s: float) -> Reading:
        sample: Reading = {"ts": at_s, "gpu": gpu.index, "uuid": gpu.uuid, "name": gpu.name}
        if gpu.reader is not None:
            try:
                readings = self._read(gpu, gpu.reader)
            except StaleHandle:
                self._open(gpu)  # looked up once more; the next tick reads it
                sample["error"] = "stale handle, looked up again"
            except GpuLost as error:
                self._put_on_bench(gpu, str(error))
            else:
                return sample | readings
        if gpu.bench is not None:
            sample["error"] = gpu.bench.error
        return sample

    def _read(self, gpu: Gpu, reader: GpuReader) -> Reading:
        began = time.perf_counter()
        now_s = time.monotonic()
        readings: Reading = dict(reader.static)
        reader.read_all(FAST, readings)
        reader.read_gpm(readings, now_s)
        reader.read_fields(reader.fast_fields(), readings, now_s)
        is_due = now_s - gpu.listed_s >= 0.75 * self._process_s  # ticks come up to a tenth early
        processes = reader.processes() if is_due else None
        if is_due:
            gpu.listed_s = now_s
        if processes is not None:
            readings["processes"] = [self._process(pid, mem_mib) for pid, mem_mib in processes]
        turn = self._ticks + gpu.index  # spread the slow blocks of several GPUs over the ticks
        if turn % _SLOW_EVERY == 0 or self._ticks == 0:
            reader.read_all(SLOW, readings)
            reader.read_fields(SLOW_FIELDS, readings, now_s)
            readings.update(reader.facts)
            self._notice_reload(gpu, readings.get("energy_j"))
        if turn % _RARE_EVERY == 0 or self._ticks == 0:
            reader.read_all(RARE, readings)
            reader.read_fields(RARE_FIELDS, readings, now_s)
            self._notice_mig(gpu, reader, readings.get("mig"))
        readings["read_ms"] = (time.perf_counter() - began) * 1e3
        return {key: round(value, 4) if isinstance(value, float) else value for key, value in readings.items()}

    def _process(self, pid: int, mem_mib: float | None) -> dict[str, Any]:
        self._pids.add(pid)
        ppid, name = self._names.look_up(pid)
        entry = {"pid": pid, "ppid": ppid, "mem_mib": None if mem_mib is None else round(mem_mib), "name": name}
        return {key: value for key, value in entry.items() if value is not None}

    def _notice_reload(self, gpu: Gpu, energy_j: float | None) -> None:
        if energy_j is None:
            return
        if gpu.energy_j is not None and energy_j < gpu.energy_j:
            raise Leave("driver-reloaded", f"the energy counter of GPU {gpu.index} began anew: the driver was reloaded")
        gpu.energy_j = energy_j

    def _notice_mig(self, gpu: Gpu, reader: GpuReader, mig: int | None) -> None:
        if gpu.mig is not None and mig is not None and mig != gpu.mig:
            # what can be read changes with the mode, and so do the handles
            raise Leave("mig-toggled", f"MIG mode of GPU {gpu.index} changed to {mig}")
        gpu.mig = mig
        gpu.instances = self._mig_instances(reader) if mig else []

    def _mig_instances(self, reader: GpuReader) -> list[str]:
        nvml, found = self._nvml, []
        try:
            for place in range(self._calls(reader.index, "nvmlDeviceGetMaxMigDeviceCount", nvml.nvmlDeviceGetMaxMigDeviceCount, reader.handle)):
                try:
                    handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(reader.handle, place)
                except nvml.NVMLError_NotFound:
                    continue  # a hole: this place holds no instance
                found.append(str(nvml.nvmlDeviceGetUUID(handle)))
        except nvml.NVMLError as error:
            reader.blind["mig_instances"] = str(error)
        return found

    def status(self) -> dict[str, Any]:
        """What is read how, what is not and why, and what each call costs."""
        self._names.forget_all_but(self._pids)
        self._pids = set()
        times = os.times()
        return {
            "kind": "status",
            "gpus": [
                {
                    "gpu": gpu.index,
                    "uuid": gpu.uuid,
                    "name": gpu.name,
                    "error": gpu.bench.error if gpu.bench else None,
                    "sources": gpu.reader.sources if gpu.reader else {},
                    "blind": gpu.reader.blind if gpu.reader else {},
                    "facts": {**gpu.reader.static, **gpu.reader.facts} if gpu.reader else {},
                    "mig_instances": gpu.instances,
                }
                for gpu in self._gpus
            ],
            "calls": {name: cost.summary() for name, cost in sorted(self._calls.costs.items())},
            "cpu_s": round(times.user + times.system, 3),
        }


def _why(error: Exception) -> str:
    return {9: "no-driver", 12: "no-library", 18: "mismatch"}.get(int(getattr(error, "value", 0)), "init-failed")


def _advice(error: Exception) -> str:
    return str(error) + {
        "no-library": ": libnvidia-ml.so.1 is not here; install the NVIDIA driver, or give the container its runtime",
        "no-driver": ": the kernel module nvidia is not loaded",
        "mismatch": ": the driver was updated under its running kernel module; new CUDA programs fail until a reload",
    }.get(_why(error), "")


class EventReader(threading.Thread):
    """Waits for Xid and GPU-unavailable events; NVML allows that from a second thread of the process."""

    def __init__(self, nvml: Nvml, handles: list[tuple[Gpu, Any]], emit: Emit) -> None:
        super().__init__(name="nvml-events", daemon=True)
        self._nvml = nvml
        self._handles = handles
        self._emit = emit
        self._burst: dict[tuple[int, int], int] = {}

    def run(self) -> None:
        """Register and wait for ever; without event support, say so once and end."""
        nvml = self._nvml
        try:
            events = nvml.nvmlEventSetCreate()
            by_handle = {}
            for gpu, handle in self._handles:
                mask = nvml.nvmlDeviceGetSupportedEventTypes(handle) & (_XID | _GPU_UNAVAILABLE)
                nvml.nvmlDeviceRegisterEvents(handle, mask, events)
                by_handle[_address(handle)] = gpu
        except (nvml.NVMLError, AttributeError) as error:
            self._emit({"kind": "events", "error": f"no events: {error}"})
            return
        self._emit({"kind": "events", "error": None})
        while True:
            try:
                self._take(nvml.nvmlEventSetWait_v2(events, _EVENT_WAIT_MS), by_handle)
            except nvml.NVMLError as error:
                self._end_burst()
                if trouble(error) is not Trouble.EMPTY:
                    self._emit({"kind": "events", "error": f"events ended: {error}"})
                    return

    def _take(self, data: Any, by_handle: dict[int, Gpu]) -> None:
        gpu = by_handle.get(_address(data.device))
        if gpu is None:
            return
        if data.eventType == _GPU_UNAVAILABLE:
            self._say(gpu, "lost", None, "the driver says the GPU is unavailable")
            return
        code = int(data.eventData)
        place = (gpu.index, code)
        if place not in self._burst:  # the first of a burst at once, the rest as a number when it is over
            self._burst[place] = 0
            self._say(gpu, "xid", code, "")
        else:
            self._burst[place] += 1

    def _end_burst(self) -> None:
        for (index, code), repeats in self._burst.items():
            if repeats:
                gpu = next(gpu for gpu, _ in self._handles if gpu.index == index)
                self._say(gpu, "xid", code, f"{repeats} more of the same")
        self._burst.clear()

    def _say(self, gpu: Gpu, event: str, xid: int | None, reason: str) -> None:
        entry = {"ts": round(time.time(), 3), "gpu": gpu.index, "event": event, "uuid": gpu.uuid, "reason": reason, "xid": xid}
        self._emit({key: value for key, value in entry.items() if value is not None})


def _address(handle: Any) -> int:
    """The driver's pointer behind a handle; event data carries another Python object with the same pointer."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


class Output:
    """Writes JSON lines to a file descriptor, whole lines at a time, from several threads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def __call__(self, entry: dict[str, Any]) -> None:
        """Write one line; a parent that is gone ends this process."""
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
            except BrokenPipeError:
                os._exit(0)


def run(options: argparse.Namespace, emit: Emit, page: mmap.mmap | None) -> None:
    """Sample for ever.

    Raises:
        Leave: see `Sampler`.
    """
    try:
        import pynvml  # noqa: PLC0415  # the only process that may load it
    except ImportError as error:
        raise Leave("no-binding", f"{error}; install nvidia-ml-py") from error
    if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
        raise Leave("no-binding", "the module pynvml is not nvidia-ml-py's; uninstall the package named pynvml")
    parent = os.getppid()
    skip = {int(index): (str(why), float(for_s)) for index, (why, for_s) in json.loads(options.skip).items()}
    sampler = Sampler(pynvml, Calls(page), emit, skip=skip, gpm=not options.no_gpm, process_s=options.process_period)
    try:
        sampler.start()
        EventReader(pynvml, sampler.handles(), emit).start()
        period_s = options.period
        due = time.monotonic()
        stamp = Stamp()
        while os.getppid() == parent:
            began = time.perf_counter()
            at_s = stamp.next()
            sampler.tick(at_s)
            cost_ms = (time.perf_counter() - began) * 1e3
            period_s = _paced(period_s, cost_ms, options.period)
            due = max(due + period_s, time.monotonic() - period_s)
            wait_s = due + random.uniform(-0.1, 0.1) * period_s - time.monotonic()  # noqa: S311  # not a secret
            wait_s = max(wait_s, 0.05 * period_s)
            emit({"kind": "tick", "ts": at_s, "next_s": round(time.time() + wait_s, 3), "ms": round(cost_ms, 3), "period_s": period_s})
            time.sleep(wait_s)
    except DriverGone as error:
        raise Leave("driver-gone", str(error)) from error


def _paced(period_s: float, cost_ms: float, wanted_s: float) -> float:
    """Halve the rate while ticks cost more than 200 ms; a slow driver is not helped by asking more often."""
    if cost_ms > 200:
        return min(period_s * 2, wanted_s * 8)
    return max(wanted_s, period_s / 2) if cost_ms < 50 else period_s


class Stamp:
    """Wall-clock stamps that do not run backwards at small corrections of the clock."""

    def __init__(self) -> None:
        self._at_s = 0.0
        self._monotonic_s = 0.0

    def next(self) -> float:
        """Return the time now in whole milliseconds; a step back of up to 5 s is ironed out, a greater one taken."""
        wall_s, monotonic_s = time.time(), time.monotonic()
        ironed_s = self._at_s + 0.9 * (monotonic_s - self._monotonic_s)
        at_s = ironed_s if wall_s < ironed_s < wall_s + 5 else wall_s
        self._at_s, self._monotonic_s = at_s, monotonic_s
        return round(at_s, 3)


def main(arguments: list[str]) -> int:
    """Entry of the process. Its last line is always {"kind": "bye"} unless it is killed."""
    parser = argparse.ArgumentParser(prog="sglang_watchdog.sources.nvml_child")
    parser.add_argument("--period", type=float, default=1.0, help="seconds between two ticks")
    parser.add_argument("--page", type=int, default=-1, help="descriptor of the page that names the running call")
    parser.add_argument("--process-period", type=float, default=0.0, help="seconds between two lists of processes")
    parser.add_argument("--no-gpm", action="store_true", help="leave the profiling counters to others")
    parser.add_argument("--skip", default="{}", help='GPUs not to touch at first: {"3": ["why", seconds]}')
    options = parser.parse_args(arguments)
    page = mmap.mmap(options.page, PAGE_BYTES) if options.page >= 0 else None
    emit = Output(sys.stdout.fileno())
    try:
        run(options, emit, page)
    except Leave as leave:
        emit({"kind": "bye", "why": leave.why, "text": str(leave)})
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
