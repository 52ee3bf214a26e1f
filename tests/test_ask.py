"""What `findings --watch` prints of a stream of changes."""

import argparse

import pytest

from sglang_watchdog.cli import ask


def test_watching_prints_a_change_with_its_time_and_nothing_that_stayed(capsys: pytest.CaptureFixture[str]):
    finding = {"id": "f1", "state": "firing", "severity": "warning", "server": "chat", "title": "Slow", "summary": "Slow."}
    options = argparse.Namespace(format="text")
    for at, was in (("2026-02-19T08:10:03Z", None), ("2026-02-19T08:10:09Z", "firing")):
        ask._print_change({"at": at, "was": was, "finding": finding}, options)
    printed = capsys.readouterr().out.splitlines()

    assert len(printed) == 1
    assert printed[0].startswith("2026-02-19T08:10:03Z  f1  firing")
