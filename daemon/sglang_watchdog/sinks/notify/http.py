"""One POST with a deadline over everything: connecting, sending, and however slowly the answer drips."""

import http.client
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_ANSWER_BYTES: Final = 64 * 1024


class DeliveryFailed(Exception):
    """It did not arrive. `is_final`: trying again would not help."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


def post(url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float, ca_file: Path | None = None) -> bytes:
    """Send and return what was answered, at most 64 KiB of it. Redirects are not followed: they could lead a secret
    elsewhere.

    Raises:
        DeliveryFailed: with the host, never the whole address (it may hold a secret).
    """
    ends_at = time.monotonic() + timeout_s
    target = urlsplit(url)
    where = target.hostname or "?"
    try:
        connection = _connection(url, timeout_s, ca_file)
        try:
            connection.request("POST", (target.path or "/") + (f"?{target.query}" if target.query else ""), body, dict(headers))
            answer = connection.getresponse()
            text = _read(connection, answer, ends_at)
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as fault:
        raise DeliveryFailed(f"{where}: {type(fault).__name__}: {fault}"[:500]) from fault
    if 200 <= answer.status < 300:
        return text
    is_final = 300 <= answer.status < 500 and answer.status not in (408, 425, 429)
    raise DeliveryFailed(f"{where}: answered {answer.status} {answer.reason}"[:500], is_final=is_final)


def _connection(url: str, timeout_s: float, ca_file: Path | None) -> http.client.HTTPConnection:
    target = urlsplit(url)
    if target.hostname is None:
        raise ValueError("the address has no host")
    if target.scheme == "https":
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
        return http.client.HTTPSConnection(target.hostname, target.port, timeout=timeout_s, context=context)
    if target.scheme == "http":
        return http.client.HTTPConnection(target.hostname, target.port, timeout=timeout_s)
    raise ValueError("the address begins neither with https:// nor with http://")


def _read(connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, ends_at: float) -> bytes:
    text = bytearray()
    while len(text) < _ANSWER_BYTES:
        left_s = ends_at - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the answer did not end in time")
        if connection.sock is not None:  # None once the answer said that the connection ends with it
            connection.sock.settimeout(left_s)
        part = answer.read1(4096)
        if not part:
            break
        text += part
    return bytes(text)
