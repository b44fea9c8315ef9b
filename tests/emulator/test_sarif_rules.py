"""SARIF reports have what OASIS's specification of SARIF 2.1.0 requires; tools/check_sarif.py compares with its schema.

The numbers in the comments are sections of the specification.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tilewright.emulator.code_place import CodePlace
from tilewright.emulator.faults import Fault, MemoryFault
from tilewright.emulator.sanitizer.findings import KINDS, Finding, make_fault_finding
from tilewright.emulator.sanitizer.sarif import make_sarif
from tilewright.emulator.source_lines import SourceLine

# Characters that a reference may have (RFC 3986); all others are written with a percent sign.
REFERENCE = re.compile(r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-F]{2})+")


def make_findings() -> list[Finding]:
    places = [
        CodePlace("_Z3sumPf", 64, "ds_write_b32 v1, v2", 0, 1, 0, SourceLine("my code/süm 1.hip", 2, 9), (), "writes"),
        CodePlace("_Z3sumPf", 68, "ds_read_b32 v1, v2", 0, 0, 3, SourceLine("/a b/sum.hip", 3, 0), (), "reads"),
        CodePlace("k", 72, "s_endpgm", 0, 0, None, SourceLine("c:d.hip", 1, 1), (SourceLine("../x.hip", 8, 0),)),
    ]
    pairs = [Finding("race", "4 bytes", "gfx942", (first, second)) for first in places for second in places]
    faults = [make_fault_finding(kind("it", place), "gfx90a") for kind in Fault.__subclasses__() for place in places
              if kind.__name__ != "CheckFault"]  # fmt: skip
    bare = [Finding(name, "") for name in KINDS]
    unknown = [Finding("leak", "x", places=(CodePlace(source=SourceLine("a.hip", 0, 0)),))]
    return [*pairs, *faults, *bare, *unknown, make_fault_finding(MemoryFault("no place"), "gfx950")]


@pytest.fixture(scope="module")
def run() -> dict[str, Any]:
    """The only run of a report, after a round trip through JSON."""
    log = json.loads(json.dumps(make_sarif(make_findings())))
    assert log["version"] == "2.1.0" and "sarif-schema-2.1.0" in log["$schema"]  # 3.13.2, 3.13.3
    (found,) = log["runs"]  # 3.13.4
    return dict(found)


def walk(node: object, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every object in a document with the name of its property."""
    if isinstance(node, dict):
        yield name, node
        for key, value in node.items():
            yield from walk(value, key)
    elif isinstance(node, list):
        for value in node:
            yield from walk(value, name)


def test_tool_and_rules(run: dict[str, Any]) -> None:
    driver = run["tool"]["driver"]  # 3.14.6, 3.18.2
    assert driver["name"]  # 3.19.8
    rules = [rule["id"] for rule in driver["rules"]]  # 3.49.3
    assert all(rules) and len(set(rules)) == len(rules)
    assert all(rule["shortDescription"]["text"] for rule in driver["rules"])  # 3.49.9
    assert {result["ruleId"] for result in run["results"]} == set(rules)  # 3.27.5


def test_results_have_messages_and_known_levels(run: dict[str, Any]) -> None:
    assert len(run["results"]) == len(make_findings())
    for result in run["results"]:
        assert result["message"]["text"]  # 3.27.11, 3.11.8
        assert result["level"] in {"none", "note", "warning", "error"}  # 3.27.10
        related = [place["id"] for place in result.get("relatedLocations", ())]
        assert len(set(related)) == len(related) and all(each >= 0 for each in related)  # 3.28.2


def test_regions_count_from_1(run: dict[str, Any]) -> None:
    regions = [node for name, node in walk(run) if name == "region"]
    assert regions
    for region in regions:  # 3.30.5, 3.30.6
        assert region["startLine"] >= 1 and region.get("startColumn", 1) >= 1


def test_places_are_references(run: dict[str, Any]) -> None:
    uris = {node["uri"] for name, node in walk(run) if name == "artifactLocation"}  # 3.4.3
    assert {"my%20code/s%C3%BCm%201.hip", "file:///a%20b/sum.hip", "c%3Ad.hip", "../x.hip"} <= uris
    assert all(REFERENCE.fullmatch(uri) for uri in uris)


def test_an_empty_report_has_results() -> None:
    (empty,) = make_sarif([])["runs"]
    assert empty["results"] == []  # 3.14.23: the tool ran and found nothing
