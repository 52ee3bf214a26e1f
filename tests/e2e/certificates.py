"""Self-signed certificates, made when they are needed."""

import subprocess
from pathlib import Path

from deploy.tools import tool


def certificate(folder: Path, name: str) -> None:
    """`name`.crt for localhost and 127.0.0.1, and `name`.key."""
    openssl(
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.crt",
    )  # fmt: skip


def openssl(*arguments: str | Path) -> None:
    subprocess.run([tool("openssl"), *map(str, arguments)], check=True, capture_output=True)
