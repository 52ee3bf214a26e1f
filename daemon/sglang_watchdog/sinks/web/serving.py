"""Opens the port and serves it with uvicorn, guarded against clients that are slow on purpose or too many.

uvicorn alone waits for ever for a request that never ends and for a reader that never reads; both are cut off here.
"""

import asyncio
import errno
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from .limits import Limits
from .security import is_loopback, refuse_open_bind
from .tokens import TokenStore

_BACKLOG: Final = 128
_KEEP_ALIVE_S: Final = 30
_GRACE_S: Final = 5  # for open requests when the daemon stops
_FULL_BODY: Final = (
    b'{"type":"urn:sglang-watchdog:problem:too-many-connections","title":"Service Unavailable","status":503,'
    b'"detail":"All connections are taken.","instance":""}'
)
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 5\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(_FULL_BODY), _FULL_BODY)
)


class PortTaken(Exception):
    """Another process listens there."""


class ListenInvalid(Exception):
    """The address to listen on is none; the message says what one looks like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    certificate: Path  # PEM, with the chain
    key: Path
    client_ca: Path | None = None  # clients must then show a certificate signed by it


def address(listen: str) -> tuple[str, int]:
    """HOST:PORT, [IPv6]:PORT or :PORT (which means 127.0.0.1).

    Raises:
        ListenInvalid: it is none of these.
    """
    host, colon, port = listen.rpartition(":")
    is_bare_v6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
    if not colon or not port.isdecimal() or int(port) > 65_535 or is_bare_v6:
        raise ListenInvalid(f"listen: {listen!r} is no address: write HOST:PORT, for IPv6 [ADDRESS]:PORT, as in 127.0.0.1:17853")
    return host.strip("[]") or "127.0.0.1", int(port)


def bind(listen: str, tokens: TokenStore, *, tries: int = 1) -> list[socket.socket]:
    """Listening sockets for every address the host name has. `tries` > 1 goes on to the next port when one is taken.

    Raises:
        ListenInvalid, PortTaken, OpenBindRefused, OSError
    """
    addresses, port = resolved(listen)
    refuse_open_bind([where for _, where in addresses], tokens)
    for attempt in range(tries):
        try:
            return _bind_all(addresses, port + attempt if port else 0)
        except PortTaken:
            if attempt + 1 == tries or port + attempt >= 65_535:
                raise
    raise AssertionError("tries must be at least 1")


def resolved(listen: str) -> tuple[list[tuple[int, str]], int]:
    """Every address (family, text) that is to be listened on, and the port.

    Raises:
        ListenInvalid
    """
    host, port = address(listen)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as fault:
        raise ListenInvalid(f"listen: the name {host!r} has no address here ({fault.strerror})") from fault
    return list(dict.fromkeys((int(family), str(where[0])) for family, _, _, _, where in found)), port


def _bind_all(addresses: Sequence[tuple[int, str]], port: int) -> list[socket.socket]:
    opened: list[socket.socket] = []
    try:
        for family, where in addresses:
            # With the protocol named, asyncio sets TCP_NODELAY; without it each answer waits 40 ms for a delayed ACK.
            sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            opened.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((where, port))
            port = port or int(sock.getsockname()[1])
            sock.listen(_BACKLOG)
            sock.setblocking(False)
    except OSError as fault:
        for sock in opened:
            sock.close()
        if fault.errno == errno.EADDRINUSE:
            raise PortTaken(f"listen: port {port} of {where} is taken by another process") from fault
        raise
    return opened


def are_loopback(sockets: Sequence[socket.socket]) -> bool:
    """Whether nobody outside this machine can reach them."""
    return all(is_loopback(str(sock.getsockname()[0])) for sock in sockets)


class Server(uvicorn.Server):
    """uvicorn under the runtime's signals instead of its own. Start with `serve(sockets)`, stop with `stop()`."""

    def __init__(self, app: FastAPI, limits: Callable[[], Limits], tls: Tls | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=guarded(limits),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_GRACE_S,
                h11_max_incomplete_event_size=limits().header_bytes,
                ssl_certfile=None if tls is None else tls.certificate,
                ssl_keyfile=None if tls is None else tls.key,
                ssl_ca_certs=None if tls is None or tls.client_ca is None else str(tls.client_ca),
                ssl_cert_reqs=ssl.CERT_NONE if tls is None or tls.client_ca is None else ssl.CERT_REQUIRED,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Callable from any thread."""
        self.should_exit = True


class ServerThread:
    """The server in a thread with a loop of its own: an engine that is busy with a burst of lines then delays no answer, and
    a burst of requests delays no line, beyond what the interpreter's lock makes them share.

    Everything the application reads (board, ledger, tokens) may be read from any thread; what it calls must allow for it.
    """

    def __init__(self, app: FastAPI, sockets: Sequence[socket.socket], limits: Callable[[], Limits], tls: Tls | None = None) -> None:
        """`limits` are asked for at each connection.

        Raises:
            TlsInvalid: the certificate or its key cannot be used.
        """
        if tls is not None:
            check_tls(tls)
        self._sockets, self._tls = list(sockets), tls
        self._server = Server(app, limits, tls)
        self._server.config.load()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def renew_certificate(self) -> None:
        """Read certificate and key again, for the connections to come.

        Raises:
            TlsInvalid: they cannot be used; those read before stay in force.
        """
        if self._tls is not None and self._server.config.ssl is not None:
            check_tls(self._tls)
            self._server.config.ssl.load_cert_chain(self._tls.certificate, self._tls.key, _no_passphrase)

    def stop(self, timeout_s: float = 10.0) -> bool:
        """End open requests and the thread; close the broadcast first, so that streams end. False: it did not end in time."""
        self._server.stop()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        for sock in self._sockets:
            sock.close()
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            asyncio.run(self._server.serve(self._sockets))
        except Exception:
            logging.getLogger(__name__).exception("the HTTP server ended by a fault of ours")


def check_tls(tls: Tls) -> None:
    """Read certificate, key and client CA as the server will.

    Raises:
        TlsInvalid: which file, and what to do.
    """
    for file in (tls.certificate, tls.key, *([tls.client_ca] if tls.client_ca else [])):
        try:
            file.read_bytes()
        except OSError as fault:
            raise TlsInvalid(file, f"{file} cannot be read: {fault.strerror}. Check the path and its permissions.") from fault
    for file in (tls.certificate, *([tls.client_ca] if tls.client_ca else [])):
        try:  # alone, since OpenSSL's messages do not name the file; what is then left is the key's
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(file)
        except ssl.SSLError as fault:
            raise TlsInvalid(file, f"{file} holds no certificate in PEM, as -----BEGIN CERTIFICATE----- (OpenSSL says {fault.reason}).") from fault
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(tls.certificate, tls.key, _no_passphrase)
    except _Passphrase as fault:
        raise TlsInvalid(tls.key, f"{tls.key} is locked with a passphrase, which nobody could type here. Store it without one.") from fault
    except ssl.SSLError as fault:
        why = "does not belong to the certificate" if "MISMATCH" in str(fault.reason) else "is no private key in PEM"
        raise TlsInvalid(tls.key, f"{tls.key} {why} (certificate: {tls.certificate}; OpenSSL says {fault.reason}).") from fault


class TlsInvalid(Exception):
    """A file of `tls` cannot be used."""

    def __init__(self, file: Path, message: str) -> None:
        super().__init__(message)
        self.file = file


class _Passphrase(Exception):
    pass


def _no_passphrase() -> str:
    """OpenSSL would ask the terminal, and wait."""
    raise _Passphrase


def guarded(limits_now: Callable[[], Limits]) -> type[H11Protocol]:
    """uvicorn's HTTP/1.1 protocol, with limits on each connection and on their number; those in force when it was opened."""

    class Guarded(H11Protocol):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._request_timer: asyncio.TimerHandle | None = None
            self._stall_timer: asyncio.TimerHandle | None = None
            self._responses = 0
            self._limits = limits_now()

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            limits = self._limits
            mine = _host(self)
            if len(self.connections) > limits.connections or (
                sum(1 for each in self.connections if _host(each) == mine) > limits.connections_per_client
            ):
                transport.write(_FULL)
                transport.close()
                return
            self._watch_request()

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget_request_timer()
            self._forget_stall_timer()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if not self.transport.is_closing():
                super().data_received(data)
                self._watch_request()

        def on_response_complete(self) -> None:
            self._responses += 1
            super().on_response_complete()
            self._watch_request()

        def _watch_request(self) -> None:
            """A request that has begun (or a connection that has not sent any) must be complete in time."""
            state = self.conn.their_state
            has_begun = bool(self.conn.trailing_data[0]) or self._responses == 0
            if state is h11.SEND_BODY or (state is h11.IDLE and has_begun):
                if self._request_timer is None:
                    self._request_timer = self.loop.call_later(self._limits.request_s, self.transport.abort)
            else:
                self._forget_request_timer()

        def pause_writing(self) -> None:
            super().pause_writing()
            if self._stall_timer is None:
                self._stall_timer = self.loop.call_later(self._limits.stream_stall_s, self.transport.abort)

        def resume_writing(self) -> None:
            self._forget_stall_timer()
            super().resume_writing()

        def _forget_request_timer(self) -> None:
            if self._request_timer is not None:
                self._request_timer.cancel()
                self._request_timer = None

        def _forget_stall_timer(self) -> None:
            if self._stall_timer is not None:
                self._stall_timer.cancel()
                self._stall_timer = None

    return Guarded


def _host(connection: Any) -> str:
    """The address at the other end."""
    return str(connection.client[0]) if connection.client else ""
