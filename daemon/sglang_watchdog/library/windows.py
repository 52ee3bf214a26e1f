"""The small language of `let:`: `median(power_ratio, 15s)`, `share_above(sm_util, 80, steady)`, `age(batch_lines)`.

function(series[, bound][, window]); a window is a duration or `steady`, the window of steady load (15 to 60 s).
"""

import re
from typing import Final

from ..config.faults import nearest
from ..model.series import FUNCTIONS, GPU_SERIES, LOG_SERIES
from ..model.signature import Window

UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
CALL: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*\(([^()]*)\)\s*$")
NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?$")
BOUNDED: Final = frozenset({"share_above", "share_below"})
WINDOWLESS: Final = frozenset({"age"})
EXAMPLE: Final = "Write it like `median(power_ratio, 15s)`, `share_above(sm_util, 80, steady)` or `age(batch_lines)`."


class BadWindow(ValueError):
    """The text of a window value cannot be used; `help` says how to write it."""

    def __init__(self, message: str, help: str = EXAMPLE) -> None:
        super().__init__(message)
        self.help = help


def duration_s(text: str) -> float:
    """Seconds of `15s`, `500ms`, `5m`, `1h30m`, `1d`.

    Raises:
        ValueError: not a duration; the message says what one looks like.
    """
    parts = DURATION.findall(text.strip())
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        raise ValueError(f"`{text}` is not a duration; write it like 15s, 500ms, 5m or 1h30m")
    return sum(float(number) * UNIT_S[unit] for number, unit in parts)


def is_series(name: str) -> bool:
    """True for a series of the closed list, the hits of the signature's own `match`, and extra readings of a GPU."""
    return name in LOG_SERIES or name in GPU_SERIES or name == "match" or name.startswith(("match.", "extra."))


def parse_window(name: str, text: str) -> Window:
    """Read one entry of `let`.

    Raises:
        BadWindow: with what is wrong and how to write it.
    """
    call = CALL.match(text)
    if call is None:
        raise BadWindow(f"`{text}` is not a window value")
    function, arguments = call[1], [part.strip() for part in call[2].split(",")]
    if function not in FUNCTIONS:
        raise BadWindow(f"unknown function `{function}`", nearest(function, FUNCTIONS))
    series, rest = arguments[0], arguments[1:]
    if not is_series(series):
        raise BadWindow(
            f"unknown series `{series}`",
            nearest(series, [*LOG_SERIES, *GPU_SERIES, "match"]) or "The series are listed in signatures/README.md.",
        )
    bound = _take_bound(function, rest)
    over_s, steady = _take_window(function, rest)
    if rest:
        raise BadWindow(f"`{function}` does not take `{rest[0]}`")
    return Window(name=name, function=function, series=series, over_s=over_s, steady=steady, argument=bound)


def _take_bound(function: str, rest: list[str]) -> float | None:
    if function not in BOUNDED:
        return None
    if not rest or not NUMBER.match(rest[0]):
        raise BadWindow(f"`{function}` needs a number after the series", f"For example `{function}(sm_util, 80, 15s)`.")
    return float(rest.pop(0))


def _take_window(function: str, rest: list[str]) -> tuple[float | None, bool]:
    if function in WINDOWLESS:
        return None, False
    if not rest:
        raise BadWindow(f"`{function}` needs a window", "Add a duration such as 15s, or `steady`.")
    text = rest.pop(0)
    if text == "steady":
        return None, True
    try:
        over_s = duration_s(text)
    except ValueError as error:
        raise BadWindow(str(error), "A window is a duration such as 15s or 5m, or `steady`.") from None
    if over_s <= 0:
        raise BadWindow("a window must be longer than 0s", "Add a duration such as 15s, or `steady`.")
    return over_s, False
