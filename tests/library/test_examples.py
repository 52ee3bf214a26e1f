"""A signature's examples are played through the real scanner and engine; what they claim is what must come out."""

import pytest

from sglang_watchdog.library.catalogue import BEGIN, END, WORDS_BEGIN, WORDS_END, catalogue, check_catalogue, topics_without, with_catalogue
from sglang_watchdog.library.examples import Player, run_examples
from sglang_watchdog.library.lint import lint
from sglang_watchdog.library.new import new_signature, write_new
from sglang_watchdog.library.stories import read_story
from sglang_watchdog.model.words import Answer, Kind

MARKED = f"# Signatures\n{WORDS_BEGIN}\n{WORDS_END}\n{BEGIN}\nold\n{END}\nmore\n"
MILESTONES = """
milestones:
  - {name: load-end, match: {starts: Load weight end}}
  - {name: ready, match: {starts: The server is fired up and ready to roll!}}
"""
SILENCE = """
id: silent
revision: 1
status: trial
kind: missing
topic: moe.triton-inactive
title: No config line
explanation: It said nothing.
releases: ">=0.5.10"
applies_when: [model.is_moe]
await: {starts: Using default MoE kernel config}
absence_valid_only_if: {until: ready, witness: {starts: Load weight end}}
examples:
  - name: it says nothing
    given: {model.is_moe: true}
    replay: |
      0s   server_args=ServerArgs(model_path='m', tp_size=1, log_level='info')
      9s   Load weight end. type=X
      20s  The server is fired up and ready to roll!
      90s  (watermark)
    then: firing
  - name: it speaks
    given: {model.is_moe: true}
    replay: |
      0s   server_args=ServerArgs(model_path='m', tp_size=1, log_level='info')
      9s   Load weight end. type=X
      12s  Using default MoE kernel config.
      20s  The server is fired up and ready to roll!
      90s  (watermark)
    then: nothing
  - name: a dense model
    given: {model.is_moe: false}
    replay: |
      0s   server_args=ServerArgs(model_path='m', tp_size=1, log_level='info')
      9s   Load weight end. type=X
      20s  The server is fired up and ready to roll!
      90s  (watermark)
    then: not-applicable
  - name: joined too late
    replay: |
      (joined-late)
      9s   Load weight end. type=X
      20s  The server is fired up and ready to roll!
      90s  (watermark)
    then: {unknown: read_since}
"""


def faults(folder):
    loaded = folder.load()
    assert loaded.errors == (), "\n".join(fault.render() for fault in loaded.faults)
    return run_examples(loaded.library, loaded.files)


def test_examples_that_hold_are_no_fault(folder):
    folder.put("milestones.yaml", MILESTONES)
    folder.good(releases='">=0.5.10"')
    folder.put("moe/silent.yaml", SILENCE)

    assert [fault.render() for fault in faults(folder)] == []


@pytest.mark.parametrize(
    ("examples", "words"),
    [
        ("[{line: Using default MoE kernel config., then: nothing}]", "was to be nothing, but it fired"),
        ("[{line: Nothing of the kind, then: firing}]", "was to fire, but the verdict is no"),
        ("[{line: Using default MoE kernel config., then: {unknown: read_since}}]", "was to be unknown, but it fired"),
        ("[{line: Nothing of the kind, then: {unknown: gap}}]", "was to be unknown (gap), but the verdict is no"),
        ("[{line: Nothing of the kind, then: not-applicable}]", "was to be not-applicable, but the verdict is no"),
    ],
)
def test_an_example_that_ends_otherwise_says_what_came_out(folder, examples, words):
    folder.good(releases='">=0.5.10"', examples=examples)

    told = [fault for fault in faults(folder) if fault.code == "SIG071"]
    assert len(told) == 1
    assert words in told[0].message
    assert told[0].line > 0


def test_captures_are_compared(folder):
    match = "{regex: '^Using default MoE kernel config. E=(?P<experts>\\d+)', level: warning}"
    line = "line: Using default MoE kernel config. E=60"
    folder.good(releases='">=0.5.10"', match=match, examples=f'[{{{line}, then: firing, captures: {{experts: "60"}}}}]')
    assert faults(folder) == []

    folder.good(releases='">=0.5.10"', match=match, examples=f'[{{{line}, then: firing, captures: {{experts: "61"}}}}]')
    assert "was to be captured as `61`, but it was `60`" in faults(folder)[0].message


def test_given_facts_reach_the_engine(folder):
    quiet = "{line: Using default MoE kernel config., given: {args.tp_size: 1}, then: not-applicable}"
    fires = "{line: Using default MoE kernel config., given: {args.tp_size: 2}, then: firing}"
    folder.good(releases='">=0.5.10"', applies_when="['args.tp_size > 1']", examples=f"[{quiet}, {fires}]")

    assert [fault.render() for fault in faults(folder)] == []


def test_the_release_of_an_example_reaches_the_engine(folder):
    """A silence says nothing about a release whose sources were not read."""
    folder.put("milestones.yaml", MILESTONES)
    folder.put("moe/silent.yaml", SILENCE.replace("  - name: it says nothing\n", "  - name: it says nothing\n    release: 0.4.1\n"))

    (fault,) = faults(folder)
    assert "was to fire, but the verdict is unknown (releases)" in fault.message


