"""What the memory of the GPUs allows a decode step, as a range with its inputs: pure arithmetic, no log, no clock.

A decode step reads on each GPU the weights that its requests use, the KV cache of their contexts and their recurrent state.
Bytes over bandwidth is the shortest time that a step can take; communication, launches and arithmetic come on top, so the
ceiling is one of the memory alone and no healthy server reaches it (seen: 0.31 to 0.69 of it from 8 requests up).
"""

from collections.abc import Mapping
from dataclasses import dataclass

GB = 1e9
GIB = 1024.0**3


@dataclass(frozen=True, slots=True)
class Span:
    """A number known to lie between two bounds; equal bounds: known."""

    low: float
    high: float

    @classmethod
    def exactly(cls, value: float) -> "Span":
        return cls(value, value)

    def __add__(self, other: "Span") -> "Span":
        return Span(self.low + other.low, self.high + other.high)

    def __mul__(self, factor: float) -> "Span":
        """By a factor that is not negative."""
        return Span(self.low * factor, self.high * factor)


ZERO = Span(0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What one GPU holds, in bytes. `routed` is the part of routed experts, 0 for a dense model."""

    total: Span  # without the table of input embeddings, of which a step reads a row for each token
    routed: Span = ZERO
    experts: float = 1.0
    top_k: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One decode step of one replica. Tokens and requests are those that one GPU works on; `routed_tokens` those of all GPUs
    among which the experts are spread."""

    requests: float
    routed_tokens: float  # tokens that pass the router: requests times the tokens verified for each
    context_tokens: Span  # tokens whose KV is read, all requests of one GPU together
    kv_bytes_per_token: Span
    state_bytes_per_request: Span = ZERO  # recurrent state, read and written


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Tokens a second that the memory allows, and the bytes of one GPU and step behind it, by part."""

    tokens_per_s: Span
    bytes: Span
    parts: Mapping[str, Span]

    def share(self, tokens_per_s: float) -> Span:
        """What a rate is of the ceiling: the low end against the high ceiling."""
        return Span(tokens_per_s / self.tokens_per_s.high, tokens_per_s / self.tokens_per_s.low)


def touched(experts: float, top_k: float, tokens: float) -> float:
    """The share of experts that `tokens` tokens are expected to reach, each choosing `top_k` of them evenly. 0 to 1.

    Real routing is skewed and reaches fewer, so that the true ceiling is up to a fifth higher where tokens times top_k is
    near the number of experts.
    """
    missed: float = (1.0 - min(1.0, top_k / experts)) ** tokens
    return 1.0 - missed


def ceiling(weights: Weights, step: Step, bandwidth_bytes_per_s: Span, *, tokens_per_step: Span) -> Ceiling:
    """The ceiling of all GPUs together. `tokens_per_step`: output tokens of one step of all replicas.

    Raises:
        ValueError: nothing would be read, or at no bandwidth.
    """
    share = touched(weights.experts, weights.top_k, step.routed_tokens) if weights.routed.high > 0 else 0.0
    fixed = Span(max(0.0, weights.total.low - weights.routed.high), max(0.0, weights.total.high - weights.routed.low))
    kv = Span(step.context_tokens.low * step.kv_bytes_per_token.low, step.context_tokens.high * step.kv_bytes_per_token.high)
    state = step.state_bytes_per_request * (2.0 * step.requests)
    # The total is known better than its parts: more routed weights are fewer others.
    read = [weights.total.low - routed * (1.0 - share) for routed in (weights.routed.low, weights.routed.high)]
    most = [weights.total.high - routed * (1.0 - share) for routed in (weights.routed.low, weights.routed.high)]
    total = Span(max(0.0, min(read)), max(most)) + kv + state
    if total.low <= 0 or bandwidth_bytes_per_s.low <= 0:
        raise ValueError("a step that reads nothing has no ceiling")
    allowed = Span(
        tokens_per_step.low * bandwidth_bytes_per_s.low / total.high, tokens_per_step.high * bandwidth_bytes_per_s.high / total.low
    )
    parts = {"other weights" if weights.routed.high > 0 else "weights": fixed, "routed experts": weights.routed * share, "KV": kv, "state": state}
    return Ceiling(allowed, total, {name: part for name, part in parts.items() if part.high > 0})
