"""Markup that cannot be forgotten to escape: text is escaped when it is put in, markup is a type of its own.

Log text is hostile by assumption: it may hold tags, scripts, bidirectional controls and terminal escapes.
"""

import html as standard
import re
from collections.abc import Iterable
from typing import Final

# Controls, and the characters that reorder text so that a line reads as something it is not.
_UNSEEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


class Markup(str):
    """HTML that was built here."""

    __slots__ = ()


def text(item: object) -> Markup:
    """Anything as escaped text; what cannot be seen becomes visible."""
    if isinstance(item, Markup):
        return item
    return Markup(standard.escape(_UNSEEN.sub(lambda match: f"\\x{ord(match[0]):02x}", str(item)), quote=True))


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """An element. `class_` stands for class, `_` in names for `-`; None leaves an attribute out, True writes it
    bare."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[object]) -> Markup:
    return Markup("".join(text(child) for child in children if child is not None))


def link(address: str, label: object) -> Markup:
    """A link if the address is one of the web or of ours; else only its text, since `javascript:` is an address too."""
    if address.startswith(("https://", "http://", "#", "./")):
        return tag("a", label, href=address, rel="noreferrer")
    return text(label)
