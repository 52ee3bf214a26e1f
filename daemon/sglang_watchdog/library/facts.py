"""The facts that conditions may read, with their types; lint runs every condition on samples of them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from ..model.signature import Library
from .files import SignatureFile, read_json_table

SAMPLES: Final[Mapping[str, Any]] = {
    "bool": True, "int": 8, "float": 0.5, "str": "auto", "list": ["auto"], "dict": {"key": "value"},
}  # fmt: skip
KNOWN: Final[Mapping[str, str]] = {
    "model.is_moe": "bool", "model.is_mla": "bool", "model.architecture": "str", "model.name": "str",
    "model.num_experts": "int", "model.top_k": "int", "model.quantization": "str",
    "gpu.name": "str", "gpu.architecture_sm": "int", "gpu.count": "int", "gpu.memory_gib": "float",
    "gpu.pairs": "int", "gpu.pairs_refused": "int", "gpu.pairs_refused_text": "str", "gpu.topology_level": "int", "gpu.topology": "str",
    "gpu.power_limit_w": "float", "gpu.bandwidth_gbps": "float",
    "run.phase": "str", "run.has_dump": "bool", "run.log_level": "str", "run.custom_logging": "bool",
    "run.graph_max_bs": "int", "run.age_s": "float", "run.node_rank": "int", "run.weights_gib": "float",
    "run.max_running_requests": "int", "run.max_total_num_tokens": "int", "run.sglang_version": "str",
    # of the state machine and of the sources as a whole
    "run.ready_s": "float", "run.end": "str", "run.restarted": "bool", "run.starts_30m": "int",
    "run.starts_every_s": "float", "run.starts_cause": "str",
    "run.lines": "int", "run.sglang_lines": "int",
    "run.odd_lines": "int", "run.gaps": "int", "run.gap_reason": "str", "run.unreadable_sources": "int",
    "run.clock_overlap": "bool", "run.access_log": "bool", "run.log_silence_s": "float", "run.release_verified": "bool",
    "run.silent_before_watch_s": "float",
    "run.zone_contradicted": "bool", "run.zone_log": "str", "run.zone_given": "str", "run.zone_arrival": "str",
    "run.port_open": "bool", "run.oom_kills": "int",
    "gpu.expected_power_limit_w": "float", "load.health_failures": "float", "load.max_running": "float",
    "load.ready": "bool", "load.steady": "bool", "load.running": "float", "load.tokens_per_s": "float",
    "load.queue": "float", "load.unanswered": "float", "load.last_batch_age_s": "float",
    "load.batch_interval_s": "float",
    "load.stalls": "float", "load.stalls_text": "str",
    "load.ceiling_low": "float", "load.ceiling_high": "float", "load.ceiling_share_low": "float", "load.ceiling_share_high": "float",
    "load.ceiling_text": "str", "load.ceiling_do": "str", "load.own_best": "float", "load.own_best_share": "float",
    "load.prefill_share": "float", "load.seconds": "float", "load.last_batch_was_prefill": "bool",
}  # fmt: skip
# What the engine derives from newer dumps, so that conditions can read one name for all releases.
DERIVED_ARGS: Final[Mapping[str, str]] = {
    "args.disable_cuda_graph": "bool",
    "args.cuda_graph_max_bs": "int",
    "args.disable_piecewise_cuda_graph": "bool",
}
TYPE_OF_CAPTURE: Final[Mapping[str, str]] = {"int": "int", "float": "float", "text": "str"}


def fact_types(library: Library, files: Iterable[SignatureFile], roots: Iterable[Path]) -> dict[str, str]:
    """Name of every fact that something can set, with its type: bool, int, float, str, list, dict or any."""
    types = dict(KNOWN)
    for root in roots:
        table, _ = read_json_table(root / "server_args_fields.json")
        types.update({f"args.{name}": row[2] for name, row in table.get("fields", {}).items()})
    types.update(DERIVED_ARGS)
    for entry in library.models.values():
        types.update({f"model.{name}": type(value).__name__ for name, value in entry.items()})
    for entry in library.gpus.values():
        types.update({f"gpu.{name}": type(value).__name__ for name, value in entry.items()})
    for role in ("launcher", "scheduler", "detokenizer", "other"):  # model.observation.ProcessSeen
        types.update({f"run.{role}_state": "str", f"run.{role}_state_since_s": "float"})
    for what in ("weights", "capture", "compile", "deepgemm", "autotune", "other"):  # model.observation.Progress
        types.update({f"run.progress_{what}_done": "int", f"run.progress_{what}_total": "int", f"run.progress_{what}_s": "float"})
    for milestone in library.milestones:
        types[f"run.since_{milestone.name.replace('-', '_')}_s"] = "float"
        types.update({name: _type_of(source) for name, source in milestone.facts.items()})
    for file in files:
        for name, value in file.body.concludes.items():
            types.setdefault(name, type(value).__name__)
    return types


def _type_of(source: str) -> str:
    what, _, kind = source.rpartition(":")
    return type(json.loads(what)).__name__ if kind == "const" else TYPE_OF_CAPTURE[kind]


def samples(types: Mapping[str, str], windows: Iterable[str]) -> dict[str, dict[str, Any]]:
    """A typed sample of every fact, by root; `any` stands out and is left away."""
    roots: dict[str, dict[str, Any]] = {root: {} for root in ("args", "model", "gpu", "run", "load", "w")}
    for name, kind in types.items():
        root, _, leaf = name.partition(".")
        if kind in SAMPLES:
            roots[root][leaf] = SAMPLES[kind]
    roots["w"] = dict.fromkeys(windows, 0.5)
    return roots
