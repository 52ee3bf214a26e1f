"""The service manager's protocol (sd_notify(3)): datagrams to NOTIFY_SOCKET, a no-op where there is none."""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress


class Notifier:
    """Says READY, RELOADING, STOPPING and WATCHDOG. What the manager cannot take now is dropped; the next message is tried again, for a ping that
    is given up for good would have the daemon killed."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) if address else None
        watchdog_us = environment.get("WATCHDOG_USEC", "")
        meant = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog_s = int(watchdog_us) / 1e6 if watchdog_us.isdigit() and meant else None

    def ready(self, status: str) -> None:
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def alive(self, status: str) -> None:
        """A watchdog ping; only for real progress."""
        self._send(f"WATCHDOG=1\nSTATUS={status}")

    def _send(self, text: str) -> None:
        if self._socket is None:
            return
        with suppress(OSError):
            self._socket.sendto(text.encode(), self._address)
