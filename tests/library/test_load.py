"""Folders of signature files become one library; what is broken is named and left out."""

import pytest

from sglang_watchdog.library.load import Override, load
from sglang_watchdog.library.schema import json_schema
from sglang_watchdog.model.words import Severity, Status


def test_a_file_becomes_a_signature_with_its_topics_severity(folder):
    folder.good()

    loaded = folder.load()

    assert loaded.faults == ()
    signature = loaded.library.signatures["moe-default"]
    assert signature.severity is Severity.WARNING
    assert signature.match == ("moe-default#1",)
    assert loaded.library.patterns["moe-default#1"].starts == ("Using default MoE kernel config",)
    assert loaded.library.version == "1.2.3"
    assert loaded.library.releases == ("0.5.10", "0.5.11", "0.5.12")


def test_all_faults_of_a_file_are_told_at_once_with_the_nearest_key(folder):
    folder.put(
        "moe/bad.yaml",
        """
        id: bad
        revision: one
        status: trail
        kind: forbidden
        topic: moe.triton-untuned
        titel: A title
        explanation: why
        match: {strats: Using default MoE}
    """,
    )

    loaded = folder.load()

    told = {(fault.line, fault.message.split("`")[1]): fault.help for fault in loaded.faults}
    assert told[(6, "titel")] == "Did you mean `title`?"
    assert told[(8, "strats")] == "Did you mean `starts`?"
    assert told[(3, "trail")] == "Did you mean `trial`?"
    assert (2, "revision") in told
    assert "bad" not in loaded.library.signatures


@pytest.mark.parametrize(
    ("changes", "words", "help"),
    [
        ({"topic": "moe.triton-untund"}, "unknown topic", "Did you mean `moe.triton-untuned`?"),
        ({"releases": '">=zero"'}, "is not a release range", "PEP 440"),
        ({"match": "{regex: '^(?=x)Using default'}"}, "not a regular expression that RE2 accepts", "look-around"),
        ({"let": "{p: 'medain(power_ratio, 15s)'}"}, "unknown function `medain`", "Did you mean `median`?"),
        ({"let": "{p: 'median(power_ration, 15s)'}"}, "unknown series `power_ration`", "Did you mean `power_ratio`?"),
        ({"let": "{p: 'median(power_ratio)'}"}, "needs a window", "steady"),
        ({"let": "{p: 'share_above(sm_util, 15s)'}"}, "needs a number", "share_above(sm_util, 80, 15s)"),
        ({"let": "{p: 'median(power_ratio, 15 s)'}"}, "is not a duration", "window"),
        ({"applies_when": "['args.tp_size >']"}, "not a CEL expression", "For example"),
        ({"hold": "soon"}, "is not a duration", ""),
    ],
)
def test_what_does_not_compile_is_named_with_its_line_and_a_way_out(folder, changes, words, help):
    folder.good(**changes)

    loaded = folder.load()

    (fault,) = loaded.errors
    assert words in fault.message
    assert help in fault.help
    assert fault.line > 0
    assert not loaded.library.signatures


def test_a_broken_file_leaves_the_others_in_force(folder):
    folder.good()
    folder.put("moe/broken.yaml", "id: [\n")

    loaded = folder.load()

    assert list(loaded.library.signatures) == ["moe-default"]
    assert [fault.code for fault in loaded.faults] == ["SIG001"]


def test_the_id_is_the_files_name(folder):
    folder.good().rename(folder.path / "moe" / "other.yaml")

    (fault,) = folder.load().faults
    assert "is not the file's name `other`" in fault.message


def test_an_id_of_the_operators_folder_takes_the_place_of_the_built_in(folder, own):
    folder.good()
    own.good("moe-default.yaml", title="Ours")

    assert folder.load(own.path).library.signatures["moe-default"].title == "Ours"


