"""Findings, acknowledgements and silences."""

import asyncio
import secrets
from collections.abc import Collection, Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, Body, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from ...config.faults import nearest
from ...model.observation import Command
from ...model.words import Severity, State
from .. import encode
from ..ledger_reads import FindingFilter
from ..ledger_writes import Acknowledgement, Silence, acknowledgement_document, silence_document
from . import paging, schema
from .paging import Id, Moment, Paged, Words
from .parts import Parts
from .problems import Problem, not_found
from .schema import answers

Matcher = Literal["server", "run", "signature", "topic", "severity", "gpu", "finding"]


class FindingQuery(Paged):
    server: Words = Query([])
    state: list[State] = Query([], max_length=4)
    severity: list[Severity] = Query([], max_length=3)
    topic: Words = Query([])
    signature: Words = Query([])
    run: Words = Query([])
    since: Moment | None = Query(None, description="Last seen at or after.")


class AcknowledgementBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"by": "ada", "note": "restart planned for tonight"}]})

    by: str = Field("", max_length=200, description="Who; the token's name if left out.")
    note: str = Field("", max_length=2000)
    until: Moment | None = Field(None, description="When it lapses; it always ends with the finding.")


class SilenceBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "matchers": {"server": "chat", "topic": "moe.triton-untuned"},
                    "reason": "tuning now",
                    "duration_s": 7200,
                }
            ]
        },
    )

    matchers: dict[Matcher, Annotated[str, Field(min_length=1, max_length=200)]] = Field(
        min_length=1, description="All must be equal for a finding to be silenced."
    )
    reason: str = Field(min_length=1, max_length=2000)
    by: str = Field("", max_length=200, description="Who; the token's name if left out.")
    duration_s: int = Field(ge=1, le=31_536_000)
    starts_at: Moment | None = Field(None, description="Now if left out.")


def router(parts: Parts) -> APIRouter:
    routes = APIRouter(prefix="/api/v1", tags=["findings"])
    ledger = parts.ledger

    @routes.get("/findings", operation_id="list_findings", **answers(schema.FindingPage))
    def list_findings(asked: Annotated[FindingQuery, Query()]) -> Response:
        """Findings, newest first. Several values of one field mean any of them."""
        found = ledger.findings(
            FindingFilter(
                server=tuple(asked.server),
                state=tuple(asked.state),
                severity=tuple(asked.severity),
                topic=tuple(asked.topic),
                signature=tuple(asked.signature),
                run=tuple(asked.run),
                since_s=paging.moment(asked.since),
            ),
            limit=asked.limit,
            cursor=asked.after,
        )
        return paging.page("findings", (row.json() for row in found.items), found.next_cursor)

    @routes.get("/findings/{id}", operation_id="get_finding", **answers(schema.Finding, 404))
    def get_finding(id: Id) -> Response:
        row = ledger.finding(id)
        if row is None:
            raise not_found("finding", id)
        return paging.json(row.json())

    @routes.post("/findings/{id}/acknowledgement", operation_id="acknowledge_finding", **answers(schema.Acknowledgement, 404, 409))
    async def acknowledge(id: Id, request: Request, body: Annotated[AcknowledgementBody, Body()]) -> Response:
        """Say that somebody has taken it. Changes nothing that is evaluated; ends with the finding."""
        word = Acknowledgement(
            finding=id,
            author=_author(body.by, request),
            note=body.note,
            at_s=parts.now(),
            until_s=paging.moment(body.until),
        )
        if await asyncio.wrap_future(ledger.acknowledge(word)) is None:
            if ledger.finding(id) is None:
                raise not_found("finding", id)
            raise Problem(409, "finding-is-over", "Only a pending or firing finding can be acknowledged.")
        parts.command(Command(at_s=word.at_s, action="acknowledge", by=word.author, target=id, note=word.note, until_s=word.until_s))
        return paging.json(encode.dumps(acknowledgement_document(word)))

    @routes.delete("/findings/{id}/acknowledgement", operation_id="withdraw_acknowledgement", **answers(None, 404, status=204))
    async def withdraw(id: Id, request: Request) -> Response:
        author = _author("", request)
        if await asyncio.wrap_future(ledger.withdraw(id, author)) is None:
            raise not_found("acknowledgement of finding", id)
        parts.command(Command(at_s=parts.now(), action="unacknowledge", by=author, target=id))
        return Response(status_code=204)

    @routes.get("/silences", operation_id="list_silences", **answers(schema.SilencePage))
    def list_silences(asked: Annotated[Paged, Query()]) -> Response:
        """Silences, newest first, ended ones too."""
        now_s = parts.now()
        return paging.slice_of("silences", ledger.silences(), asked, lambda each: silence_document(each, now_s))

    @routes.post("/silences", operation_id="create_silence", **answers(schema.Silence, status=201))
    async def create_silence(request: Request, body: Annotated[SilenceBody, Body()]) -> Response:
        """Tell nobody of findings that match. They are evaluated, recorded and shown as before."""
        now_s = parts.now()
        starts_s = paging.moment(body.starts_at)
        starts_s = now_s if starts_s is None else starts_s
        matchers = {str(name): value for name, value in body.matchers.items()}
        _check_matchers(matchers, parts)
        silence = Silence(
            id=secrets.token_hex(8),
            matchers=matchers,
            author=_author(body.by, request),
            reason=body.reason,
            starts_s=starts_s,
            ends_s=starts_s + body.duration_s,
        )
        await asyncio.wrap_future(ledger.silence(silence))
        parts.command(
            Command(
                at_s=now_s,
                action="silence",
                by=silence.author,
                target=silence.id,
                note=silence.reason,
                until_s=silence.ends_s,
                matchers=matchers,
            )
        )
        return paging.json(encode.dumps(silence_document(silence, now_s)), 201)

    @routes.delete("/silences/{id}", operation_id="end_silence", **answers(None, 404, status=204))
    async def end_silence(id: Id, request: Request) -> Response:
        """End it now; it stays on record."""
        author = _author("", request)
        if await asyncio.wrap_future(ledger.end_silence(id, author)) is None:
            raise not_found("silence in force", id)
        parts.command(Command(at_s=parts.now(), action="unsilence", by=author, target=id))
        return Response(status_code=204)

    return routes


