"""Claims about releases are checked against the releases' own sources, read from wheels and never run."""

import json
import zipfile
from textwrap import dedent

import pytest

from sglang_watchdog.library import matrix
from sglang_watchdog.library.lint import lint
from sglang_watchdog.library.upstream.index import Index
from sglang_watchdog.library.upstream.release import read_release
from sglang_watchdog.library.upstream.templates import render, samples
from sglang_watchdog.library.upstream.trees import NoSource, find_trees

OLD = """
    import logging
    logger = logging.getLogger(__name__)
    class ServerArgs:
        model_path: str
        tp_size: int = 1
        chunked: Optional[int] = None
    def get(path, E):
        logger.warning(f"Using default MoE config. Performance might be sub-optimal! Config file not found at {path}")
        warnings.warn("sizes differ")
        logger.info("took %.2f s on %d of %s", 1.0, 2, "x")
"""
NEW = """
    import logging
    logger = logging.getLogger(__name__)
    class ServerArgs:
        model_path: str
        tp_size: int = 1
        chunked: int | None = None
        backend: A[Literal["a", "b"], Arg()] = "a"
        hidden: A[int, Derived()] = 0
    def get(path, E):
        message = "Using default MoE kernel config."
        if path:
            message += f" Config file not found at {path}"
        logger.warning(message)
        raise ValueError(f"bad {E}, gone")
"""


