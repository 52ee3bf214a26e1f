"""Runs, their facts, and what differs between two of them."""

import json
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from ...model.flags import FlagTable
from ...model.words import Phase
from .. import compare, encode
from ..ledger_reads import FindingFilter
from . import paging, schema
from .paging import Id, Paged, Words
from .parts import Parts
from .problems import not_found
from .schema import answers

_NOT_YET: Final = FlagTable(because="not judged yet: that needs the args dump and a server that has been ready for 10 s")


class RunQuery(Paged):
    server: Words = Query([])
    phase: list[Phase] = Query([], max_length=10)


def router(parts: Parts) -> APIRouter:
    routes = APIRouter(prefix="/api/v1", tags=["runs"])
    ledger = parts.ledger

    def known(id: str) -> tuple[str, str]:
        """A run and its facts, as JSON."""
        texts = ledger.run(id)
        if texts is None:
            raise not_found("run", id)
        return texts

    def findings_of(id: str) -> list[Any]:
        return [json.loads(row.doc) for row in ledger.findings(FindingFilter(run=(id,)), limit=1000).items]

    @routes.get("/runs", operation_id="list_runs", **answers(schema.RunPage))
    def list_runs(asked: Annotated[RunQuery, Query()]) -> Response:
        """Runs, newest first."""
        found = ledger.runs(server=tuple(asked.server), phase=tuple(asked.phase), limit=asked.limit, cursor=asked.after)
        return paging.page("runs", found.items, found.next_cursor)

    @routes.get("/runs/{id}", operation_id="get_run", **answers(schema.Run, 404))
    def get_run(id: Id) -> Response:
        return paging.json(known(id)[0])

    @routes.get("/runs/{id}/facts", operation_id="list_facts", **answers(schema.FactPage, 404))
    def list_facts(id: Id, asked: Annotated[Paged, Query()]) -> Response:
        """Everything held true of a run, with where it is from."""
        return paging.slice_of("facts", json.loads(known(id)[1]), asked, lambda each: each)

    @routes.get("/runs/{id}/flags", operation_id="get_run_flags", **answers(schema.RunFlags, 404))
    def get_run_flags(id: Id) -> Response:
        """The launch flags of a run: what was asked, what it runs with, what each comes to and why; what the server decided by
        itself and how that is known; what would help. Judged once, when the server is ready."""
        text = ledger.flags(id)
        if text is None:
            raise not_found("run", id)
        return paging.json(encode.dumps({"run": id, **(json.loads(text) or encode.flags(_NOT_YET) or {})}))

    @routes.get("/runs/{a}/compare/{b}", operation_id="compare_runs", **answers(schema.Comparison, 404))
    def compare_runs(a: Id, b: Id) -> Response:
        """What differs between two runs: arguments, facts, timings, load, findings."""
        (run_a, facts_a), (run_b, facts_b) = map(json.loads, known(a)), map(json.loads, known(b))
        return paging.json(
            encode.dumps(compare.runs(run_a, run_b, facts_a=facts_a, facts_b=facts_b, findings_a=findings_of(a), findings_b=findings_of(b)))
        )

    return routes
