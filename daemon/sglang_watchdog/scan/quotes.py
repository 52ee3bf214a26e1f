"""Cuts sentences out of quotes: what users wrote stands in a record as a repr or as JSON, between quotation marks.

An apostrophe is no quotation mark: `can't reach the GPU, it doesn't answer` holds no quote. The mark that opens one stands
behind something that is no letter (`=`, a bracket, a blank) or behind the letter of a literal (`b'…'`).
"""

import re
from typing import Final

_QUOTE: Final = re.compile(
    r"""(?:(?<![^\W_])|(?<=\b[bBrRuUfF]))'(?:[^'\\]|\\.)*(?:'|\\?\Z)|"(?:[^"\\]|\\.)*(?:"|\\?\Z)""",
    re.ASCII,
)


def without_sentences(text: str) -> str:
    """Return a text with each quote that holds a blank emptied to `''`; quoted words, as in `'cuda'`, stay."""
    return _QUOTE.sub(_without_sentence, text)


def _without_sentence(quote: re.Match[str]) -> str:
    return "''" if any(map(str.isspace, quote[0])) else quote[0]