def test_a_broken_replacement_leaves_the_built_in_and_says_so(folder, own):
    folder.good()
    own.good("moe-default.yaml", topic="no.such")

    loaded = folder.load(own.path)

    assert loaded.library.signatures["moe-default"].title == "Triton MoE kernels run untuned"
    assert "stays in force" in loaded.faults[0].help


def test_the_same_id_twice_in_one_folder_is_a_fault(folder):
    folder.good("moe/moe-default.yaml")
    folder.good("gemm/moe-default.yaml")

    assert "is used by" in folder.load().errors[0].message


def test_disabled_drafts_and_retired_signatures_are_not_in_the_library(folder):
    folder.good("moe/one.yaml")
    folder.good("moe/two.yaml", status="draft")
    folder.good("moe/three.yaml", status="retired")

    assert not folder.load(disable=["one"]).library.signatures
    assert set(folder.load(drafts=True).library.signatures) == {"one", "two"}
    assert {file.signature.status for file in folder.load().files} == {Status.TRIAL, Status.DRAFT, Status.RETIRED}


def test_an_operator_sets_severity_and_threshold(folder):
    folder.good(threshold="0.45", when="['w.p < threshold && args.x != \"threshold\"']", let="{p: 'median(power_ratio, 15s)'}")

    override = {"moe-default": Override(severity=Severity.CRITICAL, threshold=0.3)}
    signature = folder.load(override=override).library.signatures["moe-default"]

    assert signature.severity is Severity.CRITICAL
    assert signature.when[0].expression == 'w.p < 0.3 && args.x != "threshold"'
    assert folder.load().library.signatures["moe-default"].when[0].expression.startswith("w.p < 0.45 ")


def test_a_threshold_for_a_signature_without_one_is_a_fault_and_the_signature_stays(folder):
    folder.good()

    loaded = folder.load(override={"moe-default": Override(threshold=1.0)})

    assert "has no threshold" in loaded.errors[0].message
    assert "moe-default" in loaded.library.signatures


def test_a_misspelt_id_in_the_configuration_is_answered_with_the_nearest(folder):
    folder.good()

    (fault,) = folder.load(disable=["moe-defualt"]).faults
    assert fault.help == "Did you mean `moe-default`?"


def test_milestones_of_one_name_number_their_patterns_on(folder):
    folder.put(
        "milestones.yaml",
        """
        milestones:
          - {name: ready, match: {starts: The server is fired up}}
          - name: ready
            match: [{starts: Ready to roll}, {contains: [is ready]}]
            facts: {run.port: {capture: port, type: int}, run.host: host}
    """,
    )

    library = folder.load().library

    assert [milestone.patterns for milestone in library.milestones] == [
        ("milestone:ready#1",),
        ("milestone:ready#2", "milestone:ready#3"),
    ]
    assert library.milestones[1].facts == {"run.port": "port:int", "run.host": "host:text"}


def test_models_and_products_are_tables_of_facts(folder):
    folder.put("models.yaml", "models: {Qwen3MoeForCausalLM: {is_moe: true, is_mla: false}}\n")
    folder.put("gpus.yaml", "gpus: [{name: H200, match: H200, architecture_sm: 90, bandwidth_gbps: 4800.0}]\n")

    library = folder.load().library

    assert library.models["Qwen3MoeForCausalLM"]["is_moe"] is True
    assert library.gpus["H200"] == {"match": ["H200"], "architecture_sm": 90, "bandwidth_gbps": 4800.0}


def test_a_folder_that_is_not_there_is_a_fault(folder, tmp_path):
    assert "is not a folder of signatures" in folder.load(tmp_path / "none").errors[0].message


def test_the_shipped_library_loads_without_a_fault():
    loaded = load()

    assert "\n".join(fault.render() for fault in loaded.faults) == ""
    assert len(loaded.library.topics) > 100


def test_the_schema_can_be_given_to_an_editor():
    schema = json_schema()

    assert {"id", "kind", "await", "match"} <= set(schema["properties"])
    assert schema["additionalProperties"] is False
