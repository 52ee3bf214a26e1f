"""The table read from the wheels and the files that people wrote agree, in every release that both speak of."""

from collections.abc import Iterator
from itertools import pairwise

from sglang_watchdog.library.flag_reads import NEVER, READ
from sglang_watchdog.library.flag_table import FlagTable
from sglang_watchdog.triage.judge import known_fields
from sglang_watchdog.triage.knowledge import FlagKnowledge, Knowledge, Rule


def pairs(knowledge: Knowledge) -> Iterator[tuple[FlagKnowledge, str]]:
    """Each described flag with each release in which it is declared and described."""
    for known in knowledge.flags.values():
        for release in knowledge.table.releases:
            if known.covers(release) and knowledge.table.declares(known.field, release):
                yield known, release


def options_named(text: str) -> list[str]:
    return [word.split("=")[0] for word in text.split() if word.startswith("--")]


def speaking(rules: tuple[Rule, ...], release: str) -> list[Rule]:
    return [rule for rule in rules if rule.speaks_for(release)]


def test_the_table_covers_the_releases_that_count(knowledge: Knowledge):
    assert len(knowledge.table.releases) >= 12
    assert {"0.5.9", "0.5.12.post1", "0.5.20", "0.5.23"} <= set(knowledge.table.releases)


def test_every_described_flag_is_declared_somewhere(knowledge: Knowledge):
    declared = {known.field for known, _ in pairs(knowledge)}

    assert set(knowledge.flags) - declared == set()


def test_every_described_flag_goes_by_an_option_that_sets_it(knowledge: Knowledge):
    options: dict[str, set[str]] = {}
    for known, release in pairs(knowledge):
        options.setdefault(known.field, set()).update(knowledge.table.options_of(known.field, release))

    assert {name: known.flag for name, known in knowledge.flags.items() if known.flag not in options[name]} == {}


def test_what_we_call_dead_nobody_reads(knowledge: Knowledge):
    wrong = [
        (known.field, release)
        for known, release in pairs(knowledge)
        if speaking(known.dead, release) and knowledge.table.read_status(known.field, release) == READ
    ]

    assert wrong == []


def test_what_nobody_reads_we_call_dead(knowledge: Knowledge):
    wrong = [
        (known.field, release)
        for known, release in pairs(knowledge)
        if knowledge.table.read_status(known.field, release) == NEVER and not speaking(known.dead, release)
    ]

    assert wrong == []


def test_what_the_server_sets_is_a_value_it_accepts(knowledge: Knowledge):
    wrong = []
    for known, release in pairs(knowledge):
        stores = [
            option
            for text in knowledge.table.options_of(known.field, release)
            if (option := knowledge.table.option(text, release)) and option.action == "store"
        ]
        for rule in speaking((*known.automatic, *known.overrides), release):
            if rule.becomes is None and isinstance(rule.value, str) and any(one.choices is not None and rule.value not in one.choices for one in stores):
                wrong.append((known.field, release, rule.value))

    assert wrong == []


def test_what_we_advise_exists_in_that_release(knowledge: Knowledge):
    wrong = []
    for known, release in pairs(knowledge):
        advised = [rule.option for rule in speaking(known.helps, release)] + [rule.to for rule in speaking(known.deprecated, release)]
        wrong += [(known.field, release, name) for text in advised for name in options_named(text) if name not in knowledge.table.options_at(release)]

    assert wrong == []


def test_every_successor_is_an_option_of_some_release(knowledge: Knowledge):
    named = [name for known in knowledge.flags.values() for name in options_named(known.renamed_to)]

    assert [name for name in named if not knowledge.table.option_releases(name)] == []


def test_every_flag_of_the_last_release_is_described_or_counted(knowledge: Knowledge):
    last = knowledge.table.releases[-1]
    described, undescribed = known_fields(knowledge, last)
    settable = {option.field for option in knowledge.table.options_at(last).values() if knowledge.table.declares(option.field, last)}

    assert set(described) | set(undescribed) == settable
    assert not set(described) & set(undescribed)
    assert len(described) >= 140


def test_the_table_is_written_with_ranges_that_were_read(knowledge: Knowledge):
    """A run of releases begins and ends at a sampled one, and runs of one name do not overlap."""
    table: FlagTable = knowledge.table
    position = {release: index for index, release in enumerate(table.releases)}
    for name, runs in [*((name, record[key]) for name, record in table.fields.items() for key in ("default", "read")), *table.options.items()]:
        ends = [(position[first], position[last]) for first, last, _ in runs]
        assert all(first <= last for first, last in ends), name
        assert all(one[1] < two[0] for one, two in pairwise(ends)), name
