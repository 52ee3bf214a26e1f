"""A client of `/api/v1/changes` that comes back with `Last-Event-ID`, as a browser's EventSource does."""

import http.client
import json
import queue
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `arrived_s` is the monotonic clock when its data line was read."""

    id: int
    name: str
    data: dict[str, Any]
    arrived_s: float


class ChangesClient:
    """Reads one stream in a thread, from the connection's answer to its end; `last_id` carries over to the next."""

    def __init__(self, last_id: int | None = None) -> None:
        self.last_id = last_id
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._connection: http.client.HTTPConnection | None = None

    def connect(self, url: str) -> None:
        """Open the stream; returns when the daemon's answer has begun, so nothing that comes later is missed."""
        address = urlsplit(url)
        assert address.hostname is not None
        connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
        headers = {} if self.last_id is None else {"Last-Event-ID": str(self.last_id)}
        connection.request("GET", "/api/v1/changes", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        self._connection = connection
        self._thread = threading.Thread(target=self._read, args=(answer,), daemon=True)
        self._thread.start()

    def _read(self, answer: http.client.HTTPResponse) -> None:
        """Until the daemon ends or dies. An event counts once its empty line has come: what a kill cut off is asked for again."""
        id_, name, data, arrived_s = 0, "", "", 0.0
        try:
            for raw in answer:
                line = raw.decode().rstrip("\n")
                field, _, value = line.partition(": ")
                if field == "id":
                    id_ = int(value)
                elif field == "event":
                    name = value
                elif field == "data":
                    data, arrived_s = value, time.monotonic()
                elif not line and raw.endswith(b"\n") and data:
                    self.last_id = id_
                    self.events.put(Event(id_, name, json.loads(data), arrived_s))
                    data = ""
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            return  # the daemon was killed, or `close` was called: the caller connects again

    def join(self) -> None:
        """Wait until the stream has ended."""
        if self._thread is not None:
            self._thread.join(30)
            assert not self._thread.is_alive(), "the stream did not end with the daemon"
        if self._connection is not None:
            self._connection.close()

    def taken(self) -> list[Event]:
        """Everything that has arrived and was not asked for yet."""
        out = []
        while not self.events.empty():
            out.append(self.events.get_nowait())
        return out
