"""What this machine says of itself."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from ..parse.zone import Zone


def machine_zone() -> Zone:
    """This machine's zone at present."""
    info = datetime.now().astimezone().tzinfo or UTC
    offset = datetime.now(info).utcoffset() or timedelta(0)
    if not offset:
        return Zone.utc(certain=False)
    sign = "-" if offset < timedelta(0) else "+"
    minutes = abs(int(offset.total_seconds())) // 60
    return replace(Zone.named(f"{sign}{minutes // 60:02}:{minutes % 60:02}"), certain=False)
