"""What the memory allows decode: the arithmetic on numbers of public reports, and what a run's log, model and GPUs tell of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_watchdog.engine.load import Steady
from sglang_watchdog.engine.products import Products
from sglang_watchdog.engine.roofline import Ceiling, Span, Step, Weights, ceiling, touched
from sglang_watchdog.engine.roofline_inputs import Known, estimate
from sglang_watchdog.engine.series import median
from sglang_watchdog.engine.yardstick import Yardstick
from sglang_watchdog.library.load import load
from sglang_watchdog.model.finding import FactEvidence
from sglang_watchdog.model.observation import Json
from sglang_watchdog.model.signature import Library
from sglang_watchdog.parse.model_config import model_facts

ROOT = Path(__file__).resolve().parents[2]
GDDR7 = Span(1597e9, 1792e9)  # RTX PRO 6000: Server and Workstation editions; the reports do not say which


def glm5(requests: int, context: Span) -> Ceiling:
    """GLM-5 on eight cards: experts in NVFP4, all else in bf16, latent KV of 78 layers in bf16."""
    experts = 75 * 256 * 3 * 6144 * 2048
    routed = experts * 0.5625 / 8
    embeddings = 154_880 * 6144 * 2 / 8
    weights = Weights(
        total=Span.exactly(routed + (744e9 - experts) * 2 / 8 - embeddings), routed=Span.exactly(routed), experts=256, top_k=8
    )
    step = Step(requests=requests, routed_tokens=requests, context_tokens=context * requests, kv_bytes_per_token=Span.exactly(78 * 576 * 2))
    return ceiling(weights, step, GDDR7, tokens_per_step=Span.exactly(requests))


@pytest.mark.parametrize(
    ("requests", "context", "low", "high"),
    [(256, Span(200.0, 1000.0), 0.115, 0.175), (512, Span.exactly(200.0), 0.062, 0.072)],
    ids=["256 requests of 200 to 1,000 tokens", "512 requests of 200 tokens"],
)
def test_untuned_moe_kernels_reach_a_tenth_of_the_memory_roofline(requests: int, context: Span, low: float, high: float):
    """880 to 912 tokens/s were reported on eight RTX PRO 6000."""
    allowed = glm5(requests, context)

    assert allowed.share(880.0).low == pytest.approx(low, abs=0.001)
    assert allowed.share(912.0).high == pytest.approx(high, abs=0.001)


def test_a_server_may_be_near_its_roofline_at_400_of_600_watts():
    """Qwen3.5-122B-A10B in bf16 on four cards, 64 requests of 1,500 tokens: 1,582 tokens/s were reported."""
    experts = 48 * 256 * 3 * 3072 * 1024
    embeddings = 248_320 * 3072 * 2 / 4
    weights = Weights(
        total=Span.exactly(122e9 * 2 / 4 - embeddings), routed=Span.exactly(experts * 2 / 4), experts=256, top_k=8
    )
    step = Step(
        requests=64, routed_tokens=64, context_tokens=Span.exactly(64 * 1500.0), kv_bytes_per_token=Span.exactly(12 * 2 * 256 * 2),
        state_bytes_per_request=Span.exactly(150e6 / 4),
    )  # fmt: skip

    share = ceiling(weights, step, GDDR7, tokens_per_step=Span.exactly(64)).share(1582.0)

    assert share.low == pytest.approx(0.81, abs=0.005)
    assert share.high == pytest.approx(0.91, abs=0.005)


@pytest.mark.parametrize(("tokens", "share"), [(1, 0.031), (8, 0.224), (32, 0.638), (64, 0.869), (128, 0.983)])
def test_more_tokens_touch_more_experts(tokens: int, share: float):
    assert touched(256, 8, tokens) == pytest.approx(share, abs=0.001)


sizes = st.floats(1e6, 1e12)


@given(total=sizes, routed=st.floats(0, 1), requests=st.integers(1, 4096), context=st.floats(0, 1e7), kv=st.floats(0, 1e5), wider=st.floats(1, 4))
def test_what_is_less_known_never_narrows_the_range(total: float, routed: float, requests: int, context: float, kv: float, wider: float):
    def allowed(of: Span) -> Ceiling:
        weights = Weights(total=of, routed=Span(0.0, routed * of.low), experts=64, top_k=4)
        step = Step(
            requests=requests, routed_tokens=requests, context_tokens=Span.exactly(context), kv_bytes_per_token=Span.exactly(kv)
        )
        return ceiling(weights, step, Span.exactly(1e12), tokens_per_step=Span.exactly(requests))

    narrow, wide = allowed(Span.exactly(total)), allowed(Span(total / wider, total * wider))

    assert wide.tokens_per_s.low <= narrow.tokens_per_s.low * (1 + 1e-9)
    assert wide.tokens_per_s.high >= narrow.tokens_per_s.high * (1 - 1e-9)
    assert 0 < narrow.tokens_per_s.low <= narrow.tokens_per_s.high


# --- what a run tells ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def products() -> Products:
    library: Library = load().library
    return Products(library.models, library.gpus, library.shapes, library.parameter_bytes)


def known(products: Products, *, args: dict[str, Json] | None = None, name: str = "m", **facts: Json) -> Known:
    """A dense model of 15 GiB on an H200 unless told otherwise; `run__weights_gib=None` takes a fact away."""
    values: dict[str, Json] = {
        "model.is_moe": False, "run.weights_gib": 15.0, "run.kv_tokens": 500_000, "run.k_gib": 30.0, "run.v_gib": 30.0,
        "gpu.bandwidth_gbps": 4800.0,
    }  # fmt: skip
    values |= {key.replace("__", "."): value for key, value in facts.items()}
    evidence = {key: FactEvidence(name=key, value=value, source="server.log", line=7) for key, value in values.items() if value is not None}
    return Known(
        facts=evidence, args={"tp_size": 1} if args is None else args, args_source="server.log", model_name=name, gpus=(), products=products
    )


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"run__weights_gib": None}, "weights"),
        ({"run__kv_tokens": None}, "KV"),
        ({"gpu__bandwidth_gbps": None}, "bandwidth"),
        ({"args": {}}, "arguments"),
        ({"args": {"tp_size": 8, "pp_size": 2}}, "pipeline"),
        ({"args": {"tp_size": 8, "speculative_algorithm": "EAGLE"}}, "speculation"),
    ],
    ids=str,
)
def test_without_an_input_there_is_no_ceiling_but_the_way_to_one(products: Products, change: dict[str, Any], what: str):
    found, gathered = estimate(known(products, **change), 16.0, 9000.0)

    assert found is None
    assert any(what in missing for missing, _ in gathered.missing)
    assert all(cure for _, cure in gathered.missing)


def test_experts_of_unknown_shape_leave_the_bound_that_favours_the_server(products: Products):
    moe, dense = known(products, model__is_moe=True), known(products)

    found, gathered = estimate(moe, 64.0, 9000.0)
    all_read, _ = estimate(dense, 64.0, 9000.0)

    assert found is not None
    assert all_read is not None
    assert found.tokens_per_s.low == pytest.approx(all_read.tokens_per_s.low)
    assert gathered.is_open_above
    assert any("config.json" in cure for _, cure in gathered.missing)


def test_the_expert_count_of_a_triton_table_closes_the_range(products: Products):
    found, gathered = estimate(known(products, model__is_moe=True, run__moe_table_experts=64), 64.0, 9000.0)

    assert found is not None
    assert not gathered.is_open_above
    assert found.tokens_per_s.high < 2 * found.tokens_per_s.low


MIXTURE = {
    "architectures": ["Qwen3MoeForCausalLM"], "num_hidden_layers": 24, "hidden_size": 1024, "num_experts": 64, "num_experts_per_tok": 8,
    "moe_intermediate_size": 768, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 32000,
}  # fmt: skip


def test_a_config_tells_which_weights_are_experts(products: Products):
    """24 layers of 64 experts, three matrices of 1024 by 768 each, in 16 bits: 7.25 GB of them."""
    facts = {name.replace(".", "__"): value for name, value in model_facts(MIXTURE).items() if name != "model.quantization"}

    found, gathered = estimate(known(products, **facts, model__quantization="none"), 16.0, 9000.0)

    assert found is not None
    routed = next(each for each in gathered.inputs if each.name == "routed experts")
    assert routed.low == routed.high == pytest.approx(24 * 64 * 3 * 1024 * 768 * 2 / 1e9)
    assert found.parts["routed experts"].low == pytest.approx(routed.low * 1e9 * touched(64, 8, 16))


@pytest.mark.parametrize(
    ("weights_gib", "quantization", "low", "high"),
    [(57.0, None, 2.0, 2.0), (30.0, "fp8", 1.0, 1.02)],
    ids=["told by the size of all weights", "told by name"],
)
def test_the_bytes_of_an_expert_weight(products: Products, weights_gib: float, quantization: str | None, low: float, high: float):
    """Qwen3.5-122B-A10B on four cards: the name tells the shape, the size of all weights the type."""
    of = known(
        products, args={"tp_size": 4}, name="Qwen3.5-122B-A10B", model__is_moe=True, run__weights_gib=weights_gib, model__quantization=quantization
    )

    _, gathered = estimate(of, 64.0, 96_000.0)

    each = next(found for found in gathered.inputs if found.name == "an expert weight")
    assert (each.low, each.high) == (low, high)
    assert each.is_assumed is (quantization is None)


def test_a_distilled_dense_model_is_not_taken_for_its_teacher(products: Products):
    assert not {"num_experts", "moe_width", "parameters_b"} & products.shape_of("DeepSeek-R1-Distill-Llama-70B").keys()
    assert products.shape_of("DeepSeek-R1-0528")["num_experts"] == 256


def test_attention_in_parallel_over_data_reads_each_context_once(products: Products):
    facts = {"model__is_moe": True, "model__num_experts": 64, "model__top_k": 8}
    shared, _ = estimate(known(products, args={"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}, **facts), 64.0, 800_000.0)
    alone, _ = estimate(known(products, args={"tp_size": 8}, **facts), 64.0, 800_000.0)

    assert shared is not None
    assert alone is not None
    assert shared.parts["KV"].low == pytest.approx(alone.parts["KV"].low / 8)


# --- through the engine ----------------------------------------------------------------------------------------------


def test_the_report_on_eight_cards_says_a_sixth_with_its_inputs(judge_files: Callable[..., Any]):
    case = ROOT / "tests/cases/perf-flashinfer-cutlass-autotune-never-ran"

    run = judge_files(case / "server.log", telemetry=case / "nvml.jsonl").engine.snapshot().runs[-1]

    told = run.roofline
    assert 0.14 < told.share_low <= told.share_high < 0.18
    sources = {each.name: each.source for each in told.inputs}
    assert sources["weights"] == "server.log:12"
    assert sources["bandwidth"].startswith("gpus.yaml")
    assert sources["experts"] == "models.yaml: GLM-5-NVFP4"
    assert all(each.name in told.text for each in told.inputs)


def test_a_healthy_dense_server_reaches_most_of_it(judge_files: Callable[..., Any]):
    capture = ROOT / "tests/captures/20-dense-8b-default"

    judged = judge_files(capture / "server.log", telemetry=capture / "nvml.jsonl.gz").engine.snapshot()

    assert judged.runs[-1].roofline.share_low == pytest.approx(0.60, abs=0.02)
    assert [each.topic for each in judged.findings if "roofline" in each.topic] == ["perf.near-roofline"]


def test_the_share_is_what_the_gpus_own_memory_counters_say(judge_files: Callable[..., Any]):
    """GPM's DRAM activity knows nothing of logs and models: an independent witness."""
    capture = ROOT / "tests/captures/20-dense-8b-default"
    judged = judge_files(capture / "server.log", telemetry=capture / "nvml.jsonl.gz").engine

    told = judged.snapshot().runs[-1].roofline
    counted = [
        value for index, gpu in judged.state.gpus.items() if index in judged.snapshot().runs[-1].gpus
        for value in gpu.series["dram_active"].window(told.at_s - 15.0, told.at_s)
    ]  # fmt: skip

    assert told.share_high == pytest.approx(median(counted), abs=0.10)


