"""NVML asked directly, for what the sampler rests on: which fields answer, what calls cost, which counter is right.

python probe.py fields GPU            which field ids answer, of what type
python probe.py costs GPU             microseconds of calls, of GPM by number of metrics, of field batches by size
python probe.py pairs 0               peer access and distance of every pair, as the driver tells and as the sampler reports it
python probe.py traffic GPU SECONDS   PCIe and NVLink traffic by three sources at once, five times a second
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pynvml as nvml

METRICS = (2, 3, 5, 10, 20, 21, 60, 61, 1, 7, 9, 6, 4, 12)


def value(entry: Any) -> float:
    member = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")[entry.valueType]
    return float(getattr(entry.value, member))


def fields(handle: Any) -> dict[str, Any]:
    """Ask every id of the binding's range alone, scope 0; and those of NVLink for all links together."""
    found: dict[str, Any] = {}
    for scope in (0, 0xFFFFFFFF):
        for field in range(1, 320):
            try:
                entry = nvml.nvmlDeviceGetFieldValues(handle, [(field, scope)])[0]
            except nvml.NVMLError as error:
                found[f"{field}/{scope:x}"] = f"call: {error}"
                continue
            if entry.nvmlReturn == 0:
                found[f"{field}/{scope:x}"] = [entry.valueType, value(entry), entry.latencyUsec]
            elif entry.nvmlReturn not in (2, 3):
                found[f"{field}/{scope:x}"] = f"code {entry.nvmlReturn}"
    return found


