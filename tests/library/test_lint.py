"""Each rule of lint refuses what it is there for, and a sound signature passes them all."""

import pytest

from sglang_watchdog.library.lint import RULES, lint
from sglang_watchdog.library.lock import lock_text, read_lock

FIRES, QUIET = "line: Using default MoE kernel config., then: firing", "{line: a, then: nothing, from: {source: x}}"
AWAIT = "{starts: Using default MoE kernel config}"
ABSENCE = "{until: ready, witness: {starts: Load weight end}, opportunity: {starts: Prefill batch}}"


def codes(folder, **changes):
    folder.good(**changes)
    loaded = folder.load(drafts=True)
    assert loaded.faults == (), "\n".join(fault.render() for fault in loaded.faults)
    return {fault.code for fault in lint(loaded, root=folder.path) if not fault.is_warning}


def test_a_sound_signature_passes_every_rule(folder):
    assert codes(folder, releases='">=0.5.10"') == set()


def test_every_rule_has_an_id_of_its_own_and_says_what_it_demands():
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert all(rule.demands for rule in RULES)


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("SIG011", {"kind": "expected"}),
        ("SIG011", {"kind": "telemetry"}),
        ("SIG011", {"await_": "{starts: Something long}"}),
        ("SIG012", {"match": "{regex: '^a.*b'}"}),
        ("SIG012", {"match": "{starts: [Using default MoE, OOM]}"}),
        ("SIG012", {"match": "{regex: '^(Using default MoE|x+)'}"}),
        ("SIG013", {"match": "{contains: default MoE kernel}"}),
        ("SIG013", {"match": "{regex: '(^Using|default) MoE kernel'}"}),
        ("SIG014", {"match": "{regex: '^.*default MoE kernel config'}"}),
        ("SIG015", {"releases": ""}),
        ("SIG016", {"match": "{regex: \"^(?:[^{]{0,80}kernel: )?cannot open 'no such thing' here\", undated: true}"}),
        ("SIG016", {"match": "{contains: \"says 'out of memory' and ends\", undated: true, anywhere: printed by the kernel}"}),
        ("SIG016", {"match": "{starts: \"Using default\\nMoE kernel config\"}"}),
        ("SIG016", {"match": "{starts: 'Receive: obj=GenerateReqInput('}"}),
        ("SIG016", {"match": "{starts: '[2026-01-02 03:04:05 TP0] Using default MoE'}"}),
        ("SIG021", {"applies_when": "['has(args.tp_size) && args.tp_size > 1']"}),
        ("SIG022", {"applies_when": "['run.sglang_version > \"0.5.10\"']"}),
        ("SIG023", {"applies_when": "['model.is_moee']"}),
        ("SIG023", {"applies_when": "['w.power < 0.5']"}),
        ("SIG024", {"applies_when": "['model.is_moe && gpu.architecture_sm.startsWith(\"9\")']"}),
        ("SIG024", {"applies_when": "['gpu.architecture_sm']"}),
        ("SIG024", {"when": "['w.n / 2 > 1.0']", "let": "{n: 'count(match, 60s)'}"}),
        ("SIG025", {"applies_when": "['load.running >= 8']"}),
        ("SIG025", {"applies_when": "['gpu.architecture_sm == \"90\"']"}),
        ("SIG025", {"applies_when": "['gpu.architecture_sm in [90, 100.0]']"}),
        ("SIG026", {"let": "{n: 'last(match.asked, 60s)'}", "when": "['w.n > 1.0']"}),
        ("SIG026", {"evidence": "{series: [power]}"}),
        ("SIG027", {"summary": "'{config_path} is missing'"}),
        ("SIG027", {"summary": "'{model.name:.0%}'"}),
        ("SIG028", {"summary": "'{model.name} is slow'"}),
        ("SIG031", {"explains": "[gpu.power-underusd]"}),
        ("SIG031", {"explains": "[moe-default]"}),
        ("SIG033", {"concludes": "{args.tp_size: 2}"}),
        ("SIG034", {"remediation": ""}),
        ("SIG036", {"summary": ""}),
        ("SIG041", {"examples": f"[{{{FIRES}, from: {{source: x}}}}]"}),
        ("SIG041", {"examples": "[{line: Something else entirely, then: nothing, from: {source: x}}]"}),
        ("SIG043", {"match": "[{starts: Using default MoE kernel config}, {starts: Never in an example}]"}),
        ("SIG044", {"examples": f"[{{{FIRES}}}, {QUIET}]"}),
        ("SIG045", {"examples": "[{then: firing, from: {source: x}}]"}),
        ("SIG045", {"examples": "[{replay: none.log, then: nothing, from: {source: x}}]"}),
    ],
)  # fmt: skip
def test_a_rule_refuses_what_it_is_there_for(folder, code, changes):
    assert code in codes(folder, **{"releases": '">=0.5.10"', **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"match": "{contains: default MoE kernel, anywhere: printed by the kernel only}"},
        {"match": "{regex: '^(?:Using|With) default MoE kernel'}"},
        {"match": "{contains: \"can't open it, it isn't there: Using\", undated: true, anywhere: x}",
         "examples": f"[{{line: \"can't open it, it isn't there: Using\", then: firing, from: {{source: x}}}}, {QUIET}]"},
        {"applies_when": "['model.is_moe && (gpu.architecture_sm >= 90 || gpu.architecture_sm == 80)']"},
        {"applies_when": "[{when: '\"x\" in [model.name]', because: named so}]"},
        {"summary": "'{ranks}[: {w.p:.0%}][ of {gpu.power_limit_w:.0f} W], {count}'", "let": "{p: 'median(power_ratio, 15s)'}"},
        {"explains": "[gpu.power-underused]"},
        {"concludes": "{run.triton_moe: active}", "applies_when": "['run.triton_moe == \"active\"']"},
    ],
)  # fmt: skip
def test_a_rule_leaves_sound_signatures_alone(folder, changes):
    assert codes(folder, **{"releases": '">=0.5.10"', **changes}) == set()


