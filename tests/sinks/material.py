"""Findings, runs and samples as the engine would make them, for the tests of what consumes them."""

from dataclasses import replace
from typing import Any

from sglang_watchdog.model.finding import (
    AbsenceEvidence,
    Coverage,
    FactEvidence,
    Finding,
    FindingChanged,
    LineEvidence,
    Release,
    Run,
    RunChanged,
    SamplesEvidence,
)
from sglang_watchdog.model.flags import DecisionRow, FlagRow, FlagTable, Launch, SuggestionRow
from sglang_watchdog.model.observation import Gap, Sample
from sglang_watchdog.model.signature import Condition, Library, Signature
from sglang_watchdog.model.words import Answer, Kind, Phase, ScopeKind, Severity, State, Status
from sglang_watchdog.sinks.state import RankLoad, SourceStatus

T0 = 1_771_488_603.0  # 2026-02-19T08:10:03Z

LINE = LineEvidence(
    source="server.log",
    line=28,
    offset=9123,
    text="[2026-02-19 08:10:03 TP0] Using default MoE kernel config.",
    at_s=T0,
)
EVIDENCE = (
    LINE,
    AbsenceEvidence(awaited="Autotuning process ends", from_s=T0, until_s=T0 + 77.25, witness=replace(LINE, line=17, at_s=None)),
    SamplesEvidence(metric="power_ratio", gpus=(0, 1), from_s=T0, until_s=T0 + 15, median=0.42, n=480),
    FactEvidence(name="args.moe_runner_backend", value="flashinfer_cutlass", source="server.log", line=1),
)


def finding(id: str = "f1", **fields: Any) -> Finding:
    return replace(
        Finding(
            id=id,
            signature="moe-config-missing",
            revision=2,
            topic="moe.config-missing",
            severity=Severity.WARNING,
            state=State.FIRING,
            server="chat",
            run="run-1",
            scope=ScopeKind.RUN,
            ranks=("TP0",),
            gpus=(0, 1),
            gpu_uuid=None,
            title="Triton MoE kernels run untuned defaults",
            summary="No tuned file for E=128, N=768 on this GPU.",
            first_seen_s=T0,
            last_seen_s=T0 + 1.5,
            count=1,
            evidence=EVIDENCE,
            explains=(),
            explained_by=None,
            explanation="The kernels fall back to defaults.",
            remediation="1. Tune E=128.\n2. Restart.",
            references=("https://github.com/sgl-project/sglang/issues/1",),
        ),
        **fields,
    )


def fired(id: str = "f1", *, at_s: float | None = T0, was: State | None = None, **fields: Any) -> FindingChanged:
    return FindingChanged(at_s, finding(id, **fields), was)


def resolved(id: str = "f1", *, at_s: float = T0 + 60, **fields: Any) -> FindingChanged:
    return FindingChanged(at_s, finding(id, state=State.RESOLVED, resolved_s=at_s, last_seen_s=at_s, **fields), State.FIRING)


def run(id: str = "run-1", **fields: Any) -> Run:
    return replace(
        Run(
            id=id,
            server="chat",
            started_at_s=T0,
            ended_at_s=None,
            phase=Phase.SERVING,
            release=Release(min="0.5.8", max="0.5.8", source="stated"),
            args={"tp_size": 8, "model_path": "m"},
            facts={"run.weights_gib": FactEvidence(name="run.weights_gib", value=60.1, source="server.log", line=40)},
            timings_s={"loading": 41.0, "ready": 77.0},
            load={"running_requests_max": 256.0},
            ranks={"TP0": Phase.SERVING},
            gpus={0: "TP0", 1: "TP1"},
            placement_source="processes",
            model="Qwen3-30B",
            sources=("server.log",),
        ),
        **fields,
    )