def test_a_pattern_that_the_scanner_never_reports_is_told(folder):
    """Text without SGLang's prefix is matched by undated patterns only; the plain matcher of lint cannot know."""
    folder.good(releases='">=0.5.10"', examples='[{line: "| Using default MoE kernel config.", then: firing}]')

    assert {fault.code for fault in faults(folder)} == {"SIG071", "SIG074"}


def test_a_line_that_only_undated_patterns_match_stands_in_the_log_as_it_is(folder):
    folder.good(match="{starts: 'torch.OutOfMemoryError: CUDA out of memory', undated: true}",
                examples="[{line: 'torch.OutOfMemoryError: CUDA out of memory. Tried', then: firing}]")  # fmt: skip

    assert faults(folder) == []


def test_a_kernel_line_in_brackets_is_no_message_of_sglang(folder):
    folder.good(match="{starts: '[ 12.5] NVRM: Xid', undated: true}",
                examples="[{line: '[ 12.5] NVRM: Xid (PCI:0000:1b:00): 79', then: firing}]")  # fmt: skip

    assert faults(folder) == []


def test_a_story_that_cannot_be_read_is_a_fault_of_its_example(folder):
    folder.good(examples='[{replay: "1s (sampel gpu=0)\\n", then: firing}]')

    assert "SIG072" in {fault.code for fault in faults(folder)}


def test_a_line_with_a_stamp_of_its_own_begins_the_run_there(folder):
    """A run that began months before would be judged second by second up to the line."""
    folder.good(releases='">=0.5.10"')
    player = Player(folder.load().library)

    played = player.play(read_story("0s [2026-02-04 11:30:00] Using default MoE kernel config."), release="0.5.11")
    assert played.verdicts["moe-default"][0] is Answer.YES


def test_lines_that_lie_months_apart_are_told(folder):
    """Every second between them would be judged."""
    story = r"0s server_args=ServerArgs(tp_size=1)\n1s [2026-02-04 11:30:00] Using default MoE kernel config.\n"
    folder.good(examples=f'[{{replay: "{story}", then: firing}}]')

    (fault,) = faults(folder)
    assert (fault.code, fault.is_warning) == ("SIG075", True)
    assert "118 days apart" in fault.message


def test_flags_are_played_by_whoever_supplies_the_runner(folder):
    flag = (
        "{field: tp_size, effect: splits the model, source: '0.5.10, server_args.py::ServerArgs',"
        " examples: [{command: --tp-size 2, release: 0.5.10, verdict: acts}]}"
    )
    folder.good(kind="flag", match="", flag=flag, examples="")
    loaded = folder.load()
    assert loaded.errors == ()

    assert run_examples(loaded.library, loaded.files) == []
    (fault,) = run_examples(loaded.library, loaded.files, flag_runner=lambda file, index: f"example {index} is dead")
    assert fault.message == "example 0 is dead"
    assert fault.line > 0


def test_the_catalogue_in_the_readme_follows_the_files(folder):
    folder.good()
    loaded = folder.load()
    (folder.path / "README.md").write_text(with_catalogue(MARKED, catalogue(loaded)))
    assert check_catalogue(loaded, folder.path) == []

    folder.good(title="Another title")
    assert check_catalogue(folder.load(), folder.path)[0].code == "SIG081"


def test_a_readme_without_marks_is_a_fault(folder):
    (folder.path / "README.md").write_text("# Signatures\n")
    assert "needs the lines" in check_catalogue(folder.load(), folder.path)[0].message


def test_topics_that_nobody_names_are_listed(folder):
    folder.good()
    assert topics_without(folder.load(), ["crash.scheduler"]) == ["moe.triton-inactive", "gpu.power-underused"]


@pytest.mark.parametrize("kind", [Kind.FORBIDDEN, Kind.MISSING, Kind.EXPECTED, Kind.TELEMETRY])
def test_a_new_signature_loads_as_it_is(folder, kind):
    text = new_signature("my-first", kind, "moe.triton-untuned", ("0.5.10", "0.5.12"))
    path = write_new(folder.path, "moe", "my-first", text)

    loaded = folder.load(drafts=True)
    assert [fault.render() for fault in loaded.faults] == []
    assert loaded.library.signatures["my-first"].kind is kind
    with pytest.raises(FileExistsError, match=path.name):
        write_new(folder.path, "gemm", "my-first", text)


@pytest.mark.parametrize("kind", [Kind.FORBIDDEN, Kind.MISSING, Kind.TELEMETRY])
def test_lint_refuses_a_new_file_until_it_is_filled_in(folder, kind):
    write_new(folder.path, "moe", "my-first", new_signature("my-first", kind, "moe.triton-untuned", ("0.5.10",) * 2))

    blank = [fault.excerpt.strip() for fault in lint(folder.load(drafts=True), root=folder.path) if fault.code == "SIG035"]
    assert len(blank) == (3 if kind is Kind.TELEMETRY else 4)


def test_a_new_forbidden_signature_passes_its_own_examples(folder):
    write_new(folder.path, "moe", "my-first", new_signature("my-first", Kind.FORBIDDEN, "moe.triton-untuned", ("0.5.10",) * 2))
    loaded = folder.load(drafts=True)

    assert [fault.render() for fault in run_examples(loaded.library, loaded.files)] == []
