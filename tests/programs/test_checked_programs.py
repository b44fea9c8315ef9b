"""`tilewright emulate --check`: findings of a program, their reports, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hip_compile import Run, compile_program

SOURCE = Path(__file__).with_name("checked.hip")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program(SOURCE, tmp_path_factory.mktemp("checked"), flags=("-gline-tables-only",))


def _find_line(text: str) -> int:
    return next(number for number, line in enumerate(SOURCE.read_text().splitlines(), 1) if text in line)


def test_findings_are_reported(emulate: Run, program: Path, tmp_path: Path) -> None:
    report = tmp_path / "found.sarif"
    done = emulate("--mode", "strict", "--check", "all", "--findings", report, program, "bugs")
    assert done.returncode == 1 and "findings" in done.stderr
    (run,) = json.loads(report.read_text())["runs"]
    lines = {
        (result["ruleId"], result["locations"][0]["physicalLocation"]["region"]["startLine"])
        for result in run["results"]
    }
    group, grid, allocated = map(_find_line, ("// race", "// unwritten, race", "hipMalloc(&total"))
    assert lines == {("race", group), ("race", grid), ("uninitialized-read", grid), ("leak", allocated)}
    assert f"{SOURCE.name}:{allocated}" in done.stderr


def test_a_correct_program_is_silent(emulate: Run, program: Path) -> None:
    done = emulate("--mode", "strict", "--check", "races,uninitialized", "--check", "leaks", program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "256 256\n", "tilewright: 0 findings\n")


def test_suppressed_findings(emulate: Run, program: Path, tmp_path: Path) -> None:
    known = tmp_path / "known.txt"
    known.write_text("race kernel=*sum_groups*\nuninitialized-read\n")
    done = emulate("--check", "races,uninitialized", "--suppress", known, program, "bugs")
    assert done.returncode == 0 and "0 findings" in done.stderr and "suppressed" in done.stderr


def test_unknown_checks_are_refused(emulate: Run, program: Path) -> None:
    done = emulate("--check", "race", program)
    assert done.returncode == 2 and "races" in done.stderr