FLAGS = FlagTable(
    launch=Launch(words=("--attention-backend", "flashinfer", "--api-key", "***"), source="process command line"),
    releases=("0.5.8",),
    rows=(
        FlagRow(
            flag="--attention-backend", field="attention_backend", asked="flashinfer", runs_with="triton", was_asked=True, verdict="overridden",
            because="asked flashinfer, runs with triton, because <b>it</b> must", do="Remove it.", source="0.5.8, srt/server_args.py::__post_init__",
        ),
    ),
    decisions=(
        DecisionRow(
            name="moe_runner", about="kernels of the routed experts", argument="moe_runner_backend", in_dump="auto", value="triton", how="seen",
            because="the log says it", source="", seen_by="Using default MoE kernel config", evidence=(LINE,),
        ),
    ),
    suggestions=(SuggestionRow(flag="--enable-torch-compile", because="one request at a time", do="Try it.", source="0.5.8, srt/server_args.py::f"),),
    described=141,
    undescribed=388,
)  # fmt: skip


def moved(id: str = "run-1", *, at_s: float = T0, was: Phase | None = None, **fields: Any) -> RunChanged:
    return RunChanged(at_s, run(id, **fields), was)


def sample(gpu: int = 0, at_s: float = T0, **fields: Any) -> Sample:
    return replace(
        Sample(
            at_s=at_s,
            gpu=gpu,
            uuid=f"GPU-{gpu:04d}",
            name="NVIDIA H200",
            power_w=198.0,
            power_limit_w=700.0,
            energy_j=1e6,
            sm_util=93.0,
            pcie_tx_kbps=1200.0,
            pcie_rx_kbps=800.0,
            pcie_gen=5,
            pcie_width=16,
            sm_clock_mhz=1980.0,
            temp_c=41.0,
            throttle_reasons=("SwPowerCap",),
            mem_used_mib=120_000.0,
            mem_total_mib=143_771.0,
            sm_active=0.31,
            tensor_active=0.05,
            dram_active=0.2,
        ),
        **fields,
    )


def source(name: str = "server.log", **fields: Any) -> SourceStatus:
    return replace(
        SourceStatus(
            name=name,
            kind="file",
            server="chat",
            format="plain",
            timezone="UTC (--timezone)",
            lines=4113,
            bytes=512_345,
            sglang_lines=4100,
            path="/logs/server.log",
            offset=512_345,
            size_bytes=512_345,
            lag_bytes=0,
            gap_count=1,
            gaps=(Gap(source=name, from_s=T0, to_s=T0 + 2, reason="truncated", from_offset=10, to_offset=20),),
            from_start=True,
            last_line_at_s=T0 + 5,
        ),
        **fields,
    )


LOAD = {"TP0": RankLoad(running_requests=256.0, queue_requests=3.0, decode_tokens_per_s=881.2, kv_used_ratio=0.6)}
VERDICTS = (
    Coverage(
        signature="moe-config-missing",
        topic="moe.config-missing",
        run="run-1",
        verdict=Answer.YES,
        because="it was said",
    ),
    Coverage(
        signature="moe-triton-silent",
        topic="moe.triton-inactive",
        run="run-1",
        verdict=Answer.UNKNOWN,
        because="the log was joined late",
        do="restart the server while the watchdog runs",
    ),
)
TOPICS = {
    "moe.config-missing": Severity.WARNING,
    "moe.triton-inactive": Severity.INFO,
    "crash.scheduler": Severity.CRITICAL,
}

SIGNATURE = Signature(
    id="moe-config-missing",
    revision=2,
    status=Status.TRIAL,
    kind=Kind.FORBIDDEN,
    topic="moe.config-missing",
    severity=Severity.WARNING,
    releases=">=0.4.7,<=0.5.23",
    title="Triton MoE kernels run untuned defaults",
    explanation="The kernels fall back.",
    remediation="Tune.",
    references=("srt/layers/moe",),
    applies_when=(Condition(expression="model.is_moe", because="dense models have no experts"),),
)
LIBRARY = Library(version="1.0.0", signatures={SIGNATURE.id: SIGNATURE}, patterns={}, topics=TOPICS)
