"""Everything that changes, as Server-Sent Events out of the ledger; a client that was away goes on where it stopped.

Nothing is queued for a client: it is told to look, and reads the ledger from the id it has. One that does not take what
it is sent is cut off after a while (serving.py), and loses nothing by it, since `Last-Event-ID` brings it back.
"""

import asyncio
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .. import encode
from ..ledger import LedgerClosed
from ..ledger_writes import Recorded
from .parts import Parts
from .problems import Problem
from .schema import PROBLEM

RETRY_MS: Final = 2_000
_STEP: Final = 200  # changes read and sent at once


class ChangeQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    after: str | None = Query(
        None,
        pattern=r"^[0-9]{1,18}$",
        description=("Begin after this change; `0` begins with the oldest kept. `Last-Event-ID` goes before it. Left out: only what comes."),
    )
    duration_s: int | None = Query(None, ge=0, le=86_400, description="End the stream after so long; 0 ends it with the backlog.")


LastEventId = Annotated[str, Header(alias="Last-Event-ID", pattern=r"^[0-9]{0,18}$")]


class Slots:
    """Counts the open streams. Used in the server's loop only."""

    def __init__(self) -> None:
        self.taken = 0

    def __enter__(self) -> None:
        self.taken += 1

    def __exit__(self, *_: object) -> None:
        self.taken -= 1


class EventStream(Response):
    media_type = "text/event-stream"


def router(parts: Parts) -> APIRouter:
    routes = APIRouter(prefix="/api/v1", tags=["changes"])
    slots = Slots()

    @routes.get(
        "/changes",
        operation_id="stream_changes",
        response_model=None,
        response_class=EventStream,
        responses={
            200: {"content": {"text/event-stream": {"schema": EVENT, "example": EXAMPLE}}},
            503: {"description": "Too many streams are open.", **PROBLEM},
        },
    )
    async def stream_changes(asked: Annotated[ChangeQuery, Query()], last_event_id: LastEventId = "") -> Response:
        """Findings, runs, acknowledgements and silences as they change. Events: `finding`, `run`, `acknowledgement`,
        `silence`, and `missed` when changes after the given id are past their retention."""
        if slots.taken >= parts.settings.limits.streams:
            raise Problem(
                503,
                "too-many-streams",
                "All streams are taken.",
                do="Close one, or try again.",
                headers={"retry-after": "10"},
            )
        start = last_event_id or asked.after
        return ChangeStream(parts, slots, None if start is None else int(start), asked.duration_s)

    return routes


EVENT: Final = {
    "description": "One event of the stream.",
    "type": "object",
    "properties": {
        "id": {
            "type": "string",
            "description": "Of the change; send the last one as `Last-Event-ID` to go on after it.",
        },
        "event": {"enum": ["finding", "run", "acknowledgement", "silence", "missed"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
EXAMPLE: Final = (
    'retry: 2000\n\nid: 17\nevent: finding\ndata: {"id":17,"kind":"finding","at":"2026-02-19T08:10:03Z",'
    '"server":"chat","was":null,"state":"firing","finding":{"id":"…"}}\n\n: heartbeat\n\n'
)


def event(change: Recorded) -> bytes:
    """One change as an event. Its data is one line: JSON text has no bare newlines."""
    head = encode.dumps(
        {
            "id": change.id,
            "kind": change.kind,
            "at": change.at,
            "server": change.server,
            "was": change.was,
            "state": change.state,
        }
    )
    return f'id: {change.id}\nevent: {change.kind}\ndata: {head[:-1]},"{change.kind}":{change.doc}}}\n\n'.encode()


class ChangeStream(EventStream):
    """The stream itself. `after` None: begin with what comes."""

    def __init__(self, parts: Parts, slots: Slots, after: int | None, duration_s: float | None) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._parts, self._slots, self._after, self._duration_s = parts, slots, after, duration_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's
        with self._slots:
            gone = asyncio.create_task(_until_gone(receive))
            feed = asyncio.create_task(self._feed(send))
            try:
                await asyncio.wait({gone, feed}, return_when=asyncio.FIRST_COMPLETED)
                if feed.done():
                    feed.result()
            finally:
                for task in (gone, feed):
                    task.cancel()
                await asyncio.gather(gone, feed, return_exceptions=True)

    async def _feed(self, send: Send) -> None:
        limits, loop = self._parts.settings.limits, asyncio.get_running_loop()
        ends_at = None if self._duration_s is None else loop.time() + self._duration_s
        with self._parts.broadcast.listen() as news:
            # Before the answer begins: whoever has its head misses nothing that comes after.
            oldest, newest = await run_in_threadpool(self._parts.ledger.change_range)
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._write(send, f"retry: {RETRY_MS}\n\n".encode())
            after = newest if self._after is None else self._after
            if self._after is not None and not oldest - 1 <= after <= newest:
                after = await self._say_missed(send, after, oldest, newest)
            while True:
                news.clear()
                try:
                    after = await self._catch_up(send, after)
                except LedgerClosed:
                    break
                left_s = limits.heartbeat_s if ends_at is None else min(limits.heartbeat_s, ends_at - loop.time())
                if left_s <= 0 or self._parts.broadcast.is_closed:
                    break
                try:
                    await asyncio.wait_for(news.wait(), left_s)
                except TimeoutError:
                    await self._write(send, b": heartbeat\n\n")
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _say_missed(self, send: Send, after: int, oldest: int, newest: int) -> int:
        """The client's id is before what is kept, or from another ledger: say so, and begin with the oldest kept."""
        data = encode.dumps(
            {
                "after": after,
                "oldest": oldest,
                "newest": newest,
                "do": "Read /api/v1/findings and /api/v1/runs again; changes in between are no longer kept.",
            }
        )
        await self._write(send, f"id: {oldest - 1}\nevent: missed\ndata: {data}\n\n".encode())
        return oldest - 1

    async def _catch_up(self, send: Send, after: int) -> int:
        while changes := await run_in_threadpool(self._parts.ledger.changes_since, after, _STEP):
            await self._write(send, b"".join(event(each) for each in changes))
            after = changes[-1].id
        return after

    async def _write(self, send: Send, body: bytes) -> None:
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