def test_a_silence_needs_a_witness_and_an_example_that_ends_in_unknown(folder):
    found = codes(folder, releases='">=0.5.10"', kind="missing", match="", await_=AWAIT,
                  absence_valid_only_if="{until: ready}")  # fmt: skip
    assert "SIG042" in found


def test_a_silence_until_a_milestone_that_does_not_exist_is_refused(folder):
    found = codes(folder, releases='">=0.5.10"', kind="missing", match="", await_=AWAIT,
                  absence_valid_only_if=ABSENCE.replace("ready", "redy"))  # fmt: skip
    assert "SIG032" in found


def test_an_invented_line_makes_no_signature_stable(folder):
    examples = f"[{{{FIRES}, from: {{synthetic: x}}}}, {QUIET}]"
    assert "SIG044" in codes(folder, releases='">=0.5.10"', status="stable", examples=examples)
    assert "SIG044" not in codes(folder, releases='">=0.5.10"', status="trial", examples=examples)


def test_a_fault_of_a_condition_is_not_hidden_by_the_one_before_it(folder):
    """`false && error` is false in CEL, so each comparison is run alone."""
    assert "SIG024" in codes(folder, releases='">=0.5.10"', applies_when="['!model.is_moe && model.name > 3']")


def test_the_revision_must_rise_when_what_is_detected_changes(folder):
    folder.good(releases='">=0.5.10"')
    lock = folder.path / "revisions.lock"
    lock.write_text(lock_text(folder.load().files, {}))
    assert codes(folder, releases='">=0.5.10"', explanation="Better words.") == set()

    assert "SIG051" in codes(folder, releases='">=0.5.11"')
    assert "SIG051" not in codes(folder, releases='">=0.5.11"', revision="2")


def test_the_lock_cannot_be_written_around_the_rule(folder):
    folder.good(releases='">=0.5.10"')
    before = lock_text(folder.load().files, {})
    (folder.path / "revisions.lock").write_text(before)
    folder.good(releases='">=0.5.11"')

    assert lock_text(folder.load().files, read_lock(folder.path)[0]) == before


def test_a_retired_id_is_not_used_again(folder):
    folder.put("retired.yaml", "retired: [{id: moe-default, because: two things in one, successor: moe-untuned}]\n")
    assert "SIG052" in codes(folder, releases='">=0.5.10"')


def test_a_line_of_the_lock_that_is_none_is_a_fault(folder):
    folder.put("revisions.lock", "moe-default one\n")
    assert "SIG051" in codes(folder, releases='">=0.5.10"')
