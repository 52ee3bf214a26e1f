"""Health for probes: alive while requests are answered, ready once sources are open and signatures loaded."""

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from .. import encode
from ..metrics import CONTENT_TYPE
from . import paging, schema
from .parts import Parts


def router(parts: Parts) -> APIRouter:
    routes = APIRouter(tags=["health"])

    def alive() -> Response:
        """The process answers."""
        return paging.json('{"status":"ok","because":""}')

    def ready() -> Response:
        """Signatures are loaded and every log is open; 503 names those that cannot be read. A log that is not there yet is told in `because`
        and waited for; a missing GPU does not matter."""
        view = parts.board.view()
        awaited = view.ready_because
        late = "; ".join(each.fault for each in view.sources if each.server and each.state == "waiting")
        text = encode.dumps({"status": "waiting" if awaited else "ok", "because": awaited or late})
        return paging.json(text, 503 if awaited else 200)

    for path, id in (("/healthz", "healthz"), ("/livez", "livez"), ("/-/healthy", "healthy")):
        routes.add_api_route(
            path,
            alive,
            operation_id=id,
            methods=["GET"],
            response_model=None,
            responses={200: {"model": schema.Health}},
        )
    for path, id in (("/readyz", "readyz"), ("/-/ready", "ready")):
        routes.add_api_route(
            path,
            ready,
            operation_id=id,
            methods=["GET"],
            response_model=None,
            responses={200: {"model": schema.Health}, 503: {"model": schema.Health}},
        )

    @routes.get(
        "/metrics",
        operation_id="metrics",
        response_model=None,
        response_class=PlainTextResponse,
    )
    def metrics() -> Response:
        """Prometheus text format 0.0.4."""
        return Response(parts.collector.exposition(), media_type=CONTENT_TYPE)

    return routes
