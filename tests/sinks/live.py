"""The HTTP surface behind a real uvicorn on a loopback port."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from sglang_watchdog.sinks.web import app
from sglang_watchdog.sinks.web.parts import Parts
from sglang_watchdog.sinks.web.serving import ServerThread, bind


@contextmanager
def serving(parts: Parts) -> Iterator[tuple[str, int]]:
    """Yields the address; everything is stopped at the end, streams too."""
    sockets = bind("127.0.0.1:0", parts.tokens)
    address: tuple[str, int] = sockets[0].getsockname()
    server = ServerThread(app.create(parts), sockets, lambda: parts.settings.limits)
    server.start()
    try:
        yield address
    finally:
        parts.broadcast.close()
        assert server.stop(), "the server did not stop"


class Raw:
    """One connection, spoken by hand."""

    def __init__(self, address: tuple[str, int], *, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(10)
        self.socket.connect(address)
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()

    def send(self, text: str) -> None:
        self.socket.sendall(text.encode("latin-1"))

    def get(self, path: str, *headers: str, host: str = "127.0.0.1") -> None:
        self.send("\r\n".join([f"GET {path} HTTP/1.1", f"Host: {host}", *headers, "", ""]))

    def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the answer."""
        status = int(self.file.readline().split()[1])
        headers = {}
        while (line := self.file.readline().strip()) != b"":
            name, _, value = line.decode().partition(": ")
            headers[name.lower()] = value
        return status, headers

    def is_cut(self) -> bool:
        """Whether the other side ends the connection (waits for it)."""
        try:
            while self.socket.recv(65_536):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True


class Stream(Raw):
    """A client of the change stream."""

    def __init__(self, address: tuple[str, int], *headers: str, query: str = "", receive_buffer: int | None = None) -> None:
        super().__init__(address, receive_buffer=receive_buffer)
        self.get(f"/api/v1/changes{query}", *headers)

    def lines(self) -> Iterator[str]:
        """The stream's lines, with the chunked encoding taken off."""
        rest = ""
        while (size := int(self.file.readline() or b"0", 16)) > 0:
            rest += self.file.read(size).decode()
            self.file.readline()
            *whole, rest = rest.split("\n")
            yield from whole

    def events(self) -> Iterator[dict[str, str]]:
        """Events and comments (under ":") one by one."""
        event: dict[str, str] = {}
        for line in self.lines():
            if line.startswith(":"):
                yield {":": line[1:].strip()}
            elif line:
                name, _, value = line.partition(": ")
                event[name] = value
            elif event:
                yield event
                event = {}
