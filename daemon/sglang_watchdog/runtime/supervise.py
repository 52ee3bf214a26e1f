"""Keeps a part running: what fails is said, waited for and begun again, and takes nothing else down."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 60.0
_GOOD_AFTER_S: Final = 60.0  # a part that ran this long starts again without a long wait

log = structlog.get_logger()


async def supervised(
    name: str, run: Callable[[], Awaitable[None]], failed: Callable[[str], None], beat: Callable[[], None] = lambda: None
) -> None:
    """Run a part for ever; it ends when it returns by itself. `failed` is told each failure in words; `beat` is called while it waits."""
    wait_s = _FIRST_WAIT_S
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        try:
            await run()
            return
        except asyncio.CancelledError:
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            failed(text)
            log.error("part failed", part=name, error=text, retry_s=wait_s, exc_info=wait_s == _FIRST_WAIT_S)
        if loop.time() - began > _GOOD_AFTER_S:
            wait_s = _FIRST_WAIT_S
        again_s = loop.time() + wait_s
        while (left_s := again_s - loop.time()) > 0:
            beat()
            await asyncio.sleep(min(left_s, 1.0))
        beat()
        wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
