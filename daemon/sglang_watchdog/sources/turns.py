"""Whether a source's loop goes on: each turn leaves its time, also where nothing was there to read."""

import asyncio
import time

_SLICE_S = 1.0


class Turns:
    """When a loop last turned, on the monotonic clock. A loop that waits for something of its own accord waits here."""

    def __init__(self) -> None:
        self.at_s = time.monotonic()

    def turn(self) -> None:
        """The loop goes on."""
        self.at_s = time.monotonic()

    async def sleep(self, for_s: float) -> None:
        """Wait on purpose, which is no hanging."""
        until_s = time.monotonic() + for_s
        while (left_s := until_s - time.monotonic()) > 0:
            self.turn()
            await asyncio.sleep(min(left_s, _SLICE_S))
        self.turn()
