"""A log in a container's or the journal's framing is judged like the log itself: what is silent stays silent, what is found is found."""

import functools
import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from framing import FORMATS
from labels import Case, all_cases
from sglang_watchdog.model.words import Severity
from sglang_watchdog.parse.framing import detect
from sglang_watchdog.parse.zone import Zone


def is_framed_already(case: Case) -> bool:
    """A log recorded from a container or the journal is not put into a second one."""
    return any(detect(line) in FORMATS for log in case.logs for line in content(log).splitlines())


def content(log: Path) -> bytes:
    return gzip.decompress(log.read_bytes()) if log.suffix == ".gz" else log.read_bytes()


CASES = [case for case in all_cases() if case.folder.parent.name == "cases" and not is_framed_already(case)]
NEGATIVE = [case for case in CASES if case.folder.name.startswith("neg-")]
POSITIVE = [case for case in CASES if case not in NEGATIVE]


def framed(case: Case, form: str, folder: Path) -> list[Path]:
    out = []
    for number, log in enumerate(case.logs):
        path = folder / str(number) / log.name.removesuffix(".gz")
        path.parent.mkdir()
        path.write_bytes(FORMATS[form](content(log), Zone.named(case.zone)))
        out.append(path)
    return out


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("case", NEGATIVE, ids=[case.folder.name for case in NEGATIVE])
def test_a_log_without_a_fault_has_none_in_any_framing(case: Case, form: str, judge_files, tmp_path: Path):
    judged = judge_files(*framed(case, form, tmp_path), telemetry=case.telemetry, zone=case.zone)

    assert {source.format for source in judged.sources} == {form}
    found = [one for one in judged.engine.findings.all() if one.severity is not Severity.INFO or one.topic in case.topics("forbidden_topics")]
    assert [(one.topic, one.summary) for one in found] == []


@pytest.fixture(scope="module")
def topics_of_plain(judge_files) -> Callable[[Case], set[str]]:
    """Judged once for all framings."""

    @functools.cache
    def of(folder: Path) -> frozenset[str]:
        case = next(one for one in CASES if one.folder == folder)
        return frozenset(one.topic for one in judge_files(*case.logs, telemetry=case.telemetry, zone=case.zone).engine.findings.all())

    return lambda case: set(of(case.folder))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("case", POSITIVE, ids=[case.folder.name for case in POSITIVE])
def test_a_framed_log_has_the_findings_of_the_plain_one(case: Case, form: str, judge_files, topics_of_plain, tmp_path: Path):
    judged = judge_files(*framed(case, form, tmp_path), telemetry=case.telemetry, zone=case.zone)

    assert {one.topic for one in judged.engine.findings.all()} == topics_of_plain(case)


def test_all_cases_are_taken():
    assert len(NEGATIVE) >= 18
    assert len(POSITIVE) >= 30
