"""What this installation is."""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed


def version() -> str:
    """The installed version, or a word that says that it is not installed."""
    try:
        return installed("sglang-watchdog")
    except PackageNotFoundError:
        return "0+unknown"
