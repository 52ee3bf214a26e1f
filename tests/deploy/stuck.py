"""A daemon of which one part gets stuck at its first line or sample, as a fault in it would: the program that test_notify.py runs."""

STUCK = """
import asyncio, sys, threading
from sglang_watchdog.cli.main import main
from sglang_watchdog.runtime import daemon
from sglang_watchdog.sources.block import Block
from sglang_watchdog.sources.follow import TailSource
from sglang_watchdog.sources.telemetry_replay import TelemetryReplay

how = sys.argv.pop(1)
take, pump = daemon.Daemon._take, daemon.Daemon._pump

def busy(self, item):
    if isinstance(item.event, Block):
        threading.Event().wait()
    return take(self, item)

async def waiting(self):
    while True:
        item = await self._inbox.get()
        if isinstance(item.event, Block):
            self._inbox.put_nowait(item)
            await asyncio.Event().wait()
        take(self, item)

step = TailSource._step

async def hanging_step(self):
    events = await step(self)
    if any(isinstance(event, Block) for event in events):
        await asyncio.Event().wait()
    return events

async def hanging_sampler(self, lines):
    if any(lines):
        await asyncio.Event().wait()

if how == "source":
    TailSource._step = hanging_step
elif how == "sampler":
    TelemetryReplay._deliver = hanging_sampler
elif how == "busy":
    daemon.Daemon._take = busy
else:
    daemon.Daemon._pump = waiting
sys.exit(main(["run", *sys.argv[1:]]))
"""
