"""Style and script of the pages: files beside this one, put into the page itself, so that nothing is loaded from
anywhere."""

from functools import cache
from importlib.resources import files
from typing import Final

ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Ccircle cx='8' cy='8' r='7' "
    "fill='%232e7d4f'/%3E%3Ccircle cx='8' cy='8' r='3' fill='%23fff'/%3E%3C/svg%3E"
)


@cache
def text(name: str) -> str:
    """A file of this package as text; read once."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
