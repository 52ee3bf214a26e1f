"""Finds the SGLang servers of this machine by their processes, when nobody names a log."""

from ..sources.discover import find_servers
from .plan import ServerPlan
from .planning import log_plans


def discover() -> tuple[ServerPlan, ...]:
    """A plan for each running launcher; one whose output cannot be read is watched by its processes and GPUs alone."""
    found = find_servers()
    return tuple(
        ServerPlan(
            name=one.name,
            logs=log_plans(one.name, list(one.logs), alone=len(found) == 1),
            pid=one.launcher.pid,
            url=f"http://127.0.0.1:{one.launcher.port}",
        )
        for one in found
    )