def _check_matchers(matchers: Mapping[str, str], parts: Parts) -> None:
    """A silence for what cannot exist would leave somebody in the belief that nobody is called.

    Raises:
        Problem: a word is misspelt, or the signature is never of that topic.
    """
    library, ledger = parts.library(), parts.ledger
    topics = {*library.topics, *(each.topic for each in library.signatures.values())}
    valid: dict[str, Collection[str]] = {
        "server": parts.board.view().servers,
        "topic": topics,
        "signature": library.signatures,
        "severity": [each.value for each in Severity],
    }
    errors = [
        {"where": f"body.matchers.{name}", "message": f"There is no such {name}. {nearest(wanted, valid[name])}".strip()}
        for name, wanted in matchers.items()
        if name in valid and wanted not in valid[name] and not ledger.has_finding(name, wanted)
    ]
    if "gpu" in matchers and not matchers["gpu"].isdecimal():
        errors.append({"where": "body.matchers.gpu", "message": "A GPU is named by its index, as in 0."})
    if "finding" in matchers and ledger.finding(matchers["finding"]) is None:
        errors.append({"where": "body.matchers.finding", "message": "There is no such finding. List them at /api/v1/findings."})
    if "run" in matchers and ledger.run(matchers["run"]) is None:
        errors.append({"where": "body.matchers.run", "message": "There is no such run. List them at /api/v1/runs."})
    signature, topic = library.signatures.get(matchers.get("signature", "")), matchers.get("topic")
    if signature is not None and topic in topics and topic != signature.topic:
        errors.append({"where": "body.matchers.topic", "message": f"Findings of this signature have the topic `{signature.topic}`."})
    if errors:
        raise Problem(422, "matches-nothing", "No finding can ever match this.", do="Correct what is named in `errors`.", errors=errors)


def _author(by: str, request: Request) -> str:
    token = request.scope["state"].get("token")
    return by or (token.name if token is not None else "")
