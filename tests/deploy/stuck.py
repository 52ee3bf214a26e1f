"""A daemon whose engine gets stuck at its first block, as a fault in it would: the program that test_notify.py runs."""

STUCK = """
import asyncio, sys, threading
from sglang_watchdog.cli.main import main
from sglang_watchdog.runtime import daemon
from sglang_watchdog.sources.block import Block

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

if how == "busy":
    daemon.Daemon._take = busy
else:
    daemon.Daemon._pump = waiting
sys.exit(main(["run", *sys.argv[1:]]))
"""
