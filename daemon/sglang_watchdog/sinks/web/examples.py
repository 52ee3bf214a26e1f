"""Answers as the API documents show them, made by the very functions that make the real ones."""

from typing import Any, Final

from ...model.finding import AbsenceEvidence, Coverage, FactEvidence, Finding, LineEvidence, OwnBest, Release, Roofline, RooflineInput, Run
from ...model.flags import DecisionRow, FlagRow, FlagTable, Launch, SuggestionRow
from ...model.observation import Gap, Sample
from ...model.signature import Condition, Signature
from ...model.words import Answer, Kind, Phase, ScopeKind, Severity, State, Status
from .. import compare, encode
from ..ledger_writes import Acknowledgement, Silence, acknowledgement_document, silence_document
from ..state import Gpu, SourceStatus
from . import documents

_AT: Final = 1_771_488_603.0  # 2026-02-19T08:10:03Z
_LINE: Final = LineEvidence(source="chat.log", line=17, offset=4211, text="[2026-02-19 08:10:44 TP0] Load weight end.", at_s=_AT + 41)


def _finding() -> dict[str, Any]:
    silent = AbsenceEvidence(awaited="Using MoE kernel config", from_s=_AT, until_s=_AT + 77, witness=_LINE)
    backend = FactEvidence(name="args.moe_runner_backend", value="flashinfer_cutlass", source="chat.log", line=1)
    finding = Finding(
        id="9f2c61d07be4a813",
        signature="moe-triton-config-silent",
        revision=1,
        topic="moe.triton-inactive",
        severity=Severity.INFO,
        state=State.FIRING,
        server="chat",
        run="5d0f3a",
        scope=ScopeKind.RUN,
        ranks=(),
        gpus=(),
        gpu_uuid=None,
        title="No Triton MoE config line, so Triton MoE kernels are not in use",
        summary="77 s from start to ready without a word of the Triton path; flashinfer_cutlass is in use.",
        first_seen_s=_AT + 77,
        last_seen_s=_AT + 77,
        count=1,
        evidence=(silent, backend),
        explains=(),
        explained_by=None,
        explanation="The Triton MoE path announces its config once per shape. It did not, so tuning changes nothing.",
        remediation="Read moe_runner_backend in the evidence and tune that path instead.",
        references=("srt/layers/moe/fused_moe_triton/fused_moe_triton_config.py",),
    )
    return {**encode.finding(finding), "acknowledgement": None, "silenced": None, "display_state": "firing"}


def _run(id: str = "5d0f3a", tokens_per_s: float = 881.2, tp_size: int = 8) -> dict[str, Any]:
    return encode.run(
        Run(
            id=id,
            server="chat",
            started_at_s=_AT,
            ended_at_s=None,
            phase=Phase.SERVING,
            release=Release(min="0.5.8", max="0.5.8", source="stated"),
            args={"tp_size": tp_size},
            facts={_FACT.name: _FACT},
            timings_s={"loading": 41.0, "ready": 77.0},
            load={"decode_tokens_per_s": tokens_per_s},
            ranks={"TP0": Phase.SERVING},
            gpus={0: "TP0"},
            placement_source="processes",
            model="Qwen3-30B-A3B",
            sources=("chat.log",),
            roofline=_ROOFLINE,
        )
    )


_ROOFLINE: Final = Roofline(
    at_s=_AT + 90, running=256.0, tokens_per_s=881.2, ceiling_low=5473.0, ceiling_high=5475.0, share_low=0.161, share_high=0.161,
    step_bytes_low=74.7e9, step_bytes_high=74.7e9, precision=0.15,
    inputs=(RooflineInput(name="weights", low=62.06, high=62.07, unit="GB", source="chat.log:12"),),
    assumptions=("tokens choose their experts evenly; skew raises the ceiling by up to a fifth",),
    own_best=(OwnBest(running_from=256, running_to=511, context_from=512, context_to=1023, tokens_per_s=886.2, windows=12),),
    text="881 tokens/s with 256 running are 16 % of the 5,473 to 5,475 that the memory allows: a step reads 74.7 GB on each GPU (…)",
)  # fmt: skip


_FACT: Final = FactEvidence(name="run.weights_gib", value=60.1, source="chat.log", line=40)


def _flags() -> dict[str, Any]:
    table = FlagTable(
        launch=Launch(words=("--model-path", "/models/m", "--attention-backend", "flashinfer", "--api-key", "***"), source="process command line"),
        releases=("0.5.11",),
        rows=(
            FlagRow(
                flag="--attention-backend", field="attention_backend", asked="flashinfer", runs_with="triton", was_asked=True, verdict="overridden",
                because="asked flashinfer, runs with triton, because deterministic inference needs it", do="Remove it, or change what overrides it.",
                source="0.5.11, srt/server_args.py::_handle_deterministic_inference",
            ),
        ),
        decisions=(
            DecisionRow(
                name="graph_max_bs", about="largest decode batch that replays a CUDA graph", argument="cuda_graph_max_bs", in_dump=None, value=256,
                how="seen", because="the log says it", source="", seen_by="Capture cuda graph bs [...]",
                evidence=(LineEvidence(source="chat.log", line=61, offset=9031, text="[2026-02-19 08:11:02 TP0] Capture cuda graph bs [1, 2, 256]"),),
            ),
        ),
        suggestions=(
            SuggestionRow(flag="--enable-torch-compile", because="one request at a time on one GPU", do="Try it and measure.",
                          source="0.5.11, srt/server_args.py::enable_torch_compile"),
        ),
        described=141,
        undescribed=388,
    )  # fmt: skip
    return {"run": "5d0f3a", **(encode.flags(table) or {})}


