"""How long each part of `make soak` may take."""

import os


def seconds(share: float) -> float:
    """A share (0 to 1) of SOAK_SECONDS; ten minutes if it is not set."""
    return float(os.environ.get("SOAK_SECONDS", "600")) * share