@pytest.fixture
def wheels(tmp_path):
    folder = tmp_path / "wheels"
    folder.mkdir()
    for version, text in (("0.5.9", OLD), ("0.5.10", NEW), ("0.5.11", NEW)):
        with zipfile.ZipFile(folder / f"sglang-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr("sglang/srt/server_args.py", dedent(text))
            wheel.writestr("sglang/test/noise.py", 'print("Using default MoE kernel config in a test")')
            wheel.writestr("sglang/srt/broken.py", "def (")
    return folder


@pytest.fixture
def index(wheels):
    return Index(read_release(tree) for tree in find_trees([wheels]))


def test_releases_are_found_in_their_own_order(wheels):
    assert [tree.version for tree in find_trees([wheels])] == ["0.5.9", "0.5.10", "0.5.11"]


def test_a_path_that_is_no_release_is_refused(tmp_path):
    with pytest.raises(NoSource, match="neither a wheel"):
        find_trees([tmp_path])


def test_templates_keep_what_is_fixed_and_name_what_is_filled(wheels):
    old, new, _ = [read_release(tree) for tree in find_trees([wheels])]

    assert [(message.level, render(message.template)) for message in old.messages] == [
        ("warning", "Using default MoE config. Performance might be sub-optimal! Config file not found at {path}"),
        ("warning", "sizes differ"),
        ("info", "took {…:.2f} s on {…:d} of {…}"),
    ]
    assert [(message.level, message.name, render(message.template)) for message in new.messages] == [
        ("warning", "", "Using default MoE kernel config.[? Config file not found at {path}?]"),
        ("raise", "ValueError", "bad {E}, gone"),
    ]


def test_samples_fill_holes_by_their_formats(wheels):
    message = read_release(find_trees([wheels])[0]).messages[2]

    assert "took 3.14 s on 7 of triton" in set(samples(message.template))


def test_the_cache_gives_what_parsing_gave(wheels, tmp_path):
    tree = find_trees([wheels])[1]

    assert read_release(tree, tmp_path / "cache") == read_release(tree, tmp_path / "cache") == read_release(tree)


def test_arguments_have_first_and_last_release_and_a_type(wheels, tmp_path):
    matrix.write_fields(tmp_path, [read_release(tree) for tree in find_trees([wheels])])

    assert json.loads((tmp_path / "server_args_fields.json").read_text())["fields"] == {
        "model_path": ["0.5.9", "0.5.11", "str"],
        "tp_size": ["0.5.9", "0.5.11", "int"],
        "chunked": ["0.5.9", "0.5.11", "int"],
        "backend": ["0.5.10", "0.5.11", "str"],
    }


def table(folder, index, **changes):
    folder.good(**changes)
    loaded = folder.load()
    rows = matrix.build(loaded, index)
    matrix.write(folder.path, rows, index.releases)
    return {name: row.seen for name, row in rows.items()}, matrix.check(loaded, folder.path)


def test_a_pattern_that_every_release_of_its_range_prints_is_sound(folder, index):
    seen, faults = table(folder, index, releases='">=0.5.10"')

    assert seen == {"moe-default#1": "-++"}
    assert faults == []


def test_a_release_of_the_range_that_does_not_print_it_is_a_fault(folder, index):
    _, faults = table(folder, index, releases='">=0.5.9"')

    assert [(fault.code, fault.message) for fault in faults] == [("SIG062", "not printed by 0.5.9")]
    assert "0.5.10..0.5.11" in faults[0].help


def test_a_reworded_message_is_seen_as_one(folder, index):
    match = ('{any_of: [{starts: Using default MoE kernel config, level: warning, releases: ">=0.5.10"},'
             ' {starts: Using default MoE config, level: warning, releases: "<=0.5.9"}]}')  # fmt: skip
    seen, faults = table(folder, index, releases='">=0.5.9"', match=match)

    assert seen == {"moe-default#1": "~++", "moe-default#2": "+~~"}
    assert faults == []


def test_another_level_is_a_fault(folder, index):
    _, faults = table(folder, index, releases='">=0.5.10"', match="{starts: Using default MoE kernel config, level: info}")

    assert [fault.code for fault in faults] == ["SIG063"]


def test_releases_outside_of_the_range_that_print_it_are_told(folder, index):
    _, faults = table(folder, index, releases='"==0.5.10"')

    assert [(fault.code, fault.is_warning) for fault in faults] == [("SIG064", True)]


def test_an_example_proves_a_pattern_that_asks_for_a_value(folder, index):
    """No sample fills E=60 in; the example shows that the template can."""
    match = "{starts: Using default MoE kernel config, regex: 'not found at (?P<path>.*E=60.*)', level: warning}"
    examples = ("[{line: Using default MoE kernel config. Config file not found at /x/E=60.json, then: firing},"
                " {line: a, then: nothing}]")  # fmt: skip
    seen, _ = table(folder, index, releases='">=0.5.10"', match=match, examples=examples)

    assert seen == {"moe-default#1": "-++"}


def test_what_is_raised_is_found_behind_its_class(folder, index):
    seen, _ = table(folder, index, releases='">=0.5.10"', match="{regex: '^ValueError: bad .*, gone', level: raise}")

    assert seen == {"moe-default#1": "-++"}


def test_what_is_warned_is_found_behind_its_class(folder, index):
    """warnings.warn prints `file:line: UserWarning: text`."""
    match = "{contains: 'UserWarning: sizes differ', anywhere: printed by the server only, level: warning}"
    seen, _ = table(folder, index, releases='"==0.5.9"', match=match)

    assert seen == {"moe-default#1": "+--"}


def test_a_pattern_that_changed_since_the_table_was_made_is_a_fault(folder, index):
    table(folder, index, releases='">=0.5.10"')
    folder.good(releases='">=0.5.10"', match="{starts: Using default MoE kernel, level: warning}")

    assert [fault.code for fault in matrix.check(folder.load(), folder.path)] == ["SIG061"]


def test_a_library_without_a_table_is_told_how_to_make_one(folder):
    folder.good()
    assert "signatures matrix" in matrix.check(folder.load(), folder.path)[0].help


def test_places_show_where_each_release_says_it(folder, index):
    folder.good(releases='">=0.5.10"')

    assert matrix.places(folder.load(), index, "moe-default#1") == ["warning sglang/srt/server_args.py::get: 0.5.10..0.5.11"]


def test_arguments_of_the_table_are_facts_for_conditions(folder, wheels):
    matrix.write_fields(folder.path, [read_release(tree) for tree in find_trees([wheels])])
    folder.good(releases='">=0.5.10"', applies_when="['args.tp_size > 1 && args.backend == \"a\" && args.tp_sice > 1']")

    (fault,) = [fault for fault in lint(folder.load(), root=folder.path) if fault.code == "SIG023"]
    assert "args.tp_size" in fault.help
    assert folder.load().library.release_fields["backend"] == ("0.5.10", "0.5.11")
