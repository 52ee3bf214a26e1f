"""Reads uvicorn's access lines: what kind of endpoint answered, and how.

Paths and query strings are the user's and are not kept.
"""

from dataclasses import dataclass
from typing import Final

from .record import ACCESS

_GENERATE: Final = frozenset(
    b"/generate /v1/chat/completions /v1/completions /v1/responses /v1/messages /v1/embeddings /v1/rerank /v1/score /v1/classify "
    b"/v1/audio/transcriptions /encode /classify /api/chat /api/generate /invocations /vertex_generate /generate_from_file "
    b"/rerank /score".split()
)
_HEALTH: Final = frozenset(b"/health /health_generate /healthz /livez /readyz /ping /v1/health/live /v1/health/ready".split())


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer. `kind`: generate (a generating endpoint), health, metrics, other."""

    kind: str
    status: int


def kind_of_path(path: bytes) -> str:
    """Return which kind of endpoint a request path, query string included, asks for."""
    if b"?" in path:
        path = path[: path.index(b"?")]
    if path in _GENERATE:
        return "generate"
    if path in _HEALTH:
        return "health"
    if path in (b"/metrics", b"/metrics/"):
        return "metrics"
    return "other" if not path.endswith(b"/") or len(path) == 1 else kind_of_path(path.rstrip(b"/") or b"-")


def answer_of(message: bytes) -> Answer | None:
    """Return the answer that an access line reports, or None if the message is none."""
    found = ACCESS.match(message)
    return Answer(kind_of_path(found[1]), int(found[2])) if found else None
