"""The report as JUnit XML: one test case a signature and run, so that CI shows what was judged, found and not judged."""

from xml.etree import ElementTree as Xml

from ..model.finding import Finding
from ..model.words import Answer
from .check import Report
from .report_text import describe


def render(report: Report, fail_on: str) -> str:
    suite = Xml.Element("testsuite", name="sglang-watchdog", time=f"{report.seconds:.3f}")
    found = {(finding.run, finding.signature): finding for finding in report.findings}
    failures = skipped = tests = 0
    for entry in report.coverage:
        if entry.verdict is Answer.NOT_APPLICABLE:
            continue
        tests += 1
        case = Xml.SubElement(suite, "testcase", classname=entry.topic, name=f"{entry.signature} (run {(entry.run or 'none')[:8]})")
        finding = found.pop((entry.run, entry.signature), None)
        if finding is not None:
            failures += _found(case, finding, fail_on)
        elif entry.verdict is Answer.UNKNOWN:
            skipped += 1
            Xml.SubElement(case, "skipped", message=_clean(f"{entry.because}. {entry.do}".strip()))
    for finding in found.values():
        tests += 1
        case = Xml.SubElement(suite, "testcase", classname=finding.topic, name=f"{finding.signature} ({finding.server})")
        failures += _found(case, finding, fail_on)
    suite.set("tests", str(tests))
    suite.set("failures", str(failures))
    suite.set("skipped", str(skipped))
    Xml.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(suite, encoding="unicode") + "\n"


def _found(case: Xml.Element, finding: Finding, fail_on: str) -> int:
    text = _clean("\n".join([finding.summary, *(describe(item) for item in finding.evidence), finding.remediation]))
    ranks = ("info", "warning", "critical")
    if fail_on == "never" or finding.severity.rank < ranks.index(fail_on):
        Xml.SubElement(case, "system-out").text = f"{finding.severity.value}: {text}"
        return 0
    failure = Xml.SubElement(case, "failure", type=finding.severity.value, message=_clean(finding.summary))
    failure.text = text
    return 1


def _clean(text: str) -> str:
    """XML 1.0 has no place for most control characters."""
    return "".join(c for c in text if c in "\n\t" or c.isprintable())
