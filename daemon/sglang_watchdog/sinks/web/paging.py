"""Lists in pages: what every list takes and gives."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar

from fastapi import Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema
from starlette.responses import Response

from .. import decode, encode

T = TypeVar("T")

_RFC3339 = r"^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$"


def _moment(text: str) -> str:
    decode.time(text.upper())
    return text


Moment = Annotated[
    str,
    Field(pattern=_RFC3339, max_length=40),
    AfterValidator(_moment),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-02-19T08:00:00Z"]}),
]
Word = Annotated[str, Field(min_length=1, max_length=200)]
Words = Annotated[list[Word], Field(max_length=50)]
Id = Annotated[str, Field(min_length=1, max_length=200)]


def moment(text: str | None) -> float | None:
    """Unix seconds of a validated Moment."""
    return None if text is None else decode.time(text.upper())


class Paged(BaseModel):
    """What each list understands; anything else in the query is refused rather than ignored."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Query(100, ge=1, le=1000, description="How many at most.")
    cursor: str | None = Query(None, pattern=r"^[0-9]{1,18}$", description="`next_cursor` of the page before.")

    @property
    def after(self) -> int | None:
        return None if self.cursor is None else int(self.cursor)


def json(text: str, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(text, status, headers=headers, media_type="application/json")


def page(noun: str, texts: Iterable[str], next_cursor: int | None) -> Response:
    """A list of JSON texts under its noun."""
    cursor = "null" if next_cursor is None else f'"{next_cursor}"'
    return json(f'{{"{noun}":[{",".join(texts)}],"next_cursor":{cursor}}}')


def slice_of(noun: str, items: Sequence[T], asked: Paged, document: Callable[[T], Any]) -> Response:
    """A page of a list that is in memory; the cursor is the place in it."""
    start = asked.after or 0
    end = start + asked.limit
    return page(noun, (encode.dumps(document(item)) for item in items[start:end]), end if end < len(items) else None)


__all__ = ["Id", "Moment", "Paged", "Word", "Words", "datetime", "json", "moment", "page", "slice_of"]
