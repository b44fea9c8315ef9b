"""Write findings to a file: as text, JSON, SARIF or an HTML page."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tilewright.base.atomic_write import write_text
from tilewright.base.errors import choose
from tilewright.emulator.sanitizer.findings import Finding, finding_to_json
from tilewright.emulator.sanitizer.report_page import make_page
from tilewright.emulator.sanitizer.sarif import make_sarif


def make_text(findings: Sequence[Finding]) -> str:
    """Return the findings as text."""
    return "\n\n".join(str(finding) for finding in findings) + "\n" if findings else "The checks found nothing.\n"


def make_json(findings: Sequence[Finding]) -> str:
    """Return the findings as a JSON document."""
    return json.dumps({"schema": 1, "findings": [finding_to_json(finding) for finding in findings]}, indent=1) + "\n"


FORMATS: dict[str, Callable[[Sequence[Finding]], str]] = {
    ".txt": make_text,
    ".json": make_json,
    ".sarif": lambda findings: json.dumps(make_sarif(findings), indent=1) + "\n",
    ".html": make_page,
}


def write_report(path: Path, findings: Sequence[Finding]) -> None:
    """Write a report; the suffix of `path` is one of `FORMATS`."""
    make = FORMATS[choose("suffix of a report", path.suffix, FORMATS)]
    write_text(path, make(findings))
