"""Conditions have three values; a missing fact is named in full, and a faulty expression is a fault, never "unknown"."""

import subprocess
import sys

import pytest

from sglang_watchdog.engine.conditions import CompiledCondition, Context, Fault, Unknown, paths_of, wanted_keys
from sglang_watchdog.model.signature import Condition


def context(**roots: dict) -> Context:
    made = Context({})
    for root, values in roots.items():
        made.put(root, values)
    return made


def outcome(expression: str, **roots: dict):
    return CompiledCondition(Condition(expression=expression)).evaluate(context(**roots))


def test_a_missing_fact_is_unknown_and_named_in_full():
    assert outcome("args.tp_size > 1", args={}) == Unknown("args.tp_size")


def test_what_does_not_matter_may_be_unknown():
    assert outcome("args.tp_size > 1 || model.is_moe", model={"is_moe": True}) is True
    assert outcome("args.tp_size > 1 && model.is_moe", model={"is_moe": False}) is False


def test_none_is_not_a_value():
    assert outcome("args.attention_backend == 'fa3'", args={"attention_backend": None}) == Unknown("args.attention_backend")


@pytest.mark.parametrize("expression", ["args.tp_size + 'a' == 'b'", "args.tp_size", "args.tp_size.startsWith('a')"])
def test_a_wrong_expression_is_a_fault_of_the_signature(expression):
    assert isinstance(outcome(expression, args={"tp_size": 2}), Fault)


def test_paths_stand_outside_of_strings():
    assert paths_of("args.a == 'run.b' && w.c > 1.0") == ("args.a", "w.c")


def test_only_keys_that_anything_reads_are_converted():
    wanted = wanted_keys(["args.tp_size > 1"])
    made = Context(wanted)
    made.put("args", {"tp_size": 2, "model_path": "x" * 10_000})

    assert made.values("args") == {"tp_size": 2}


def test_the_runtime_comes_without_its_command_line():
    code = "import sys; import sglang_watchdog.engine.conditions; print('prompt_toolkit' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
