"""Every labelled case and every real capture: what must be found is found, and nothing else at warning or above."""

import pytest

from labels import Case, all_cases, differences

CASES = all_cases()


@pytest.mark.parametrize("case", CASES, ids=[case.folder.name for case in CASES])
def test_findings_are_what_the_labels_say(case: Case, judge_files):
    judged = judge_files(*case.logs, telemetry=case.telemetry, zone=case.zone)

    assert differences(case, judged) == []


def test_there_are_cases_of_both_kinds():
    negatives = [case for case in CASES if not case.labels.get("expected_findings")]
    assert len(negatives) >= 30
    assert len(CASES) - len(negatives) >= 50