# --- the run's own best ----------------------------------------------------------------------------------------------


def steady(at_s: float, *, running: float = 64.0, speed: float = 1000.0, context: float | None = 64_000.0) -> Steady:
    return Steady(at_s - 15.0, at_s, running, speed, context)


def test_the_own_best_is_of_like_load_and_needs_windows(products: Products):
    stick, of = Yardstick(), known(products)
    for window in range(7):
        stick.judge(of, steady(15.0 * (window + 1), speed=1000.0 + window))
    assert stick.best_of(steady(0.0)) is None

    stick.judge(of, steady(120.0, speed=500.0))

    assert stick.best_of(steady(0.0)) == 1006.0
    assert stick.best_of(steady(0.0, running=8.0)) is None
    assert stick.root(steady(120.0))["own_best_share"] == pytest.approx(500.0 / 1006.0)


def test_windows_that_overlap_count_once(products: Products):
    stick, of = Yardstick(), known(products)

    for second in range(60):
        stick.judge(of, steady(100.0 + second))

    assert sum(len(speeds) for speeds in stick.buckets.values()) == 4


def test_its_memory_is_bounded(products: Products):
    stick, of = Yardstick(), known(products)

    for window in range(2_000):
        stick.judge(of, steady(15.0 * window, running=float(1 + window % 4096), context=float(1 + 977 * window % 1_000_000)))

    assert len(stick.buckets) <= 64
    assert max(len(speeds) for speeds in stick.buckets.values()) <= 64


def test_those_outside_hear_of_it_when_it_changes(products: Products):
    stick, of = Yardstick(), known(products)
    stick.judge(of, steady(15.0))
    assert stick.is_news(15.0)

    stick.judge(of, steady(16.0))
    assert not stick.is_news(16.0)
    stick.judge(of, steady(90.0, speed=400.0))

    assert stick.is_news(90.0)
