"""The findings in the report of a HIP program, whose processes each wrote a line."""

from __future__ import annotations

from pathlib import Path

from tilewright.base.documents import parse_json
from tilewright.emulator.sanitizer.findings import Finding, finding_from_json
from tilewright.emulator.sanitizer.suppressions import FindingList


def read_findings(report: Path) -> tuple[list[Finding], int]:
    """Return the findings of all processes, equal ones counted together, and how many were suppressed."""
    found = FindingList()
    suppressed = 0
    for line in report.read_text("utf-8").splitlines():
        document = parse_json(line)
        suppressed += document["suppressed"]
        for finding in document["findings"]:
            found.add(finding_from_json(finding))
    return found.found, suppressed
