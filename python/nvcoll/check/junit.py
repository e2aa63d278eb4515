"""Verdicts as JUnit XML, which CI systems show: a test case per log."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from nvcoll.check.verdict import CANNOT_TELL, HEALTHY, Verdict
from nvcoll.text.formatting import NOT_IN_XML


def to_junit(verdicts: Sequence[Verdict]) -> str:
    """Returns the verdicts as XML: a failure is suspicious or sick, "cannot tell" is an error."""
    unknown = sum(one.verdict == CANNOT_TELL for one in verdicts)
    failed = sum(one.verdict != HEALTHY for one in verdicts) - unknown
    counts = {"tests": str(len(verdicts)), "failures": str(failed), "errors": str(unknown)}
    suites = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "nvcoll check", **counts})
    for one in verdicts:
        names = one.log.collective or "unknown collective", one.machine or "unknown machine"
        labels = {"classname": " on ".join(names), "name": NOT_IN_XML.sub("\ufffd", one.log.name)}
        case = ElementTree.SubElement(suite, "testcase", labels)
        if one.verdict != HEALTHY:
            kind = "error" if one.verdict == CANNOT_TELL else "failure"
            found = ElementTree.SubElement(case, kind, {"message": one.verdict, "type": one.verdict})
            found.text = NOT_IN_XML.sub("\ufffd", "\n".join(one.reasons))
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"
