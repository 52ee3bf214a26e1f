"""The OpenAPI document: what FastAPI derives, completed with what holds for every operation."""

from typing import Any, Final

from fastapi import FastAPI

from . import examples
from .schema import PROBLEM, ProblemDetails

_ALWAYS: Final = {
    "400": "The request is malformed.",
    "401": "A bearer token is missing or unknown.",
    "403": "The token's scope does not suffice, or the request comes from a page of another site.",
    "421": "The Host header names no host of ours.",
    "422": "The request does not fit the description.",
    "429": "Too many requests.",
}
_HEALTH: Final = "health"
_METHODS: Final = ("get", "post", "delete")


def install(app: FastAPI) -> None:
    derive = app.openapi

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(derive())
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas["ProblemDetails"] = ProblemDetails.model_json_schema(ref_template="#/components/schemas/{model}")
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    components["securitySchemes"] = {
        "token": {
            "type": "http",
            "scheme": "bearer",
            "description": ("Needed to write, and to read beyond loopback. Scopes: read, write (includes read), metrics."),
        }
    }
    shown = examples.answers()
    for path in document["paths"].values():
        for method in _METHODS:
            if method in path:
                _complete(path[method], writes=method != "get")
                _show(path[method], shown)
    components["schemas"] = dict(sorted(schemas.items()))
    return document


def _complete(operation: dict[str, Any], *, writes: bool) -> None:
    responses = operation["responses"]
    is_health = operation["tags"] == [_HEALTH] and operation["operationId"] != "metrics"
    for status, description in ({} if is_health else _ALWAYS).items():
        if status == "422" or status not in responses:
            responses[status] = {"description": description, **PROBLEM}
    for response in responses.values():
        response.setdefault("description", "Done.")
    if writes and "requestBody" in operation:
        responses["413"] = {"description": "The body is too large.", **PROBLEM}
    operation["responses"] = dict(sorted(responses.items()))
    if not is_health:
        operation["security"] = [{"token": []}] if writes else [{}, {"token": []}]


def _show(operation: dict[str, Any], shown: dict[str, Any]) -> None:
    for status, response in operation["responses"].items():
        content = response.get("content", {}).get("application/json")
        if content is not None and status in ("200", "201") and operation["operationId"] in shown:
            content["example"] = shown[operation["operationId"]]
