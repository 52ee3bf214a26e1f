"""Webhooks, signed as Standard Webhooks describes it, so that receivers can use a ready library to check them.

The signature is over "id.timestamp.body" with HMAC-SHA256; the id stays the same when a delivery is tried again, so a
receiver that saw it already can drop it.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from .. import encode
from ..ledger_reads import FindingRow
from . import http, message
from .http import DeliveryFailed
from .settings import ChatSettings, WebhookSettings


class Channel(Protocol):
    """Something a finding can be told to."""

    def tell(self, row: FindingRow, change_id: int, *, told_before: bool, now_s: float) -> None:
        """Raises:
        DeliveryFailed: it did not arrive.
        """


class SecretInvalid(Exception):
    """The webhook's secret cannot be used."""


class Webhook:
    def __init__(self, settings: WebhookSettings, external_url: str = "") -> None:
        self._settings, self._external_url = settings, external_url

    def tell(self, row: FindingRow, change_id: int, *, told_before: bool, now_s: float) -> None:
        body = encode.dumps(message.payload(row, self._external_url, told_before=told_before)).encode()
        try:
            signed = headers(secret(self._settings.secret_file), f"{row.id}-{change_id}", int(now_s), body)
        except (OSError, SecretInvalid) as fault:
            raise DeliveryFailed(f"the secret of this webhook: {fault}") from fault
        http.post(self._settings.url, body, signed, timeout_s=self._settings.timeout_s, ca_file=self._settings.ca_file)


def secret(file: Path) -> bytes:
    """The key in a file: `whsec_` and base64, as Standard Webhooks writes it, or any other text of 24 characters or
    more.

    Raises:
        SecretInvalid, OSError
    """
    text = file.read_text(encoding="utf-8").strip()
    if text.startswith("whsec_"):
        try:
            key = base64.b64decode(text.removeprefix("whsec_"), validate=True)
        except ValueError as fault:
            raise SecretInvalid(f"{file}:1:7: what follows whsec_ is no base64") from fault
    else:
        key = text.encode()
    if len(key) < 24:
        raise SecretInvalid(f"{file}:1:1: the secret is shorter than 24 bytes; make one with `openssl rand -base64 32`")
    return key


def headers(key: bytes, id: str, at_s: int, body: bytes) -> Mapping[str, str]:
    digest = hmac.new(key, b".".join((id.encode(), str(at_s).encode(), body)), hashlib.sha256).digest()
    return {
        "content-type": "application/json",
        "user-agent": "sglang-watchdog",
        "webhook-id": id,
        "webhook-timestamp": str(at_s),
        "webhook-signature": "v1," + base64.b64encode(digest).decode(),
    }


class Chat:
    """Chats by apprise, if it is installed. `send` gets the URLs, title and text, and says whether it arrived."""

    def __init__(self, settings: ChatSettings, external_url: str = "", send: Callable[[list[str], str, str], bool] | None = None) -> None:
        self._settings, self._external_url = settings, external_url
        self._send = send or _by_apprise

    def tell(self, row: FindingRow, change_id: int, *, told_before: bool, now_s: float) -> None:  # noqa: ARG002
        try:
            urls = chat_urls(self._settings.urls_file)
        except OSError as fault:
            raise DeliveryFailed(f"{self._settings.urls_file}: {fault.strerror}") from fault
        title, text = message.prose(row, self._external_url)
        if not self._send(urls, title, text):
            raise DeliveryFailed(f"{self._settings.name}: at least one chat did not take it")


def chat_urls(file: Path) -> list[str]:
    """One address of apprise a line; `#` begins a comment. Raises OSError."""
    lines = [line.strip() for line in file.read_text(encoding="utf-8", errors="replace").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def _by_apprise(urls: list[str], title: str, text: str) -> bool:
    try:
        import apprise  # noqa: PLC0415 - an optional extra
    except ImportError as fault:
        raise DeliveryFailed("chats need apprise: pip install 'sglang-watchdog[notify]'") from fault
    sender = apprise.Apprise()
    for url in urls:
        if not sender.add(url):
            raise DeliveryFailed("a line of the chat file is no address that apprise understands", is_final=True)
    return bool(sender.notify(title=title, body=text))
