"""What a run's log, arguments, model and GPUs tell of a ceiling's inputs, each as a range with its source. All of one GPU.

What is not known is said with its cure; what only bounds it (experts of unknown shape) widens the range.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ..model.finding import FactEvidence, RooflineInput
from ..model.observation import Json
from .gpus import GpuState
from .products import Products
from .roofline import GIB, ZERO, Ceiling, Span, Step, Weights, ceiling

_ROUNDED_GIB = 0.005  # the log prints two decimals
_BUFFERS = 0.20  # what the log's weights hold besides: scales, buffers of kernels, rounding of published parameter counts
_KV_BYTES: Mapping[str, float] = {"float8": 1.0, "fp8": 1.0, "bfloat16": 2.0, "bf16": 2.0, "float16": 2.0, "half": 2.0, "float32": 4.0}

_NO_WEIGHTS = ("the bytes of the weights on one GPU", "give the log from the server's start, or the server's address for /server_info")
_NO_KV = ("the bytes of KV cache for each token", "give the log from the server's start, or the model's config.json")
_NO_ARGS = ("the arguments", "give the log from the server's start, or the server's address for /server_info")
_NO_BANDWIDTH = ("the memory bandwidth of the GPUs", "give the GPUs' telemetry (run --telemetry nvml, or a recording: check --telemetry FILE)")
_NO_CONTEXT = ("the tokens in context", "the Decode lines of this release do not print #token")
_NO_EXPERTS = ("which part of the weights are routed experts", "give the model's config.json (readable at --model-path, or check --model-config)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the gathering may look at. Facts by dotted name, with their evidence."""

    facts: Mapping[str, FactEvidence]
    args: Mapping[str, Json]
    args_source: str
    model_name: str
    gpus: Sequence[GpuState]
    products: Products


@dataclass(slots=True)
class Gathered:
    """Inputs as they are found, and what is missing."""

    inputs: list[RooflineInput] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)
    is_open_above: bool = False  # so little is known of what is read that only the lower end of the ceiling means anything

    def take(self, name: str, span: Span, unit: str, source: str, *, is_assumed: bool = False) -> Span:
        self.inputs.append(RooflineInput(name=name, low=span.low, high=span.high, unit=unit, source=source, is_assumed=is_assumed))
        return span

    def lacks(self, what: tuple[str, str]) -> None:
        self.missing.append(what)


Number: TypeAlias = tuple[float, str]  # a value and its source


class Look:
    """Values by name with their sources: a fact of the run, else what the name of a published model implies."""

    def __init__(self, known: Known) -> None:
        self._known = known
        is_dense = self.truth("model.is_moe") is False
        self._shape = {} if is_dense else known.products.shape_of(known.model_name)

    def number(self, path: str) -> Number | None:
        fact = self._known.facts.get(path)
        if fact is not None and isinstance(fact.value, int | float) and not isinstance(fact.value, bool):
            return float(fact.value), _source(fact)
        implied = self._shape.get(path.removeprefix("model.")) if path.startswith("model.") else None
        if isinstance(implied, int | float) and not isinstance(implied, bool):
            return float(implied), f"models.yaml: {self._known.model_name}"
        return None

    def truth(self, path: str) -> bool | None:
        fact = self._known.facts.get(path)
        return fact.value if fact is not None and isinstance(fact.value, bool) else None

    def text(self, path: str) -> tuple[str, str] | None:
        fact = self._known.facts.get(path)
        return (fact.value, _source(fact)) if fact is not None and isinstance(fact.value, str) else None

    def says(self, name: str) -> bool:
        """A true value of a published model's table or of the run's facts."""
        return self.truth(f"model.{name}") is True or self._shape.get(name) is True

    def argument(self, name: str, default: int) -> int:
        value = self._known.args.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default


def _source(fact: FactEvidence) -> str:
    return f"{fact.source}:{fact.line}" if fact.line is not None else fact.source


