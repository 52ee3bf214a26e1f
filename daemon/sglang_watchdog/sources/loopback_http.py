"""One bounded GET to a server of this machine, on loopback; never a generating endpoint."""

import asyncio


class NoAnswer(Exception):
    """The server did not answer, or not with what was asked for; the text says which."""


def check_loopback(host: str) -> None:
    """Raises ValueError if `host` is another machine's address, or a name that might be."""
    if not (host == "::1" or host.startswith("127.")):
        raise ValueError(f"{host} is not a loopback address; only servers of this machine are asked")


async def get(host: str, port: int, path: str, *, accept: str, most_bytes: int) -> tuple[int, bytes]:
    """Status and body. The caller bounds the time.

    Raises:
        NoAnswer: the port does not speak HTTP, or the answer is longer than `most_bytes`.
        OSError: no connection.
    """
    reader, writer = await asyncio.open_connection(host, port, limit=65536)
    try:
        # HTTP/1.0: the answer comes in one piece and ends with the connection.
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {host}:{port}\r\nAccept: {accept}\r\n\r\n".encode())
        await writer.drain()
        answer = bytearray()
        while piece := await reader.read(65536):
            answer += piece
            if len(answer) > most_bytes:
                raise NoAnswer(f"the answer is longer than {most_bytes} bytes")
    finally:
        writer.close()
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise NoAnswer("the port does not speak HTTP")
    return int(words[1]), body
