"""Each flag's file proves itself by its examples, and none of its conditions breaks on facts of the right types."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from sglang_watchdog.engine.conditions import Fault
from sglang_watchdog.library.flag_sources import sources_in
from sglang_watchdog.model.signature import Library
from sglang_watchdog.triage.knowledge import BrokenKnowledge, FlagKnowledge, Knowledge, Rule, compile_flags
from sglang_watchdog.triage.resolution import Known, Resolution
from sglang_watchdog.triage.verdicts import Judgement

MODELS: Mapping[str, Mapping[str, Any]] = {
    "dense": {"model.architecture": "LlamaForCausalLM", "model.is_moe": False, "model.is_mla": False, "model.quantization": "none"},
    "experts": {
        "model.architecture": "DeepseekV3ForCausalLM",
        "model.is_moe": True,
        "model.num_experts": 256,
        "model.top_k": 8,
        "model.shared_experts": 1,
        "model.is_mla": True,
        "model.quantization": "fp8",
    },
}
COMMON: Mapping[str, Any] = {
    "model.is_hybrid_linear": False,
    "model.is_multimodal": False,
    "model.is_sparse_attention": False,
    "model.has_sliding_window": False,
    "model.context_length": 32768,
    "model.hidden_size": 4096,
    "gpu.architecture_sm": 90,
    "gpu.memory_gib": 139.8,
    "gpu.count": 8,
    "gpu.nvlink": True,
    "gpu.name": "H200 SXM",
}


def test_at_least_eighty_flags_are_described(knowledge: Knowledge):
    assert len(knowledge.flags) >= 80


def test_the_examples_of_every_file_hold(knowledge: Knowledge, judged: Callable[..., Judgement]):
    wrong = []
    for known in knowledge.flags.values():
        for example in known.examples:
            judgement = judged(example["command"], example["release"], example["gpu"], example["model"])
            mine = [one for one in judgement.flags if one.field == known.field or one.flag == known.flag or _sets(knowledge, one.flag, known)]
            told = (mine[-1].verdict, example["because"] in mine[-1].because) if mine else ("not there", False)
            starts = example["starts"] in (None, judgement.starts)
            if told != (example["verdict"], True) or not starts or judgement.notes:
                wrong.append(f"{known.signature}, {example['name']}: {told}, starts {judgement.starts}, {judgement.notes}")

    assert not wrong, "\n".join(wrong)


def _sets(knowledge: Knowledge, option: str, known: FlagKnowledge) -> bool:
    """Whether the option set the field in some release: a removed spelling still belongs to its flag."""
    return any(run[2]["field"] == known.field for run in knowledge.table.options.get(option, ()))


def test_every_file_has_an_example(knowledge: Knowledge):
    assert [one.signature for one in knowledge.flags.values() if not one.examples] == []


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "release", ["0.5.8.post1", "0.5.9", "0.5.10.post1", "0.5.11", "0.5.12.post1", "0.5.13.post1", "0.5.14", "0.5.16", "0.5.20", "0.5.23"]
)
def test_no_condition_breaks(knowledge: Knowledge, model: str, release: str):
    """With every fact known, each rule is true, false or honestly unknown; an error in one would show as a fault."""
    resolution = Resolution(knowledge, release, {}, {**MODELS[model], **COMMON})
    outcomes = [(rule, resolution.holds(rule)) for _, rule in _rules(knowledge) if rule.speaks_for(release)]

    assert len(outcomes) > 150
    assert not resolution.faults
    assert not [rule.because for rule, outcome in outcomes if isinstance(outcome, Fault)]


def test_with_every_fact_known_most_values_are(knowledge: Knowledge):
    """Unknown must stay the exception where model and GPU are given, or the verdicts would say nothing."""
    for release in ("0.5.9", "0.5.12.post1", "0.5.20"):
        resolution = Resolution(knowledge, release, {}, {**MODELS["dense"], **COMMON})
        names = [name for name, one in knowledge.flags.items() if one.covers(release) and knowledge.table.declares(name, release)]
        unknown = [name for name in names if not isinstance(resolution.value(f"args.{name}"), Known)]

        assert len(unknown) <= 0.05 * len(names), unknown


def test_every_statement_names_release_file_and_function(library: Library):
    bodies = {one.id: one.flag for one in library.signatures.values() if one.flag is not None}
    wrong = [
        f"{name}: {source}"
        for name, body in bodies.items()
        for source in sources_in(body)
        if not re.fullmatch(r"\d[\w.]+, srt/[\w/]+\.py::(?:\w+|<module>)", source)
    ]

    assert len(bodies) >= 80
    assert not wrong


def test_two_files_for_one_field_are_refused(library: Library):
    one = next(one for one in library.signatures.values() if one.flag is not None)

    with pytest.raises(BrokenKnowledge, match="both describe the field"):
        compile_flags([one, one])


def _rules(knowledge: Knowledge) -> Iterator[tuple[str, Rule]]:
    for known in knowledge.flags.values():
        for rule in (*known.needs, *known.automatic, *known.overrides, *known.fails, *known.conflicts, *known.helps):
            if known.range_ and rule.conditions:
                yield known.field, rule
    for decision in knowledge.decisions.values():
        for rule in decision.rules:
            yield decision.name, rule
