"""Errors as problem details (RFC 9457): what happened, and what to do about it."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from .. import encode

STREAM: Final = "/api/v1/changes"  # has no end to wait for, and so no HEAD
MEDIA_TYPE: Final = "application/problem+json"


class Problem(Exception):
    """An answer other than success. `kind` is the stable word programs can rely on."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        do: str = "",
        errors: Sequence[Mapping[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail, self.do = status, kind, detail, do
        self.errors, self.headers = errors, headers


def not_found(what: str, id: str) -> Problem:
    return Problem(404, "not-found", f"There is no {what} {id!r}.", do="It may be past its retention; list what there is.")


def document(problem: Problem, instance: str) -> encode.Document:
    title = HTTPStatus(problem.status).phrase
    body: encode.Document = {
        "type": f"urn:sglang-watchdog:problem:{problem.kind}",
        "title": title,
        "status": problem.status,
        "detail": problem.detail,
        "instance": instance,
    }
    if problem.do:
        body["do"] = problem.do
    if problem.errors:
        body["errors"] = [dict(each) for each in problem.errors]
    return body


def response(problem: Problem, instance: str) -> Response:
    return Response(encode.dumps(document(problem, instance)), problem.status, headers=problem.headers, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Every error of the application leaves as a problem document; what was sent is never quoted back."""

    async def ours(request: Request, fault: Exception) -> Response:
        assert isinstance(fault, Problem)
        return response(fault, request.url.path)

    async def framework(request: Request, fault: Exception) -> Response:
        assert isinstance(fault, HTTPException)
        kind = {404: "not-found", 405: "method-not-allowed", 413: "too-large"}.get(fault.status_code, "refused")
        detail = {
            413: "The body is too large.",
            404: "There is nothing at this address.",
            405: "This method is not possible here; `Allow` names those that are.",
        }.get(fault.status_code, str(fault.detail))
        headers = {"allow": ", ".join(_allowed(request))} if fault.status_code == 405 else fault.headers
        return response(Problem(fault.status_code, kind, detail, do="See /docs.", headers=headers), request.url.path)

    async def invalid(request: Request, fault: Exception) -> Response:
        assert isinstance(fault, RequestValidationError)
        return response(
            Problem(
                422,
                "invalid-request",
                "The request does not fit the description of this operation.",
                do="See /docs.",
                errors=[_error(each) for each in fault.errors()][:20],
            ),
            request.url.path,
        )

    app.add_exception_handler(Problem, ours)
    app.add_exception_handler(HTTPException, framework)
    app.add_exception_handler(RequestValidationError, invalid)


def _allowed(request: Request) -> list[str]:
    """What is possible at this address, over all routes: the framework names the first one's methods only."""
    found = [
        method
        for method in ("GET", "POST", "DELETE")
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in request.app.routes)
    ]
    return ["GET", "HEAD", *found[1:]] if found[:1] == ["GET"] and request.scope["path"] != STREAM else found


def _error(fault: Mapping[str, Any]) -> dict[str, str]:
    return {"where": ".".join(str(part) for part in fault["loc"])[:200], "message": str(fault["msg"])[:500]}
