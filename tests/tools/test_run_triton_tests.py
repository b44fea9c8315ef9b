"""The tool that runs Triton's own tests in parts: order, limits, records and tables. The cases here are made up."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from run_triton_tests import REASONS, find_commit
from triton_cases import Plan
from triton_records import (
    FAILED,
    PASSED,
    SKIPPED,
    TIME,
    Reason,
    Record,
    Run,
    cut_incomplete_line,
    format_tables,
    order_cases,
    read_reasons,
    read_records,
)

ROOT = Path(__file__).parents[2]
RUN = Run("gfx942", "strict", "3.9.0", "abc")
CASES = """
import os
import pytest

@pytest.mark.parametrize("number", range(3))
def test_good(number):
    assert number < 3

def test_skipped():
    pytest.skip("not for this GPU")

def test_wrong():
    raise ValueError("first line\\nsecond line")

def test_endless():
    while True:
        pass

def test_crash():
    os.abort()

@pytest.mark.xfail(reason="known")
def test_expected():
    assert False
"""


def run_cases(folder: Path, records: Path, *, done: frozenset[str] = frozenset(), minutes: float = 5) -> str:
    """Run the made-up cases in a pytest of their own, with a second of CPU time for each."""
    (folder / "test_made_up.py").write_text(CASES)
    plan = Plan(RUN, seed=1, until=time.time() + 60 * minutes, jobs=2, limit_s=1, records=records, done=done)
    plan.write(folder / "plan.json")
    options = ("-p", "triton_cases", "-p", "no:cacheprovider", "-s", "-q", "--no-summary", "-c", os.devnull)
    command = [sys.executable, "-m", "pytest", *options, f"--rootdir={folder}", f"--case-plan={folder / 'plan.json'}"]
    variables = {"PYTHONPATH": str(ROOT / "tools"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = subprocess.run(
        [*command, str(folder)], env={**os.environ, **variables}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode in (0, pytest.ExitCode.NO_TESTS_COLLECTED), ended.stdout + ended.stderr
    return ended.stdout


def test_each_case_is_recorded_once_and_a_case_over_its_limit_ends_alone(tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    assert "gfx942: 0 cases run, 8 of 8 left" in run_cases(tmp_path, records, minutes=0)
    assert "gfx942: 8 cases run, 0 of 8 left" in run_cases(tmp_path, records)
    found = {record.case.partition("::")[2]: record for record in read_records(records)}
    assert {case: record.outcome for case, record in found.items()} == {
        **{f"test_good[{number}]": PASSED for number in range(3)},
        "test_skipped": SKIPPED,
        "test_expected": SKIPPED,
        "test_wrong": FAILED,
        "test_crash": FAILED,
        "test_endless": TIME,
    }
    assert found["test_wrong"].error == "ValueError: first line"
    assert found["test_wrong"].detail == "ValueError: first line\nsecond line"
    assert found["test_skipped"].error == "not for this GPU"
    assert found["test_expected"].error == "expected to fail: known"
    assert found["test_crash"].error == "the process ended with -6"
    assert 1 <= found["test_endless"].cpu_s < 3
    left = frozenset(record.case for record in found.values() if record.outcome != PASSED)
    assert "gfx942: 3 cases run, 0 of 8 left" in run_cases(tmp_path, records, done=left)
    assert len(records.read_text().splitlines()) == 11
    assert len(read_records(records)) == 8


def test_the_order_begins_with_each_function_and_depends_on_the_seed_only() -> None:
    cases = [f"test_a.py::test_{name}[{number}]" for name in "xyz" for number in range(20)]
    ordered = order_cases(cases, seed=1)
    assert sorted(ordered) == sorted(cases)
    assert {case.partition("[")[0] for case in ordered[:3]} == {case.partition("[")[0] for case in cases}
    assert ordered == order_cases(reversed(cases), seed=1) != order_cases(cases, seed=2)


def test_an_incomplete_record_of_a_killed_run_is_cut(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    cut_incomplete_line(file)
    whole = Record(RUN, "a.py::test_a", PASSED, 1.5).to_json() + "\n"
    file.write_text(whole + whole[:30])
    assert [record.case for record in read_records(file)] == ["a.py::test_a"]
    cut_incomplete_line(file)
    assert file.read_text() == whole


def test_the_tables_count_outcomes_and_give_a_reason_for_all_that_do_not_pass() -> None:
    other = Run("gfx950", "strict", "3.9.0", "abc")
    records = [
        Record(RUN, "t/test_core.py::test_a[1]", PASSED, 3600),
        Record(RUN, "t/test_core.py::test_b[1]", FAILED, 1, "E: off", "E: off\nby 2 of 9"),
        Record(RUN, "t/test_core.py::test_b[2]", FAILED, 1, "E: off", "E: off\nby 2 of 9"),
        Record(other, "t/test_core.py::test_c[1|2]", FAILED, 1, "a | b"),
        Record(other, "t/test_mxfp.py::test_d", TIME, 45, "more than 45 s of CPU time"),
        Record(other, "t/test_mxfp.py::test_e", SKIPPED, 0, "not here"),
    ]
    reasons = [Reason("test_b", "by 2", "rounding"), Reason("test_b", "", "never"), Reason("", "CPU", "time")]
    outcomes, files, failures, skips = format_tables(records, reasons).split("\n\n")
    assert "| cases | 3 | 3 |\n| passed | 1 | 0 |\n| skipped by Triton | 0 | 1 |\n| failed | 2 | 1 |" in outcomes
    assert outcomes.endswith("| exceeded the time | 0 | 1 |\n| CPU hours | 1.00 | 0.01 |")
    assert "| `test_core` | 1 / 0 / 2 | 0 / 0 / 1 |\n| `test_mxfp` | 0 / 0 / 0 | 0 / 1 / 1 |" in files
    assert failures.splitlines()[2:] == [
        "| `test_b` (2) | 2 | 0 | rounding |",
        "| `test_c[1\\|2]` | 0 | 1 | not settled: a \\| b |",
        "| `test_d` | 0 | 1 | time |",
    ]
    assert skips.splitlines()[2:] == ["| `test_e` | 0 | 1 | not here |"]


def test_the_listed_reasons_are_regular_expressions_with_a_text() -> None:
    reasons = read_reasons(REASONS)
    for reason in reasons:
        reason.explains(Record(RUN, "a.py::test_a", FAILED, 1, "error"))
        assert reason.text and (reason.case or reason.error)


def test_sources_that_are_no_checkout_need_the_commit(tmp_path: Path) -> None:
    assert find_commit(tmp_path, "abc") == "abc"
    with pytest.raises(SystemExit, match="name the commit of its tests with --commit"):
        find_commit(tmp_path, None)
