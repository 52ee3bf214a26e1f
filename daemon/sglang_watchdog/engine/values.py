"""Captured texts as the values of facts."""

import json

from ..model.observation import Json


def typed(text: str | None, kind: str) -> Json | None:
    """A captured text as the type its fact has; None if it does not parse."""
    if text is None:
        return None
    try:
        match kind:
            case "int":
                return int(text.replace(",", ""))
            case "float":
                return float(text.replace(",", ""))
            case "const":
                constant: Json = json.loads(text)
                return constant
            case "max_int":
                return max(int(part) for part in text.replace(",", " ").split())
    except ValueError:
        return None
    return text
