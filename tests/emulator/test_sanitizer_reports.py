"""Findings as text, JSON, SARIF and HTML, and findings that are suppressed."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from tilewright.base.errors import FileFormatError, UnknownValueError
from tilewright.emulator.code_place import CodePlace
from tilewright.emulator.faults import MemoryFault
from tilewright.emulator.memory import Memory
from tilewright.emulator.sanitizer.checks import CHECKS, LAUNCH_CHECKS, parse_checks
from tilewright.emulator.sanitizer.findings import (
    CheckFault,
    Finding,
    finding_from_json,
    finding_to_json,
    make_fault_finding,
)
from tilewright.emulator.sanitizer.native_findings import is_expanded_atomic
from tilewright.emulator.sanitizer.reports import write_report
from tilewright.emulator.sanitizer.suppressions import FindingList, Suppression, read_suppressions
from tilewright.emulator.source_lines import SourceLine


def _make_race(file: str = "sum.hip") -> Finding:
    places = (
        CodePlace("sum", 0x1B54, "ds_write_b32 v1, v2", 0, 1, 0, SourceLine(file, 2, 9), (), "writes"),
        CodePlace(
            "sum", 0x1B60, "ds_read_b32 v1, v2", 0, 0, 63, SourceLine(file, 3, 4), (SourceLine(file, 5, 0),),
            "reads before",
        ),
    )  # fmt: skip
    return Finding("race", "4 bytes at 0x100 of the LDS <x>", "gfx942", places, "Add a barrier.", 7)


def test_text_has_both_places() -> None:
    assert str(_make_race()).splitlines() == [
        "race: 4 bytes at 0x100 of the LDS <x>",
        "  sum.hip:2:9: work-group 0, wave 1, lane 0, writes",
        "    ds_write_b32 v1, v2 (at 0x1b54)",
        "  sum.hip:3:4: work-group 0, wave 0, lane 63, reads before",
        "    inlined at sum.hip:5",
        "    ds_read_b32 v1, v2 (at 0x1b60)",
        "  kernel: sum, found 7 times",
        "  Add a barrier.",
    ]


def test_without_lines_the_flag_is_named() -> None:
    assert "-gline-tables-only" in str(Finding("race", "x", has_lines=False))


def test_json_gives_the_same_finding() -> None:
    finding = _make_race()
    assert finding_from_json(json.loads(json.dumps(finding_to_json(finding)))) == finding


def test_files(tmp_path: Path) -> None:
    source = tmp_path / "sum.hip"
    source.write_text("one\n<two>\nthree\n")
    findings = [_make_race(str(source)), Finding("leak", "4 bytes")]
    for suffix in ("txt", "json", "sarif", "html"):
        write_report(tmp_path / f"found.{suffix}", findings)
    assert (tmp_path / "found.txt").read_text() == f"{findings[0]}\n\n{findings[1]}\n"
    assert len(json.loads((tmp_path / "found.json").read_text())["findings"]) == 2
    (run,) = json.loads((tmp_path / "found.sarif").read_text())["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["race", "leak"]
    race, leak = run["results"]
    assert race["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": source.as_uri()},
        "region": {"startLine": 2, "startColumn": 9},
    }
    assert [place["message"]["text"] for place in race["relatedLocations"]] == ["reads before"]
    assert "locations" not in leak
    page = (tmp_path / "found.html").read_text()
    assert "<b>    2  &lt;two&gt;</b>" in page and "LDS &lt;x&gt;" in page
    with pytest.raises(UnknownValueError, match=r"\.sarif"):
        write_report(tmp_path / "found.pdf", findings)


def test_a_path_below_the_folder_is_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_report(tmp_path / "a.sarif", [_make_race(str(tmp_path / "src" / "sum.hip"))])
    (run,) = json.loads((tmp_path / "a.sarif").read_text())["runs"]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "src/sum.hip"


@pytest.mark.parametrize(
    ("line", "suppressed"),
    [
        ("race", True),
        ("race kernel=su*", True),
        ("race source=*sum.hip:3:*  # the second place counts, too", True),
        ("race kernel=other", False),
        ("leak", False),
        ("# race", False),
    ],
)
def test_suppressions(tmp_path: Path, line: str, suppressed: bool) -> None:
    file = tmp_path / "known.txt"
    file.write_text(f"{line}\n")
    found = FindingList(read_suppressions(file))
    assert found.add(_make_race()) is not suppressed
    assert (len(found.found), found.suppressed) == ((0, 7) if suppressed else (1, 0))


def test_a_wrong_line_of_suppressions_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "known.txt"
    file.write_text("race\nrace file=x\n")
    with pytest.raises(FileFormatError, match=r"line 2.*kernel=PATTERN"):
        read_suppressions(file)
    assert Suppression("race").matches(_make_race())


def test_equal_findings_are_counted_together() -> None:
    found = FindingList()
    assert [found.add(_make_race()), found.add(_make_race())] == [True, False]
    assert [finding.count for finding in found.found] == [14]


def test_checks_are_words() -> None:
    assert parse_checks("races, barriers") == {"races", "barriers"}
    assert parse_checks(["races", "progress,barriers"]) == {"races", "barriers", "progress"}
    assert parse_checks("all") == set(LAUNCH_CHECKS) and parse_checks("all", CHECKS) == set(CHECKS)
    assert parse_checks("") == parse_checks(()) == frozenset()
    with pytest.raises(UnknownValueError, match="races"):
        parse_checks("race")
    with pytest.raises(UnknownValueError):
        parse_checks("leaks")


def test_a_fault_is_a_finding() -> None:
    place = CodePlace("k", 64, "global_store", 1, 2, 3, SourceLine("a.hip", 3, 1))
    finding = make_fault_finding(MemoryFault("4 bytes", place), "gfx90a")
    assert (finding.name, finding.source, finding.kernel) == ("memory-fault", SourceLine("a.hip", 3, 1), "k")
    assert "source: a.hip:3:1" in str(MemoryFault("4 bytes", place))
    fault = CheckFault([finding, finding])
    assert pickle.loads(pickle.dumps(fault)).findings == (finding, finding)
    assert "and 1 more" in str(fault)


def test_memory_knows_what_was_written() -> None:
    memory = Memory(1 << 20)
    old = memory.allocate(8)
    memory.track_writes()
    memory.record_sites(lambda: "main.hip:7")
    new, copy = memory.allocate(8), memory.allocate(8)
    memory.write(new, b"ab")
    memory.fill(new + 4, 1, 1)
    memory.mark_copied(copy, new, 8)
    written = [shadow[1] if shadow is not None else None for shadow in memory.list_shadows()]
    assert written[0] is None
    assert [list(octets) for octets in written[1:] if octets is not None] == [[1, 1, 0, 0, 1, 0, 0, 0]] * 2
    assert "allocated at main.hip:7" in memory.describe_address(new) and "allocated" not in memory.describe_address(old)
    memory.forget_writes()
    assert [shadow for shadow in memory.list_shadows() if shadow is not None and shadow[1] is not None] == []


@pytest.mark.parametrize(
    ("action", "instruction", "column", "expanded"),
    [
        ("reads", "s_load_dword s4, s[8:9], 0x0", 9, True),
        ("reads", "s_load_dword s4, s[8:9], 0x0", 10, False),
        ("writes", "global_store_dword v0, v1, s[8:9]", 9, False),
    ],
)
def test_the_load_of_an_expanded_atomic_is_no_race(action: str, instruction: str, column: int, expanded: bool) -> None:
    update = CodePlace(
        instruction="global_atomic_cmpswap v0, v3, v[0:1], s[8:9] glc",
        source=SourceLine("a.py", 25, 9),
        action="updates atomically before",
    )
    other = CodePlace(instruction=instruction, source=SourceLine("a.py", 25, column), action=action)
    assert is_expanded_atomic(Finding("race", "x", places=(other, update))) is expanded
    assert not is_expanded_atomic(Finding("leak", "x"))