def _gpu() -> dict[str, Any]:
    return documents.gpu(Gpu(gpu=0, uuid="GPU-5c1e", name="NVIDIA H200", latest=_SAMPLE, placements=(("chat", "TP0"),)))


_SAMPLE: Final = Sample(
    at_s=_AT + 90,
    gpu=0,
    uuid="GPU-5c1e",
    name="NVIDIA H200",
    power_w=198.0,
    power_limit_w=700.0,
    sm_util=93.0,
    temp_c=41.0,
    mem_used_mib=120_000.0,
    throttle_reasons=(),
)


def _signature() -> dict[str, Any]:
    return encode.signature(
        Signature(
            id="moe-triton-config-silent",
            revision=1,
            status=Status.TRIAL,
            kind=Kind.MISSING,
            topic="moe.triton-inactive",
            severity=Severity.INFO,
            releases=">=0.4.7,<=0.5.23",
            title="No Triton MoE config line, so Triton MoE kernels are not in use",
            explanation="The Triton MoE path announces its config once per shape.",
            remediation="Tune the path in use instead.",
            applies_when=(Condition(expression="model.is_moe", because="dense models have no experts"),),
        )
    )


def _coverage() -> dict[str, Any]:
    return {
        "server": "chat",
        **encode.coverage(
            Coverage(
                signature="moe-triton-config-silent",
                topic="moe.triton-inactive",
                run="5d0f3a",
                verdict=Answer.UNKNOWN,
                because="the log was joined after the run began",
                do="restart the server while the watchdog runs",
            )
        ),
    }


def _source() -> dict[str, Any]:
    return documents.source(
        SourceStatus(
            name="chat.log",
            kind="file",
            server="chat",
            path="/var/log/sglang/chat.log",
            timezone="UTC (configuration)",
            lines=4113,
            bytes=512_345,
            sglang_lines=4100,
            offset=512_345,
            size_bytes=512_345,
            lag_bytes=0,
            from_start=True,
            last_line_at_s=_AT + 90,
            gap_count=1,
            gaps=(Gap(source="chat.log", from_s=_AT, to_s=_AT + 2, reason="truncated", from_offset=10, to_offset=20),),
        )
    )


def _silence() -> dict[str, Any]:
    return silence_document(
        Silence(id="b3a1", matchers={"server": "chat"}, author="ada", reason="tuning", starts_s=_AT, ends_s=_AT + 7200),
        _AT,
    )


def _acknowledgement() -> dict[str, Any]:
    return acknowledgement_document(Acknowledgement(finding="9f2c61d07be4a813", author="ada", note="restart planned", at_s=_AT))


def _status() -> dict[str, Any]:
    return {
        "version": "0.1.0",
        "library": "1.0.0",
        "started_at": encode.time(_AT - 60),
        "now": encode.time(_AT + 90),
        "clock": "wall",
        "ready": True,
        "awaited": "",
        "servers": [
            {
                "name": "chat",
                "phase": "serving",
                "run": "5d0f3a",
                "model": "Qwen3-30B-A3B",
                "sglang_version": encode.release(Release(min="0.5.8", max="0.5.8", source="stated")),
                "firing": {"critical": 0, "warning": 0, "info": 1},
            }
        ],
        "ledger": {
            "durable": True,
            "because": "",
            "do": "",
            "bytes": 122_880,
            "backlog": 0,
            "oldest_change": 1,
            "newest_change": 17,
        },
        "reload": {
            "successful": True,
            "at": encode.time(_AT - 60),
            "error": "",
            "changed": ["servers.chat.thresholds.window_s"],
            "needs_restart": ["listen"],
        },
        "notifications": [
            {
                "channel": "pager",
                "sent": 3,
                "failed": 1,
                "waiting": 1,
                "dead_letters": 0,
                "error": "pager.example: answered 503 Service Unavailable",
                "sent_at": encode.time(_AT + 30),
            }
        ],
        "tokens_fault": "",
        "engine_errors": 0,
        "nvml_up": True,
    }


def answers() -> dict[str, Any]:
    """An example answer for each operation that gives JSON, by operation id."""

    def page(noun: str, item: dict[str, Any]) -> dict[str, Any]:
        return {noun: [item], "next_cursor": None}

    return {
        "list_findings": page("findings", _finding()),
        "get_finding": _finding(),
        "acknowledge_finding": _acknowledgement(),
        "list_silences": page("silences", _silence()),
        "create_silence": _silence(),
        "list_runs": page("runs", _run()),
        "get_run": _run(),
        "list_facts": page("facts", encode.fact(_FACT)),
        "get_run_flags": _flags(),
        "compare_runs": compare.runs(_run("4ac2", 4905.0, 4), _run("5d0f3a", 20_990.0)),
        "list_gpus": page("gpus", _gpu()),
        "get_gpu": _gpu(),
        "list_samples": page("samples", encode.sample(_SAMPLE)),
        "list_signatures": page("signatures", _signature()),
        "get_signature": _signature(),
        "list_coverage": page("coverage", _coverage()),
        "list_sources": page("sources", _source()),
        "get_status": _status(),
        "list_resources": {
            "resources": [{"path": "/api/v1/findings", "methods": ["GET"], "summary": "Findings, newest first"}],
            "description": "/openapi.json",
            "documentation": "/docs",
        },
        "reload": _status()["reload"],
        **{id: {"status": "ok", "because": ""} for id in ("healthz", "livez", "healthy", "readyz", "ready")},
    }
