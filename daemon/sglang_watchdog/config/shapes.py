"""Checks a YAML document against a pydantic model and turns each complaint into a fault with its place."""

import types
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from .faults import Fault, nearest
from .yaml_source import Document, Way


class Shape(BaseModel):
    """Base of everything that is read from YAML: unknown keys are refused, values don't change after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Model = TypeVar("Model", bound=BaseModel)


def shape(document: Document, model: type[Model], *, code: str = "") -> tuple[Model | None, list[Fault]]:
    """The document as `model`, or None and every fault found in it."""
    if document.faults:
        return None, list(document.faults)
    if not isinstance(document.value, dict):
        what = "empty" if document.value is None else f"a {_kind(document.value)}"
        return None, [
            document.fault(
                (),
                f"a mapping is needed here, this is {what}",
                code=code,
                help=f"Begin with one of: {', '.join(sorted(field_names(model)))}.",
            )
        ]
    try:
        return model.model_validate(document.value), []
    except ValidationError as error:
        return None, faults_of(error, document, model, code=code)


def faults_of(error: ValidationError, document: Document, model: type[BaseModel], *, code: str = "") -> list[Fault]:
    """Each complaint of pydantic as a fault in the document."""
    return [fault_of(dict(item), document, model, code) for item in error.errors(include_url=False)]


def fault_of(item: dict[str, Any], document: Document, model: type[BaseModel], code: str, *, shown: Way | None = None) -> Fault:
    """One complaint of pydantic as a fault. `shown`: where it stands in the document, if not where it stands in the model."""
    way: Way = tuple(item["loc"])
    place = way if shown is None else shown
    kind = item["type"]
    name = str(way[-1]) if way else ""
    if kind == "extra_forbidden":
        return document.fault(place, f"unknown key `{name}`", key=True, code=code, help=nearest(name, names_at(model, way[:-1])))
    if kind == "union_tag_not_found":
        kind, name, way = "missing", "type", (*way, "type")
    if kind == "missing":
        around = place[:-1] if place[-1:] == (name,) else place
        return document.fault(around, f"`{name}` is missing{_inside(way[:-1])}", key=True, code=code, help=f"Add `{name}:`.")
    if kind in ("literal_error", "enum", "union_tag_invalid"):
        context = item.get("ctx", {})
        expected = str(context.get("expected", context.get("expected_tags", "")))
        words = [word.strip(" '") for word in expected.replace(" or ", ",").split(",") if word.strip(" '")]
        given = context["tag"] if kind == "union_tag_invalid" else item["input"]
        return document.fault(place, f"`{given}` is not a value of `{_label(way)}`", code=code, help=nearest(str(given), words))
    message = str(item["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if kind.endswith(("_type", "_parsing")) or kind not in ("value_error", "assertion_error"):
        message = f"`{_label(way)}`: {message[0].lower()}{message[1:]}, this is {_described(item['input'])}"
    return document.fault(place, message, code=code)


def _inside(way: Way) -> str:
    return f" in `{_label(way)}`" if way else ""


def _label(way: Way) -> str:
    return ".".join(str(step) for step in way if not isinstance(step, int)) or "the file"


def _kind(value: Any) -> str:
    return {
        dict: "mapping",
        list: "list",
        str: "text",
        bool: "true or false",
        int: "whole number",
        float: "number",
    }.get(type(value), type(value).__name__)


def _described(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, (dict, list)):
        return f"a {_kind(value)}"
    return f"`{value}`"


def field_names(model: type[BaseModel]) -> set[str]:
    """The keys that a model accepts, as they are written in YAML."""
    return {field.alias or name for name, field in model.model_fields.items()}


def names_at(model: type[BaseModel], way: Way) -> set[str]:
    """The keys accepted at `way` below `model`; of each branch where the type is a choice."""
    found: list[Any] = [model]
    for step in way:
        below = [inner for annotation in found for inner in _below(annotation, step)]
        found = below or [one for annotation in found for one in _models(annotation) if _is_tagged(one, step)]
    return {name for annotation in found for one in _models(annotation) for name in field_names(one)}


def _is_tagged(model: type[BaseModel], tag: str | int) -> bool:
    """True for the branch of a choice by `type` that has this tag."""
    field = model.model_fields.get("type")
    return field is not None and tag in get_args(field.annotation)


def field_at(value: Any, way: Way) -> Any:
    """The pydantic field that holds `way` below a validated value, or None where it is no field of a model."""
    found = None
    for step in way:
        if isinstance(value, BaseModel):
            found = type(value).model_fields.get(str(step))
            value = getattr(value, str(step), None)
        elif isinstance(value, (dict, list)):
            value = value[step]  # type: ignore[index]
    return found


def _below(annotation: Any, step: str | int) -> Iterator[Any]:
    for option in _options(annotation):
        if isinstance(option, type) and issubclass(option, BaseModel):
            for name, field in option.model_fields.items():
                if step in (name, field.alias):
                    yield field.annotation
            if step == option.__name__:
                yield option
        elif get_origin(option) in (list, tuple, set, frozenset) and isinstance(step, int):
            yield get_args(option)[0]
        elif get_origin(option) in (dict, Mapping) or _is_mapping(option):
            yield get_args(option)[1]


def _is_mapping(option: Any) -> bool:
    origin = get_origin(option)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    for option in _options(annotation):
        if isinstance(option, type) and issubclass(option, BaseModel):
            yield option


def _options(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _options(get_args(annotation)[0])
    elif origin in (typing.Union, types.UnionType):
        for inner in get_args(annotation):
            yield from _options(inner)
    else:
        yield annotation
