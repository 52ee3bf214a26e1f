"""How the place of a log is written in a configuration and on the command line."""

from typing import Final

SCHEMES: Final = ("journal", "docker", "cri", "kmsg")
FORMS: Final = "/path/to/server.log, /a/pattern/*.log, journal:UNIT, docker:NAME, cri:NAMESPACE/POD/CONTAINER, kmsg: or -"


def scheme_of(where: str) -> str:
    """The word before the colon if it names a kind of place, else "": then it is a path."""
    scheme, colon, _ = where.partition(":")
    return scheme if colon and scheme in SCHEMES else ""


def valid_place(where: str) -> str:
    """The place, if a daemon can find it: its working folder is none of the operator's, so a path begins with a slash.

    Raises:
        ValueError: it is neither a full path nor one of the other forms.
    """
    if where == "-" or scheme_of(where) or where.startswith("/"):
        return where
    word = f"; did you mean journal:{where}?" if where.endswith(".service") else ""
    raise ValueError(f"`{where}` is no place of a log; write it like {FORMS}{word}")
