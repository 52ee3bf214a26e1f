"""Puts the HTTP surface together."""

from fastapi import FastAPI, Request
from starlette.responses import Response

from . import changes, docs, frame, openapi, page, problems, routes_findings, routes_health, routes_machine, routes_runs
from .parts import Parts, WebSettings
from .security import Gate


def create(parts: Parts) -> FastAPI:
    """The application, for uvicorn or a test client. It holds no state of its own beyond rate counters."""
    app = FastAPI(
        title="SGLang Watchdog",
        version="1",
        summary="Which code path an SGLang server is really on, with proof.",
        description="Times are RFC 3339 UTC. Lists come in pages. Errors are problem details (RFC 9457).",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,
    )
    for module in (routes_findings, routes_runs, routes_machine, changes, routes_health):
        app.include_router(module.router(parts))
    openapi.install(app)
    problems.install(app)
    page.install(app, parts)

    @app.get("/docs", include_in_schema=False)
    def documentation(request: Request) -> Response:
        title = "SGLang Watchdog: API"
        if request.scope["state"].get("is_stranger"):
            return frame.stranger(title)
        return frame.respond(title, docs.render(app.openapi(), _base(request, parts.settings)), follows=False)

    app.add_middleware(Gate, parts=parts)
    return app


def _base(request: Request, settings: WebSettings) -> str:
    """Where the reader reaches the daemon: as configured, else as this very request did. The gate has checked its Host header."""
    asked = f"{request.scope['scheme']}://{request.headers.get('host', '127.0.0.1')}{settings.root_path}"
    return (settings.external_url or asked).rstrip("/")