def timed(function: Callable[[], Any], times: int = 20) -> list[float] | str:
    """Median and maximum in microseconds."""
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        try:
            function()
        except (nvml.NVMLError, AttributeError) as error:
            return str(error)
        spent.append((time.perf_counter() - began) * 1e6)
        time.sleep(0.02)
    return [round(sorted(spent)[times // 2], 1), round(max(spent), 1)]


class Gpm:
    """Two snapshots of one GPU."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.old, self.new = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        nvml.nvmlGpmSampleGet(handle, self.old)

    def read(self, metrics: tuple[int, ...]) -> dict[int, float]:
        """Metrics since the last reading."""
        nvml.nvmlGpmSampleGet(self.handle, self.new)
        found = self.compute(metrics)
        self.old, self.new = self.new, self.old
        return found

    def compute(self, metrics: tuple[int, ...]) -> dict[int, float]:
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = 1, len(metrics)
        request.sample1, request.sample2 = self.old, self.new
        for place, metric in enumerate(metrics):
            request.metrics[place].metricId = metric
        nvml.nvmlGpmMetricsGet(request)
        return {
            metric: request.metrics[place].value
            for place, metric in enumerate(metrics)
            if request.metrics[place].nvmlReturn == 0
        }


def costs(handle: Any) -> dict[str, Any]:
    """What the sampler's calls cost, and what it could save."""
    gpm = Gpm(handle)
    time.sleep(0.2)
    nvml.nvmlGpmSampleGet(handle, gpm.new)
    slow = [83, 186, 192, 82, 230, 173, 179, 180, 169, 74, 269, 270, 271]
    found: dict[str, Any] = {
        f"gpm metrics {count}": timed(lambda count=count: gpm.compute(METRICS[:count])) for count in (1, 2, 4, 6, 8, 14)
    }
    found["gpm sample"] = timed(lambda: nvml.nvmlGpmSampleGet(handle, gpm.new))
    found |= {
        f"field {field}": timed(lambda field=field: nvml.nvmlDeviceGetFieldValues(handle, [field]))
        for field in (*slow, 190, 185, 189, 94, 142, 144, 145, 193, 194, 197, 198)
    }
    found |= {
        f"field {field} all links": timed(
            lambda field=field: nvml.nvmlDeviceGetFieldValues(handle, [(field, 0xFFFFFFFF)])
        )
        for field in (138, 139, 202, 204)
    }
    for name, batch in {"13 slow": slow, "197 198": [197, 198], "83 186": [83, 186], "12 cheap": slow[2:]}.items():
        found[f"fields {name}"] = timed(lambda batch=batch: nvml.nvmlDeviceGetFieldValues(handle, batch))
    for name, arguments in {
        "PowerUsage": (),
        "EnforcedPowerLimit": (),
        "UtilizationRates": (),
        "ClockInfo": (1,),
        "PerformanceState": (),
        "CurrentClocksEventReasons": (),
        "TemperatureV": (0,),
        "Temperature": (0,),
        "CurrPcieLinkGeneration": (),
        "CurrPcieLinkWidth": (),
        "PcieReplayCounter": (),
        "TotalEnergyConsumption": (),
        "MarginTemperature": (),
        "PcieThroughput": (0,),
        "ComputeRunningProcesses_v3": (),
        "TotalEccErrors": (1, 0),
        "RemappedRows": (),
        "PersistenceMode": (),
        "NvLinkState": (0,),
        "EccMode": (),
        "MigMode": (),
        "BAR1MemoryInfo": (),
        "MemoryBusWidth": (),
        "SupportedEventTypes": (),
        "GpuMaxPcieLinkGeneration": (),
        "FanSpeed": (),
        "ProcessUtilization": (0,),
    }.items():
        function = getattr(nvml, f"nvmlDeviceGet{name}", None)
        found[name] = (
            "not in the binding"
            if function is None
            else timed(lambda function=function, arguments=arguments: function(handle, *arguments))
        )
    found["MemoryInfo v2"] = timed(lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
    found["MemoryInfo v1"] = timed(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    return found


def traffic(handle: Any, seconds: float) -> list[dict[str, Any]]:
    """Bytes per second by GPM, by byte counters and by the 20 ms window; every reading with its time."""
    gpm = Gpm(handle)
    ids = [197, 198, (138, 0xFFFFFFFF), (139, 0xFFFFFFFF), (140, 0xFFFFFFFF), (202, 0xFFFFFFFF), (204, 0xFFFFFFFF), 83]
    rows = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.2)
        row: dict[str, Any] = {"at": time.time()}
        row["gpm"] = gpm.read(METRICS)
        for each, entry in zip(ids, nvml.nvmlDeviceGetFieldValues(handle, ids), strict=True):
            field = each[0] if isinstance(each, tuple) else each
            if entry.nvmlReturn == 0:
                row[f"field_{field}"] = [time.monotonic(), entry.valueType, value(entry), entry.timestamp]
        for name, direction in (("tx", 0), ("rx", 1)):
            try:
                row[f"window_{name}_kbps"] = nvml.nvmlDeviceGetPcieThroughput(handle, direction)
            except nvml.NVMLError as error:
                row[f"window_{name}_kbps"] = str(error)
        row["power_w"] = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
        rows.append(row)
    return rows


def identity(handle: Any) -> dict[str, Any]:
    """Memory by both versions, events, link and architecture."""
    found: dict[str, Any] = {}
    v1, v2 = nvml.nvmlDeviceGetMemoryInfo(handle), nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    found["memory_v1"] = [v1.total, v1.used, v1.free]
    found["memory_v2"] = [v2.total, v2.reserved, v2.used, v2.free]
    for name in (
        "SupportedEventTypes",
        "SupportedClocksEventReasons",
        "MemoryBusWidth",
        "CudaComputeCapability",
        "Architecture",
        "NumGpuCores",
        "MaxPcieLinkGeneration",
        "GpuMaxPcieLinkGeneration",
        "PersistenceMode",
        "VirtualizationMode",
    ):
        try:
            found[name] = str(getattr(nvml, f"nvmlDeviceGet{name}")(handle))
        except (nvml.NVMLError, AttributeError) as error:
            found[name] = f"error: {error}"
    return found


def pairs() -> dict[str, Any]:
    """Every pair as asked directly, then what one look of the sampler says, with and without GPM."""
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    direct: dict[str, Any] = {}
    for one, a in enumerate(handles):
        for other, b in enumerate(handles):
            if one == other:
                continue
            for name, ask in (
                ("read", lambda a=a, b=b: nvml.nvmlDeviceGetP2PStatus(a, b, 0)),
                ("write", lambda a=a, b=b: nvml.nvmlDeviceGetP2PStatus(a, b, 1)),
                ("nvlink", lambda a=a, b=b: nvml.nvmlDeviceGetP2PStatus(a, b, 2)),
                ("ancestor", lambda a=a, b=b: nvml.nvmlDeviceGetTopologyCommonAncestor(a, b)),
            ):
                try:
                    direct[f"{one}-{other} {name}"] = ask()
                except (nvml.NVMLError, AttributeError) as error:
                    direct[f"{one}-{other} {name}"] = str(error)
    return {"direct": direct, "sampler": asyncio.run(sampled(gpm=True)), "without gpm": asyncio.run(sampled(gpm=False))}


async def sampled(*, gpm: bool) -> dict[str, Any]:
    """The first two samples of each GPU: what it says of its peers, of GPM, and which ticks list processes every 2 s."""
    from sglang_watchdog.model.observation import Observation, Sample
    from sglang_watchdog.sources.nvml_sampler import NvmlSampler

    got: list[Sample] = []

    async def put(observation: Observation) -> None:
        if isinstance(observation, Sample):
            got.append(observation)

    task = asyncio.create_task(NvmlSampler(put, period_s=0.5, process_s=2.0, gpm=gpm).run())
    while len([each for each in got if each.gpu == 0]) < 9:  # noqa: ASYNC110
        await asyncio.sleep(0.2)
    task.cancel()
    peers = {each.gpu: {name: value for name, value in each.extra.items() if name.startswith(("p2p", "topology", "bandwidth"))} for each in got[::-1] if each.extra}
    return {
        "peers": peers, "sm_active": [each.sm_active for each in got if each.gpu == 0],
        "lists_processes": [each.processes is not None for each in got if each.gpu == 0],
    }  # fmt: skip


def main() -> None:
    """Run one probe and print JSON."""
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(int(sys.argv[2]))
    if sys.argv[1] == "traffic":
        print(json.dumps(traffic(handle, float(sys.argv[3]))))
    elif sys.argv[1] == "pairs":
        print(json.dumps(pairs()))
    elif sys.argv[1] == "fields":
        print(json.dumps({"identity": identity(handle), "fields": fields(handle)}))
    else:
        print(json.dumps(costs(handle)))


if __name__ == "__main__":
    main()
