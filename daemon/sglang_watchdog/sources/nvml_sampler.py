"""Keeps a child process that samples NVML, and turns what it says into observations. Never blocks the event loop.

Hang protocol: a child that is silent for ten seconds is killed, and the GPU and call that it was in become a GpuEvent
"unresponsive". One that even then stays (uninterruptible in the kernel) is abandoned, and no other process touches the
driver for five minutes, since it would hang as well. At most three children an hour are lost that way.
"""

import asyncio
import contextlib
import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final

from ..model.observation import Gap, GpuEvent, Observation, Sample, Watermark
from .nvml_calls import PAGE_BYTES, read_page
from .nvml_status import GpuStatus, NvmlStatus
from .telemetry_recording import MalformedSample, decode_line
from .turns import Turns

Put = Callable[[Observation], Awaitable[None]]

_LINE_LIMIT: Final = 1 << 22
_HOUR_S: Final = 3600.0
_STEP_S: Final = 5.0  # what is older than the watermark by more is no late tick but another clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When the child counts as late, hung or hopeless; seconds."""

    late_s: float = 0.25  # after its promised tick: a gap is said and the log no longer waits
    silent_s: float = 10.0  # no line at all: it hangs
    init_silent_s: float = 60.0  # opening eight GPUs without persistence mode takes several seconds each
    kill_wait_s: float = 2.0  # a process that SIGKILL has not ended by then is stuck in the kernel
    pause_after_stuck_s: float = 300.0
    retry_s: float = 60.0  # no driver, no library, no GPU
    restart_s: float = 1.0  # after a hang, a crash or a reload
    skip_s: float = 300.0  # how long a new child leaves the GPU alone in which the last one hung
    hangs_per_hour: int = 3


@dataclass(frozen=True, slots=True)
class _End:
    """How a child ended and how long to wait before the next."""

    state: str
    reason: str
    wait_s: float


