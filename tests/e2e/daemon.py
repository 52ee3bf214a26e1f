"""Starts the real daemon as its user would, and asks it over HTTP."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

START_S = 60.0


class RunningDaemon:
    """A `sglang-watchdog run` process; use as a context manager."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.arguments = arguments
        self.environment = environment or {}
        self.lines: list[str] = []
        self.url = ""
        self.token = ""

    def __enter__(self) -> "RunningDaemon":
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sglang_watchdog", "run", "--next-free-port", *self.arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **self.environment},
        )  # fmt: skip
        self._started = threading.Event()
        self.errors: list[str] = []
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()
        if not self._started.wait(START_S) or not self.url:
            self.process.kill()
            raise AssertionError(f"the daemon did not start: {self.lines} {self.errors}")
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for reader in self._readers:
            reader.join(5)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith("status page"):
                address, _, self.token = line.split()[2].partition("#token=")
                self.url = address.rstrip("/")
                self._started.set()
        self._started.set()

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors.append(line.rstrip("\n"))

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.load(answer)

    def text(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return str(answer.read().decode())

    def all(self, noun: str, query: str = "") -> list[dict[str, Any]]:
        """Every item of a list, page by page."""
        out: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = self.get(f"/api/v1/{noun}?limit=200{query}{cursor}")
            out += page[noun]
            if not page["next_cursor"]:
                return out
            cursor = f"&cursor={page['next_cursor']}"

    def wait_for(self, what: Any, seconds: float = 30.0) -> Any:
        """Ask until the answer is true, or fail after a bounded time."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            try:
                answer = what()
            except (urllib.error.URLError, ConnectionError):
                answer = None
            if answer:
                return answer
            time.sleep(0.1)
        raise AssertionError(f"waited {seconds} s in vain; the daemon said {self.lines[-5:]} {self.errors[-5:]}")


def settled(daemon: RunningDaemon, lines: dict[str, int]) -> bool:
    """Whether every named source has been read to the number of lines that were written to it."""
    read = {source["name"]: source["lines"] for source in daemon.all("sources")}
    return all(read.get(name) == count for name, count in lines.items())


def line_count(path: Path) -> int:
    return path.read_bytes().count(b"\n")
