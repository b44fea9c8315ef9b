"""The deep tier: its parts are all files with deep tests, and its table keeps the results of earlier runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deep_tests import Part, list_deep_files, run_part, update_page


def entry(part: str, result: str, commit: str = "0123456789") -> dict[str, object]:
    return {"part": part, "date": "2026-11-18", "commit": commit, "seconds": 90, "result": result}


def test_the_table_has_a_row_for_each_part_and_keeps_those_of_others(tmp_path: Path) -> None:
    page, names = tmp_path / "deep-tests.md", ("truth", "test_a", "test_b", "test_c")
    update_page(page, [entry("test_b", "12 passed"), entry("truth", "passed")], (*names, "test_d"))
    update_page(page, [entry("test_a", "1 failed, 3 passed"), entry("truth", "passed", "fedcba9876")], names)
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert rows == [
        "| `test_a` | 2026-11-18 | `0123456789` | 1.5 | 1 failed, 3 passed |",
        "| `test_b` | 2026-11-18 | `0123456789` | 1.5 | 12 passed |",
        "| `test_c` | – | – | – | not run |",
        "| `truth` | 2026-11-18 | `fedcba9876` | 1.5 | passed |",
    ]


def test_counts_are_read_from_pytest(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text("import pytest\ndef test_a(): pass\ndef test_b(): assert 0\ndef test_c(): pytest.skip('no')\n")
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(file))
    assert run_part(Part("it", command)) == (1, "1 failed, 1 passed, 1 skipped")
    assert run_part(Part("it", (sys.executable, "-c", "raise SystemExit(3)"))) == (3, "failed with exit code 3")
    assert run_part(Part("it", (sys.executable, "-c", ""))) == (0, "passed")
    file.write_text("def test_a(): pass\ndef test_b(): raise KeyboardInterrupt\n")
    assert run_part(Part("it", command)) == (2, "stopped with exit code 2; 1 passed")


@pytest.mark.slow
def test_files_that_do_not_contain_the_marker_are_parts() -> None:
    # The only deep tests of the first are those that need a kernel that CI does not build.
    caches = "tests/compile/test_fmha_caches.py"
    assert list_deep_files(caches, "tests/tools/test_deep_tests.py") == [caches]