class NvmlSampler:
    """The telemetry source of a node with NVIDIA GPUs: `run` for ever, `status` at any time."""

    def __init__(
        self,
        put: Put,
        *,
        source: str = "gpus",
        period_s: float = 1.0,
        process_s: float = 0.0,
        gpm: bool = True,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.time,
        environment: Mapping[str, str] | None = None,
        kill: Callable[[int, int], None] = os.kill,
    ) -> None:
        """`put` receives the observations in the order of their times. `environment` is the child's (default: ours).

        `process_s` is how often processes are listed, 0: at every tick.
        `gpm` False leaves GPU Performance Monitoring alone, for machines where another profiler holds its counters.
        """
        self._put = put
        self._source = source
        self._period_s = period_s
        self._process_s = process_s
        self._gpm = gpm
        self._limits = limits or Limits()
        self._clock = clock
        self._environment = environment
        self._kill = kill
        self._status = NvmlStatus()
        self._watermark_s = float("-inf")
        self._shift_s = 0.0
        self._tick_at_s: float | None = None
        self._lost: dict[int, str] = {}
        self._uuids: dict[int, str] = {}
        self._gpu_names: dict[int, str | None] = {}
        self._skip: dict[int, str] = {}
        self._hangs: deque[float] = deque()
        self._abandoned: list[subprocess.Popen[bytes]] = []
        self._said: str = ""
        self._last_cpu: tuple[float, float] | None = None
        self._turns = Turns()

    @property
    def status(self) -> NvmlStatus:
        """What is read how, what is blind and why, what it costs."""
        return self._status

    @property
    def turned_s(self) -> float:
        """When the loop last turned, monotonic clock; a child that hangs does not stop it."""
        return self._turns.at_s

    async def run(self) -> None:
        """Start one child after another and deliver what they say, until cancelled; the child goes along."""
        try:
            while True:
                end = await self._one_child()
                self._set_state(end.state, end.reason)
                await self._say_gap(end.reason)
                await self._idle(end.wait_s)
        finally:
            self._set_state("stopped", "")
            for each in self._abandoned:
                if each.poll() is None:
                    each.returncode = -signal.SIGKILL  # signalled long ago; nobody can wait for it, and Popen would warn

    # ---- one child ------------------------------------------------------------------------------------------------

    async def _one_child(self) -> _End:
        page_file = tempfile.TemporaryFile()  # noqa: SIM115  # closed below
        page_file.truncate(PAGE_BYTES)
        page = mmap.mmap(page_file.fileno(), PAGE_BYTES)
        errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._set_state("starting", "", children=self._status.children + 1)
        process = await asyncio.to_thread(self._spawn, page_file, errors)
        self._status = replace(self._status, child_pid=process.pid)
        assert process.stdout is not None
        reader = asyncio.StreamReader(limit=_LINE_LIMIT)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), process.stdout)
        try:
            return await self._listen(process, reader, page, errors)
        finally:
            transport.close()
            self._part_with(process)
            for each in (page, page_file, errors):
                each.close()
            self._status = replace(self._status, child_pid=None)

    def _spawn(self, page_file: IO[bytes], errors: IO[bytes]) -> "subprocess.Popen[bytes]":
        skip = {str(gpu): [why, self._limits.skip_s] for gpu, why in self._skip.items()}
        command = [
            sys.executable,
            "-m",
            "sglang_watchdog.sources.nvml_child",
            "--period",
            str(self._period_s),
            "--process-period",
            str(self._process_s),
            "--page",
            str(page_file.fileno()),
            "--skip",
            json.dumps(skip),
        ]
        if not self._gpm:
            command.append("--no-gpm")
        environment = dict(os.environ if self._environment is None else self._environment)
        package_root = str(Path(__file__).resolve().parents[2])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (package_root, environment.get("PYTHONPATH"))))
        # its own session: Ctrl-C at a terminal is for us alone, we end it in order
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            pass_fds=(page_file.fileno(),),
            start_new_session=True,
        )

    async def _listen(self, process: "subprocess.Popen[bytes]", reader: asyncio.StreamReader, page: mmap.mmap, errors: IO[bytes]) -> _End:
        loop = asyncio.get_running_loop()
        heard_s = loop.time()
        promised_s: float | None = None  # loop time by which the next tick has to have come
        is_late = False
        bye: dict[str, Any] | None = None
        while True:
            self._turns.turn()
            silent_s = self._limits.silent_s if self._status.is_up else self._limits.init_silent_s
            until_s = heard_s + silent_s
            wake_s = min(until_s, loop.time() + 1.0 if promised_s is None or is_late else promised_s)
            try:
                async with asyncio.timeout_at(wake_s):
                    line = await reader.readline()
            except TimeoutError:
                if loop.time() >= until_s:
                    return await self._hung(process, page, silent_s)
                if promised_s is not None and not is_late and loop.time() >= promised_s:
                    is_late = True
                    await self._say_late(page)
                if promised_s is None or is_late:
                    await self._advance(self._clock())
                continue
            except ValueError as error:  # a line longer than the limit
                self._end_if_alive(process)
                return _End("crashed", f"the sampler process wrote no lines: {error}", self._limits.restart_s)
            if not line.endswith(b"\n"):
                return await self._left(process, bye, errors)
            heard_s = loop.time()
            message = await self._take(line)
            if message is None:
                continue
            if message["kind"] == "tick":
                is_late = False
                promised_s = loop.time() + max(0.0, message["next_s"] - self._clock()) + self._limits.late_s
                await self._tick_done(message)
            elif message["kind"] == "bye":
                bye = message
                promised_s = None

    # ---- what the child says --------------------------------------------------------------------------------------

    async def _take(self, line: bytes) -> dict[str, Any] | None:
        """Deliver a reading or event; return a message."""
        try:
            entry = json.loads(line)
        except ValueError:
            await self._say_gap(f"the sampler process wrote a line that is not JSON: {line[:80]!r}")
            return None
        if "kind" not in entry:
            await self._deliver(line)
            return None
        match entry["kind"]:
            case "hello":
                await self._meet(entry)
            case "status":
                self._note_status(entry)
            case "events":
                self._status = replace(self._status, events_error=entry["error"])
        return dict(entry)

    async def _deliver(self, line: bytes) -> None:
        try:
            observation = decode_line(line, source=self._source, where="sampler process")
        except MalformedSample as error:
            await self._say_gap(str(error))
            return
        was_shifted = self._shift_s > 0
        if isinstance(observation, Sample):
            uuid = observation.uuid or self._uuids.get(observation.gpu)
            await self._put(replace(observation, at_s=self._in_order(observation.at_s), uuid=uuid))
        elif isinstance(observation, GpuEvent):
            await self._pass_on_event(observation)
        if self._shift_s > 0 and not was_shifted:
            await self._say_gap(f"the wall clock stepped back by {self._shift_s:.0f} s; samples are stamped on as before")

    async def _pass_on_event(self, event: GpuEvent) -> None:
        """A loss or a recovery is said once, however many processes find it out."""
        if event.event == "lost":
            if event.gpu in self._lost:
                return
            self._lost[event.gpu] = event.reason
        elif event.event == "recovered":
            if self._lost.pop(event.gpu, None) is None:
                return
            self._skip.pop(event.gpu, None)
        uuid = event.uuid or self._uuids.get(event.gpu)
        await self._put(replace(event, at_s=self._in_order(event.at_s), uuid=uuid))

    async def _meet(self, hello: Mapping[str, Any]) -> None:
        """Compare the GPUs of a new process with those known before."""
        answering = {each["gpu"]: each for each in hello["gpus"] if each.get("uuid")}
        uuids = {gpu: each["uuid"] for gpu, each in answering.items()}
        for gpu, uuid in self._uuids.items():
            if uuid not in uuids.values() and gpu not in self._skip and gpu not in self._lost:
                await self._pass_on_event(
                    GpuEvent(at_s=self._clock(), gpu=gpu, event="lost", source=self._source, uuid=uuid, reason="no longer listed by the driver")
                )
        for gpu, uuid in uuids.items():
            if gpu in self._lost and self._uuids.get(gpu, uuid) == uuid:
                await self._pass_on_event(GpuEvent(at_s=self._clock(), gpu=gpu, event="recovered", source=self._source, uuid=uuid, reason="answers again"))
        self._uuids = {**{gpu: uuid for gpu, uuid in self._uuids.items() if gpu in self._lost or gpu in self._skip}, **uuids}
        self._gpu_names.update((gpu, each.get("name")) for gpu, each in answering.items())
        gpus = tuple(
            GpuStatus(
                gpu=each["gpu"],
                uuid=each.get("uuid") or self._uuids.get(each["gpu"]),
                name=each.get("name") or self._gpu_names.get(each["gpu"]),
                error=each.get("error"),
            )
            for each in hello["gpus"]
        )
        self._status = replace(self._status, driver=hello.get("driver"), nvml=hello.get("nvml"), cuda=hello.get("cuda"), gpus=gpus)

    def _note_status(self, entry: Mapping[str, Any]) -> None:
        gpus = tuple(
            GpuStatus(
                gpu=each["gpu"],
                uuid=each["uuid"] or self._uuids.get(each["gpu"]),
                name=each["name"] or self._gpu_names.get(each["gpu"]),
                error=each["error"],
                sources=each["sources"],
                blind=each["blind"],
                facts=each["facts"],
                mig_instances=tuple(each["mig_instances"]),
            )
            for each in entry["gpus"]
        )
        now_s = time.monotonic()
        cpu_ratio = self._status.cpu_ratio
        if self._last_cpu is not None and now_s > self._last_cpu[1] and entry["cpu_s"] >= self._last_cpu[0]:
            cpu_ratio = round((entry["cpu_s"] - self._last_cpu[0]) / (now_s - self._last_cpu[1]), 5)
        self._last_cpu = (entry["cpu_s"], now_s)
        self._status = replace(self._status, gpus=gpus, calls=entry["calls"], cpu_ratio=cpu_ratio)

    async def _tick_done(self, tick: Mapping[str, Any]) -> None:
        if not self._status.is_up:
            self._set_state("sampling", "")
            self._said = ""
        self._tick_at_s = tick["ts"] + self._shift_s
        self._status = replace(self._status, period_s=tick["period_s"], tick_ms=tick["ms"], tick_max_ms=max(tick["ms"], self._status.tick_max_ms or 0.0))
        await self._advance(tick["next_s"] - 0.001)

    # ---- time -----------------------------------------------------------------------------------------------------

    def _in_order(self, at_s: float) -> float:
        """Keep the watermark's promise that nothing older comes.

        What comes a little late (a slow tick, an event between two ticks) is stamped just after the watermark. After a
        great step back of the wall clock the stamps go on as before, until the clock has caught up.
        """
        if at_s > self._watermark_s:
            self._shift_s = 0.0
            return at_s
        if at_s + self._shift_s <= self._watermark_s - _STEP_S:
            self._shift_s = self._watermark_s - at_s
        return max(at_s + self._shift_s, self._watermark_s + 0.001)

    async def _advance(self, at_s: float) -> None:
        at_s += self._shift_s
        if at_s > self._watermark_s:
            self._watermark_s = at_s
            await self._put(Watermark(source=self._source, at_s=at_s))

    async def _say_late(self, page: mmap.mmap) -> None:
        where = read_page(page)
        now_s = self._clock()
        reason = "late: between two calls" if where is None else f"late: in {where[1]} {_of(where[0])}"
        await self._put(Gap(source=self._source, from_s=self._tick_at_s, to_s=now_s, reason=reason))

    async def _say_gap(self, reason: str) -> None:
        """Say why nothing comes, once for as long as the reason stays the same."""
        if reason and reason != self._said:
            self._said = reason
            await self._put(Gap(source=self._source, from_s=self._tick_at_s or self._clock(), to_s=None, reason=reason))

    async def _idle(self, for_s: float) -> None:
        """Wait, and let the log go on meanwhile."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + for_s
        while (left_s := until_s - loop.time()) > 0:
            self._turns.turn()
            await self._advance(self._clock())
            await asyncio.sleep(min(1.0, left_s))

    def _set_state(self, state: str, reason: str, **changes: Any) -> None:
        self._status = replace(self._status, state=state, reason=reason, since_s=self._clock(), **changes)

    # ---- ends -----------------------------------------------------------------------------------------------------

    async def _left(self, process: "subprocess.Popen[bytes]", bye: Mapping[str, Any] | None, errors: IO[bytes]) -> _End:
        """The pipe is closed: the child left by itself."""
        if bye is not None:
            again = bye["why"] in ("driver-gone", "driver-reloaded", "mig-toggled")
            return _End(bye["why"], f"{bye['why']}: {bye['text']}", self._limits.restart_s if again else self._limits.retry_s)
        code = await self._await_end(process, self._limits.kill_wait_s)
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - 500))
        words = errors.read().decode("utf-8", "replace").strip().splitlines()
        reason = f"crashed: the sampler process ended with {code}" + (f" ({words[-1]})" if words else "")
        return _End("crashed", reason, self._wait_after_failure(self._limits.restart_s))

    async def _hung(self, process: "subprocess.Popen[bytes]", page: mmap.mmap, silent_s: float) -> _End:
        """The child is silent: end it, say where it was, and leave that GPU alone for a while."""
        where = read_page(page)
        self._end_if_alive(process)
        code = await self._await_end(process, self._limits.kill_wait_s)
        gpu, call = where if where is not None else (-1, "")
        reason = f"{call} {_of(gpu)} did not return in {silent_s:g} s" if call else f"no sign of life for {silent_s:g} s"
        if code is None:
            self._abandoned.append(process)
            reason += f"; its process {process.pid} cannot be ended ({_kernel_state(process.pid)})"
        if gpu >= 0:
            self._skip[gpu] = f"unresponsive: {reason}"
        if call:
            await self._say_unresponsive(gpu, reason)
        if code is None:
            return _End("stuck", f"stuck: {reason}", self._wait_after_failure(self._limits.pause_after_stuck_s))
        return _End("hung", f"hung: {reason}", self._wait_after_failure(self._limits.restart_s))

    async def _say_unresponsive(self, gpu: int, reason: str) -> None:
        for each in [gpu] if gpu >= 0 else sorted(self._uuids) or [0]:
            if each not in self._lost:
                self._lost[each] = reason
                await self._put(
                    GpuEvent(
                        at_s=self._in_order(self._clock()),
                        gpu=each,
                        event="unresponsive",
                        source=self._source,
                        uuid=self._uuids.get(each),
                        reason=reason,
                    )
                )

    def _wait_after_failure(self, wait_s: float) -> float:
        """Three failed children within an hour: wait until the oldest of them is an hour ago."""
        now_s = time.monotonic()
        self._hangs.append(now_s)
        while self._hangs and now_s - self._hangs[0] > _HOUR_S:
            self._hangs.popleft()
        if len(self._hangs) >= self._limits.hangs_per_hour:
            return max(wait_s, self._hangs[0] + _HOUR_S - now_s)
        return wait_s

    def _part_with(self, process: "subprocess.Popen[bytes]") -> None:
        """Leave no child behind; one that is stuck in the kernel is kept in a list and looked at later."""
        self._abandoned = [each for each in self._abandoned if each.poll() is None]
        if process in self._abandoned:
            return
        self._end_if_alive(process)
        for _ in range(20):  # at a shutdown: it dies within milliseconds, or it is stuck
            if process.poll() is not None:
                return
            time.sleep(0.005)
        self._abandoned.append(process)

    def _end_if_alive(self, process: "subprocess.Popen[bytes]") -> None:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._kill(process.pid, signal.SIGKILL)

    async def _await_end(self, process: "subprocess.Popen[bytes]", for_s: float) -> int | None:
        """Return the exit code, None if the process is still there after `for_s`."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + for_s
        while process.poll() is None and loop.time() < until_s:  # no event tells it
            self._turns.turn()
            await asyncio.sleep(0.02)
        return process.poll()


def _of(gpu: int) -> str:
    return f"of GPU {gpu}" if gpu >= 0 else "of the driver"


def _kernel_state(pid: int) -> str:
    """State and waiting place of a process, without asking the driver."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        place = Path(f"/proc/{pid}/wchan").read_text().strip()
    except OSError:
        return "state unknown"
    return f"state {state}" + (f" in {place}" if place not in ("", "0") else "")


async def look_once(*, within_s: float = 20.0, environment: Mapping[str, str] | None = None) -> NvmlStatus:
    """Start the sampler, wait for its first full answer or its first reason, and end it: what `doctor` shows.

    A driver that hangs is not waited for longer than `within_s`; the status then stays "starting", with that reason.
    """
    told = asyncio.Event()

    async def put(observation: Observation) -> None:
        if isinstance(observation, Gap | Watermark) and (sampler.status.is_up or sampler.status.reason):
            told.set()

    sampler = NvmlSampler(put, environment=environment)
    task = asyncio.create_task(sampler.run())
    try:
        async with asyncio.timeout(within_s):
            await told.wait()
    except TimeoutError:
        pass
    finally:
        status = sampler.status
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return status if status.reason or status.is_up else replace(status, reason=f"no answer within {within_s:g} s")
