"""Reads secrets from files and systemd credentials, when they are used and never before."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .settings import Token

MOST_BYTES: Final = 64 << 10


class NoSecret(ValueError):
    """A secret cannot be read; the message says why and what to do, and never what was read."""


def read_secret(file: str | None, credential: str | None, environment: Mapping[str, str]) -> str:
    """The text of a secret without its final newline.

    Raises:
        NoSecret: the file or credential is missing, unreadable, empty or too large.
    """
    path = secret_path(file, credential, environment)
    try:
        with path.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise NoSecret(f"{path} cannot be read: {error.strerror}. Check the path and its permissions.") from None
    if len(data) > MOST_BYTES:
        raise NoSecret(f"{path} is larger than {MOST_BYTES >> 10} KiB: that is no secret.")
    text = data.decode("utf-8", "replace").strip()
    if not text:
        raise NoSecret(f"{path} is empty. Write the secret into it.")
    return text


def secret_path(file: str | None, credential: str | None, environment: Mapping[str, str]) -> Path:
    """Where a secret lies.

    Raises:
        NoSecret: the credential is none that this process was given.
    """
    return Path(file) if file is not None else _credential(credential or "", environment)


def _credential(name: str, environment: Mapping[str, str]) -> Path:
    folder = environment.get("CREDENTIALS_DIRECTORY")
    if not folder:
        raise NoSecret(f"there is no systemd credential `{name}`: the unit needs LoadCredential={name}:FILE.")
    if "/" in name or name in ("", ".", ".."):
        raise NoSecret(f"`{name}` is no name of a credential.")
    return Path(folder) / name


def token_hash(token: Token, environment: Mapping[str, str]) -> str:
    """SHA-256 of a token, in hex. A file may hold the token itself or, 64 hex digits, its hash.

    Raises:
        NoSecret: the token's file or credential cannot be read.
    """
    if token.sha256 is not None:
        return token.sha256
    text = read_secret(token.file, token.credential, environment)
    return text if len(text) == 64 and not set(text) - set("0123456789abcdef") else hashlib.sha256(text.encode()).hexdigest()