def estimate(known: Known, running: float, context_tokens: float | None) -> tuple[Ceiling | None, Gathered]:
    """The ceiling for `running` requests that hold `context_tokens` altogether, or None with what is missing."""
    out, look = Gathered(), Look(known)
    if not known.args:
        out.lacks(_NO_ARGS)
    if isinstance(known.args.get("speculative_algorithm"), str):
        out.lacks(("what speculation reads", "the draft model's share is not modelled: no cure"))
    if look.argument("pp_size", 1) > 1:
        out.lacks(("how pipeline stages overlap", "pipeline parallelism is not modelled: no cure"))
    tp, dp = look.argument("tp_size", 1), look.argument("dp_size", 1)
    shares_attention = known.args.get("enable_dp_attention") is True
    bandwidth = _bandwidth(known, look, out)
    total = _weights(look, known, tp, out, has_split_embedding=not shares_attention)
    kv = _kv_bytes(look, known, tp // dp if shares_attention and tp >= dp else tp, out)
    context = _context(look, running, context_tokens, out)
    if total is None or kv is None or context is None or bandwidth is None or out.missing:
        return None, out
    out.take("running", Span.exactly(running), "requests", "#running-req of the Decode lines")
    weights = _experts(look, known, total, tp, running, out)
    step = Step(
        requests=running / dp,
        routed_tokens=running if shares_attention else running / dp,
        context_tokens=context * (1.0 / dp),
        kv_bytes_per_token=kv,
        state_bytes_per_request=_state(look, out),
    )
    return ceiling(weights, step, bandwidth * 1e9, tokens_per_step=Span.exactly(running)), out


def _bandwidth(known: Known, look: Look, out: Gathered) -> Span | None:
    """GB/s of the slowest GPU; NVML's clock times bus width and the product's table are its two ends where both are known."""
    found: list[Span] = []
    sources: dict[str, None] = {}
    for gpu in known.gpus:
        values: list[float] = []
        series = gpu.series.get("extra.bandwidth_gbps")
        if series is not None and series.newest is not None:
            values.append(series.newest[1])
            sources["NVML's memory clock and bus width"] = None
        table = known.products.facts_of("gpu.name", gpu.name) if gpu.name else {}
        for name in ("gpu.bandwidth_gbps", "gpu.bandwidth_low_gbps"):
            value = table.get(name)
            if isinstance(value, int | float):
                values.append(float(value))
                sources[f"gpus.yaml: {gpu.name}"] = None
        if values:
            found.append(Span(min(values), max(values)))
    if not found:
        told = look.number("gpu.bandwidth_gbps")
        if told is None:
            out.lacks(_NO_BANDWIDTH)
            return None
        low = look.number("gpu.bandwidth_low_gbps") or told
        found, sources = [Span(low[0], told[0])], {f"gpus.yaml by {told[1]}": None}
    slowest = Span(min(span.low for span in found), min(span.high for span in found))
    return out.take("bandwidth", slowest, "GB/s", ", ".join(sources))


def _weights(look: Look, known: Known, tp: int, out: Gathered, *, has_split_embedding: bool) -> Span | None:
    told = look.number("run.weights_gib")
    if told is not None:
        total = Span((told[0] - _ROUNDED_GIB) * GIB, (told[0] + _ROUNDED_GIB) * GIB)
        source, is_assumed = told[1], False
    else:
        files = look.number("model.weights_bytes")
        if files is None or known.args.get("quantization") is not None:
            out.lacks(_NO_WEIGHTS)
            return None
        total, source, is_assumed = Span(files[0] / tp, 1.1 * files[0] / tp), f"{files[1]}, spread over tp {tp}", True
    out.take("weights", total * 1e-9, "GB", source, is_assumed=is_assumed)
    vocabulary, hidden = look.number("model.vocab_size"), look.number("model.hidden_size")
    if vocabulary is not None and hidden is not None and has_split_embedding and look.truth("model.ties_embeddings") is not True:
        table = vocabulary[0] * hidden[0] * 2.0 / tp
        if table < 0.5 * total.low:
            out.take("input embeddings, not read whole,", Span.exactly(table / 1e9), "GB", vocabulary[1])
            total = Span(total.low - table, total.high - table)
    return total


def _kv_bytes(look: Look, known: Known, ranks: int, out: Gathered) -> Span | None:
    """Bytes of one token's KV on one GPU: from the pool as the log tells it, else from the model's shape."""
    tokens = look.number("run.kv_tokens")
    sizes = [look.number(name) for name in ("run.k_gib", "run.v_gib")]
    whole = look.number("run.kv_gib")
    parts = [size for size in sizes if size is not None] if whole is None else [whole]
    if tokens is not None and tokens[0] > 0 and len(parts) == (2 if whole is None else 1):
        size, slack = sum(part[0] for part in parts), _ROUNDED_GIB * len(parts)
        per_token = Span(max(0.0, size - slack) * GIB / tokens[0], (size + slack) * GIB / tokens[0])
        return _take_kv(out, per_token, tokens[1], is_assumed=False)
    layers, width = look.number("model.attention_layers") or look.number("model.layers"), _kv_width(look, ranks)
    if layers is None or width is None:
        out.lacks(_NO_KV)
        return None
    each, is_assumed = _kv_value_bytes(look, known)
    return _take_kv(out, each * (layers[0] * width[0]), width[1], is_assumed=is_assumed)


def _take_kv(out: Gathered, per_token: Span, source: str, *, is_assumed: bool) -> Span:
    out.take("KV of a token", per_token * 1e-3, "kB", source, is_assumed=is_assumed)
    return per_token


def _kv_width(look: Look, ranks: int) -> Number | None:
    """Values that one layer keeps of a token on one GPU. Latent attention keeps the same on every rank."""
    latent, rope = look.number("model.kv_lora_rank"), look.number("model.qk_rope_head_dim")
    if latent is not None and rope is not None:
        return latent[0] + rope[0], latent[1]
    heads, size = look.number("model.kv_heads"), look.number("model.head_dim")
    if heads is None or size is None:
        return None
    return 2.0 * max(1.0, heads[0] / ranks) * size[0], heads[1]


def _kv_value_bytes(look: Look, known: Known) -> tuple[Span, bool]:
    told = look.text("run.kv_dtype")
    name = told[0] if told is not None else str(known.args.get("kv_cache_dtype") or "")
    for start, size in _KV_BYTES.items():
        if name.startswith(start):
            return Span.exactly(size), False
    return Span(1.0, 2.0), True


def _context(look: Look, running: float, tokens: float | None, out: Gathered) -> Span | None:
    if tokens is None:
        out.lacks(_NO_CONTEXT)
        return None
    span = Span.exactly(tokens)
    most = look.number("model.index_topk")
    if most is not None:
        span = Span(min(tokens, running * most[0]), tokens)
        out.assumptions.append(f"sparse attention reads between {most[0]:.0f} tokens and the whole context of a request")
    if look.says("has_sliding_window") or look.number("run.swa_layer_tokens") is not None:
        span = Span(0.0, span.high)
        out.assumptions.append("layers with a sliding window read between nothing and the whole context")
    out.assumptions.append("a prefix that requests share is counted once")
    return out.take("context", span, "tokens", "#token of the Decode lines")


def _state(look: Look, out: Gathered) -> Span:
    slots, conv, ssm = (look.number(f"run.mamba_{name}") for name in ("slots", "conv_gib", "ssm_gib"))
    if slots is None or conv is None or ssm is None or slots[0] <= 0:
        if look.says("is_hybrid_linear"):
            out.assumptions.append("the state of linear attention is left out: the log does not tell its size")
        return ZERO
    size = Span.exactly((conv[0] + ssm[0]) * GIB / slots[0])
    return out.take("state of a request", size * 1e-6, "MB", slots[1])


def _experts(look: Look, known: Known, total: Span, tp: int, running: float, out: Gathered) -> Weights:
    """The part of `total` that routed experts are, or the bounds that are left where their shape is not known."""
    if look.truth("model.is_moe") is False:
        return Weights(total=total)
    experts, top_k = look.number("model.num_experts"), look.number("model.top_k")
    shape = [look.number(f"model.{name}") for name in ("moe_layers", "hidden_size", "moe_width")]
    if experts is not None and top_k is not None:
        out.take("experts", Span.exactly(experts[0]), "", experts[1])
        out.take("experts of a token", Span.exactly(top_k[0]), "", top_k[1])
        out.assumptions.append("tokens choose their experts evenly; skew raises the ceiling by up to a fifth")
        sizes = [number[0] for number in shape if number is not None]
        shape_source = ", ".join(dict.fromkeys(number[1] for number in shape if number is not None))
        if len(sizes) == 3:
            count = sizes[0] * experts[0] * 3.0 * sizes[1] * sizes[2] / tp
            each, source, is_assumed = _parameter_bytes(look, known, count, tp, total)
            routed = Span(min(total.low, each.low * count), min(total.high, each.high * count))
            out.take("an expert weight", each, "B", source, is_assumed=is_assumed)
            out.take("routed experts", routed * 1e-9, "GB", shape_source, is_assumed=is_assumed)
            return Weights(total=total, routed=routed, experts=experts[0], top_k=top_k[0])
        out.assumptions.append("the experts are between none and all of the weights")
        return Weights(total=total, routed=Span(0.0, total.high), experts=experts[0], top_k=top_k[0])
    out.missing.append(_NO_EXPERTS)
    seen = look.number("run.moe_table_experts")
    if seen is not None and look.argument("ep_size", 1) == 1:
        out.take("experts", Span.exactly(seen[0]), "", seen[1])
        out.assumptions.append("each token chooses at least one expert, and the experts are between none and all of the weights")
        return Weights(total=total, routed=Span(0.0, total.high), experts=seen[0], top_k=1.0)
    out.is_open_above = True
    out.assumptions.append("a step reads at most all weights")
    return Weights(total=total, routed=Span(0.0, total.high), experts=max(2.0, running), top_k=1.0)


def _parameter_bytes(look: Look, known: Known, count: float, ranks: int, total: Span) -> tuple[Span, str, bool]:
    """Bytes of one expert weight: by the quantisation that is named, else what the size of all weights leaves possible."""
    table = known.products.parameter_bytes
    named = look.text("model.quantization")
    argument = known.args.get("quantization")
    if named is None and isinstance(argument, str):
        named = (argument, f"{known.args_source} (--quantization)")
    if named is None:
        named = look.text("model.checkpoint_quantization")
    if named is not None and named[0] in table:
        return Span(*table[named[0]]), f"{named[0]} by {named[1]}", False
    parameters = look.number("model.parameters_b")
    others = max(0.0, parameters[0] * 1e9 / ranks - count) if parameters is not None else None
    possible = [span for span in table.values() if _fits(Span(*span) * count, others, total)]
    if not possible:
        return Span.exactly(total.high / count), "all of the weights", True
    return Span(min(low for low, _ in possible), min(max(high for _, high in possible), total.high / count)), "what fits the weights", True


def _fits(routed: Span, others: float | None, total: Span) -> bool:
    """Whether the routed experts of that size and `others` further weights (of half a byte to two) can make up all weights."""
    if others is None:
        return routed.low <= total.high
    least, most = routed.low + 0.5 * others, routed.high + 2.0 * others
    return least * (1.0 - _BUFFERS) <= total.high and total.low <= most * (1.0 + _BUFFERS)
