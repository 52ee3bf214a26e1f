"""Each message that matters to operators is the match of one signature; what needs none stands in ignored.yaml with its reason.

`messages.yaml` holds one line of each, filled from its format string. A line may be matched by several signatures only where
the phase, the arguments or the numbers decide which of them speaks.
"""

from pathlib import Path

import pytest
import yaml

from sglang_watchdog.library.files import default_root
from sglang_watchdog.library.matching import matches
from sglang_watchdog.model.words import Kind

MESSAGES = yaml.safe_load((Path(__file__).parent / "messages.yaml").read_text())["messages"]


@pytest.fixture(scope="module")
def patterns(loaded):
    """Signature -> the patterns that a line of its own may match; awaited lines and witnesses are no matches."""
    signatures = loaded.library.signatures
    return {name: [loaded.library.patterns[one] for one in signature.match] for name, signature in signatures.items() if signature.match}


def matched_by(line, patterns, library):
    return {
        name
        for name, own in patterns.items()
        if any(matches(one, line) for one in own) and not any(matches(library.patterns[one], line) for one in library.signatures[name].unless)
    }


@pytest.mark.parametrize("message", sorted(MESSAGES))
def test_a_message_is_the_match_of_its_signature_and_of_no_other(message, patterns, library):
    assert matched_by(MESSAGES[message]["line"], patterns, library) == set(MESSAGES[message]["by"])


@pytest.mark.parametrize("message", sorted(name for name, row in MESSAGES.items() if len(row["by"]) > 1))
def test_several_signatures_share_a_message_only_where_its_circumstances_decide(message, library):
    sharing = [library.signatures[name] for name in MESSAGES[message]["by"]]
    unconditional = [one.id for one in sharing if not (one.during or one.not_during or one.when or one.applies_when)]

    assert unconditional == []


def test_what_is_ignored_has_a_reason_and_no_signature():
    ignored = yaml.safe_load((default_root() / "ignored.yaml").read_text())["ignored"]

    assert all(len(entry["because"]) > 8 for entry in ignored)
    assert {entry["message"] for entry in ignored} & set(MESSAGES) == set()


def test_no_signature_is_a_clone_of_another(library):
    """Two rules with the same patterns and the same circumstances would say one thing twice."""
    seen: dict[object, str] = {}
    for name, signature in library.signatures.items():
        if not signature.match or signature.kind is Kind.FLAG:
            continue
        own = tuple((p.starts, p.contains, p.regex) for p in (library.patterns[one] for one in signature.match))
        key = (own, signature.during, signature.not_during, tuple(map(str, signature.applies_when)), tuple(map(str, signature.when)))
        assert key not in seen, f"{name} is {seen[key]} once more"
        seen[key] = name
