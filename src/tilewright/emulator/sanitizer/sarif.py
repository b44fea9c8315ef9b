"""Findings as SARIF 2.1.0, the format that code review tools read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tilewright import __version__
from tilewright.emulator import faults
from tilewright.emulator.code_place import CodePlace
from tilewright.emulator.demangled_names import demangle
from tilewright.emulator.sanitizer.findings import KINDS, Finding
from tilewright.emulator.source_lines import SourceLine

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"


def make_sarif(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the SARIF document of findings. Paths below the current folder are relative to it."""
    driver = {
        "name": "tilewright emulate",
        "version": __version__,
        "rules": [{"id": name, "shortDescription": {"text": text}} for name, text in list_rules(findings).items()],
    }
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": [_make_result(finding) for finding in findings]}],
    }


def list_rules(findings: Sequence[Finding]) -> dict[str, str]:
    """Return name and meaning of each kind of finding that occurs."""
    known = {**KINDS, **{kind.name: kind.__doc__ or "" for kind in faults.Fault.__subclasses__()}}
    return {name: known.get(name, name) for name in dict.fromkeys(finding.name for finding in findings)}


def _make_result(finding: Finding) -> dict[str, Any]:
    first, *others = finding.places or (CodePlace(),)
    result: dict[str, Any] = {
        "ruleId": finding.name,
        "level": "error",
        "message": {"text": str(finding)},
        "properties": {
            "gpu": finding.gpu,
            "kernel": finding.kernel,
            "kernelName": demangle(finding.kernel),
            "count": finding.count,
        },
    }
    if first.source is not None:
        result["locations"] = [_make_location(first.source)]
    related = [
        {**_make_location(line), "id": number, "message": {"text": text}}
        for number, (line, text) in enumerate(_list_related(first, others), 1)
    ]
    if related:
        result["relatedLocations"] = related
    return result


def _list_related(first: CodePlace, others: Sequence[CodePlace]) -> list[tuple[SourceLine, str]]:
    calls = [(line, "inlined here") for line in first.calls]
    return [*calls, *((place.source, place.action) for place in others if place.source is not None)]


def _make_location(line: SourceLine) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": _make_uri(line.file)}}
    if line.line:  # SARIF counts from 1; 0 means that the compiler has no line
        place["region"] = {"startLine": line.line, **({"startColumn": line.column} if line.column else {})}
    return {"physicalLocation": place}


def _make_uri(file: str) -> str:
    path, here = Path(file), Path.cwd()
    if path.is_absolute() and not path.is_relative_to(here):
        return path.as_uri()
    return quote((path.relative_to(here) if path.is_absolute() else path).as_posix())
