"""The API's documentation as a page, from the OpenAPI document itself, without anything from elsewhere."""

import json
from collections.abc import Mapping
from typing import Any

from .html import Markup, join, link, tag

Document = Mapping[str, Any]


def render(document: Document, base: str) -> Markup:
    """The page's main part: every operation with its parameters, answers, and a call to copy. `base`: where the daemon is reached."""
    groups: dict[str, list[Markup]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            groups.setdefault(operation["tags"][0], []).append(_operation(base, path, method, operation))
    schemas = [
        tag("details", tag("summary", name), tag("pre", json.dumps(schema, indent=1)), id=f"schema-{name}")
        for name, schema in document["components"]["schemas"].items()
    ]
    return tag(
        "main",
        tag(
            "section",
            tag("p", document["info"]["description"]),
            tag("p", "The same for programs: ", link("./openapi.json", "openapi.json"), class_="soft"),
        ),
        *(tag("section", tag("h2", name), *operations) for name, operations in groups.items()),
        tag("section", tag("h2", "Shapes"), *schemas),
    )


def _operation(base: str, path: str, method: str, operation: Document) -> Markup:
    token = "" if {} in operation.get("security", [{}]) else " -H 'Authorization: Bearer TOKEN'"
    body = _body_example(operation)
    call = (
        f"curl{'' if method == 'get' else ' -X ' + method.upper()}{token}"
        + (f" -H 'Content-Type: application/json' -d '{body}'" if body else "")
        + f" {base}{path}"
    )
    parameters = [
        tag(
            "tr",
            tag("td", tag("code", each["name"])),
            tag("td", each["in"]),
            tag("td", _type(each["schema"])),
            tag("td", each.get("description", ""), class_="free"),
        )
        for each in operation.get("parameters", ())
    ]
    answers = [
        tag("tr", tag("td", status), tag("td", answer.get("description", ""), class_="free"), tag("td", _shape(answer)))
        for status, answer in operation["responses"].items()
    ]
    return tag(
        "article",
        tag(
            "div",
            tag("h3", f"{method.upper()} {path}"),
            tag("code", operation["operationId"], class_="place"),
            class_="head",
        ),
        tag("p", operation.get("description", "")),
        tag("pre", call),
        tag(
            "details",
            tag("summary", "parameters and answers"),
            tag("div", tag("table", *parameters, *answers), class_="wide"),
            id=f"op-{operation['operationId']}",
        ),
        class_="info",
    )


def _body_example(operation: Document) -> str:
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    return "" if schema is None else "{…}"


def _type(schema: Document) -> str:
    options = schema.get("anyOf", [schema])
    words = [each.get("format") or each.get("type") or _name(each) for each in options if each.get("type") != "null"]
    items = options[0].get("items")
    return f"{words[0]} of {_type(items)}" if items else " or ".join(words)


def _name(schema: Document) -> str:
    return str(schema.get("$ref", "")).rsplit("/", 1)[-1]


def _shape(answer: Document) -> Markup:
    shapes = [_name(content.get("schema", {})) for content in answer.get("content", {}).values()]
    return join([link(f"#schema-{name}", name) for name in shapes if name])
