"""GPUs, sources, coverage, signatures and the daemon's own state."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ...model.signature import Signature
from ...model.words import Answer, Kind
from .. import encode
from ..state import Gpu
from . import documents, paging, schema
from .paging import Id, Moment, Paged, Words
from .parts import Parts
from .problems import Problem, not_found
from .schema import answers


class GpuQuery(Paged):
    server: Words = Query([])


class SampleQuery(Paged):
    since: Moment | None = Query(None, description="Read at or after.")


class SignatureQuery(Paged):
    topic: Words = Query([])
    kind: list[Kind] = Query([], max_length=7)


class CoverageQuery(Paged):
    server: Words = Query([])
    run: Words = Query([])
    signature: Words = Query([])
    verdict: list[Answer] = Query([], max_length=4)


class SourceQuery(Paged):
    server: Words = Query([])


def router(parts: Parts) -> APIRouter:
    routes = APIRouter(tags=["machine"])
    board = parts.board

    def gpu_of(uuid: str) -> Gpu:
        for each in board.view(with_history=True).gpus:
            if uuid in (each.uuid, str(each.gpu)):
                return each
        raise not_found("GPU", uuid)

    @routes.get("/api/v1/gpus", operation_id="list_gpus", **answers(schema.GpuPage))
    def list_gpus(asked: Annotated[GpuQuery, Query()]) -> Response:
        """GPUs with their newest reading and the ranks on them."""
        gpus = [each for each in board.view().gpus if not asked.server or any(server in asked.server for server, _ in each.placements)]
        return paging.slice_of("gpus", gpus, asked, documents.gpu)

    @routes.get("/api/v1/gpus/{uuid}", operation_id="get_gpu", **answers(schema.Gpu, 404))
    def get_gpu(uuid: Id) -> Response:
        """One GPU, by UUID or by index."""
        return paging.json(encode.dumps(documents.gpu(gpu_of(uuid))))

    @routes.get("/api/v1/gpus/{uuid}/samples", operation_id="list_samples", **answers(schema.SamplePage, 404))
    def list_samples(uuid: Id, asked: Annotated[SampleQuery, Query()]) -> Response:
        """The last quarter of an hour of readings, oldest first."""
        since_s = paging.moment(asked.since)
        samples = [each for each in gpu_of(uuid).history if since_s is None or each.at_s >= since_s]
        return paging.slice_of("samples", samples, asked, encode.sample)

    @routes.get("/api/v1/sources", operation_id="list_sources", **answers(schema.SourcePage))
    def list_sources(asked: Annotated[SourceQuery, Query()]) -> Response:
        """What is read, how far, what was missed, and why something is not read."""
        sources = [each for each in board.view().sources if not asked.server or each.server in asked.server]
        return paging.slice_of("sources", sources, asked, documents.source)

    @routes.get("/api/v1/coverage", operation_id="list_coverage", **answers(schema.CoveragePage))
    def list_coverage(asked: Annotated[CoverageQuery, Query()]) -> Response:
        """Each signature's verdict on the current run of each server, with the reason, and the cure of an unknown."""
        view = board.view()
        verdicts = [
            (server, each)
            for server in view.servers
            for each in view.coverage.get(server, ())
            if (not asked.server or server in asked.server)
            and (not asked.run or each.run in asked.run)
            and (not asked.signature or each.signature in asked.signature)
            and (not asked.verdict or each.verdict in asked.verdict)
        ]
        return paging.slice_of("coverage", verdicts, asked, lambda row: {"server": row[0], **encode.coverage(row[1])})

    @routes.get("/api/v1/signatures", operation_id="list_signatures", **answers(schema.SignaturePage))
    def list_signatures(asked: Annotated[SignatureQuery, Query()]) -> Response:
        """The loaded library, by id."""
        known = parts.library().signatures
        wanted: list[Signature] = [
            known[id]
            for id in sorted(known)
            if (not asked.topic or known[id].topic in asked.topic) and (not asked.kind or known[id].kind in asked.kind)
        ]
        return paging.slice_of("signatures", wanted, asked, encode.signature)

    @routes.get("/api/v1/signatures/{id}", operation_id="get_signature", **answers(schema.Signature, 404))
    def get_signature(id: Id) -> Response:
        signature = parts.library().signatures.get(id)
        if signature is None:
            raise not_found("signature", id)
        return paging.json(encode.dumps(encode.signature(signature)))

    @routes.get("/api/v1/", operation_id="list_resources", **answers(schema.Index))
    def list_resources(request: Request) -> Response:
        """What there is to ask for."""
        return paging.json(encode.dumps(documents.index(request.app.openapi(), str(request.scope.get("root_path", "")))))

    routes.add_api_route("/api/v1", list_resources, include_in_schema=False, response_model=None)

    @routes.get("/api/v1/status", operation_id="get_status", **answers(schema.DaemonStatus))
    def get_status() -> Response:
        """The daemon itself: servers, ledger, configuration, readiness."""
        return paging.json(encode.dumps(documents.daemon(board.view(), parts.ledger, parts.health(), parts.tokens.fault, parts.now())))

    @routes.post("/-/reload", operation_id="reload", **answers(schema.ReloadStatus, 422))
    async def reload() -> Response:
        """Read configuration and signatures again. Bad ones are refused whole and the old stay in force. What cannot change
        while the daemon runs is named in `needs_restart`."""
        outcome = await parts.reload()
        if not outcome.was_successful:
            raise Problem(422, "configuration-refused", outcome.error, do="Mend it and reload again; the old one stays in force.")
        return paging.json(encode.dumps(documents.reload(outcome)))

    return routes
