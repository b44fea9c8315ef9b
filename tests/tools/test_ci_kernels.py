"""The list of kernels that CI builds, and the rule that tests keep to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ci_kernels
from ci_kernels import choose_cover, list_pairs, read_list, read_samples, strip_name
from time_budget import Spent, folder_of, over_budget, read_budgets

TESTS = Path(__file__).parents[1]


def test_every_entry_is_a_kernel_whose_source_can_be_made() -> None:
    entries = read_list()
    assert len({entry.name for entry in entries}) == len(entries) > 100
    for entry in entries:
        if "+" in entry.name:
            assert entry.source.kernel == entry.kernel
        assert entry.kernel.slug == strip_name(entry.name)


def test_a_cover_shows_all_pairs_and_prefers_cheap_kernels() -> None:
    pool = [kernel for expected, kernel in read_samples() if expected == "computes" and kernel.op == "gemm"]
    every = {pair for kernel in pool for pair in list_pairs(kernel)}
    alike = choose_cover(pool, lambda _: 1.0)
    assert {pair for kernel in alike for pair in list_pairs(kernel)} == every
    assert len(alike) < len(pool)
    dear = alike[0]
    other = choose_cover(pool, lambda kernel: 1e6 if kernel == dear else 1.0)
    assert other[0] != dear
    assert {pair for kernel in other for pair in list_pairs(kernel)} == every


def test_a_changed_source_must_have_the_text_once() -> None:
    (entry, *_) = [entry for entry in read_list() if "+" not in entry.name and "-fmha-" not in entry.name]
    source = entry.source
    with pytest.raises(ValueError, match="occurs 0 times"):
        ci_kernels.change_source(source.__class__(**{**vars(source), "text": "", "files": {}}), "unlooped")


@pytest.mark.slow
def test_in_the_ci_tier_another_kernel_fails_and_is_told_how_to_come_in(tmp_path: Path) -> None:
    """A pytest of its own: the tier is set once for a process."""
    slug = next(kernel.slug for _, kernel in read_samples() if kernel.slug not in {e.name for e in read_list()})
    (tmp_path / "test_it.py").write_text(
        "from built_kernels import tried\nfrom tilewright.ops import parse_kernel\n"
        f"def test_it():\n    tried(parse_kernel({slug!r}))\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "built_kernels", "--tier", "ci", str(tmp_path)]
    done = subprocess.run(
        [*command, "-o", f"pythonpath={TESTS} {TESTS.parent / 'tools'}", "--rootdir", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "is not in CI's list of kernels" in done.stdout
    assert "tools/ci_kernels.py add" in done.stdout


@pytest.mark.slow
def test_deep_tests_are_left_out_of_the_ci_tier(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import pytest\n@pytest.mark.deep\ndef test_it():\n    assert False\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "built_kernels", "--tier", "ci", str(tmp_path)]
    done = subprocess.run(
        [*command, "-o", f"pythonpath={TESTS} {TESTS.parent / 'tools'}", "--rootdir", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "1 deselected" in done.stdout, done.stdout + done.stderr


def test_a_folder_over_its_budget_or_without_one_is_told() -> None:
    folders = {"ops": Spent(1.0, 50.0, 3), "new": Spent(1.0, 2.0, 1), "cli": Spent(1.0, 5.0, 1)}
    said = over_budget(folders, {"ops": 40.0, "cli": 6.0})
    assert len(said) == 2
    assert "tests/ops used 50 CPU s, its budget is 40" in said[0]
    assert "tests/new has no budget" in said[1]


def test_every_folder_of_tests_has_a_budget() -> None:
    folders = {folder_of(str(path.relative_to(TESTS.parent))) for path in TESTS.rglob("test_*.py")}
    assert folders <= set(read_budgets())
    # All budgets used up and all kernels compiled: two cores must still end within the 90 minutes that CI has.
    assert sum(read_budgets().values()) + sum(entry.cpu_s for entry in read_list()) < 2 * 90 * 60


@pytest.mark.slow
def test_a_run_over_its_budget_fails(tmp_path: Path) -> None:
    """As a whole: the plugin, the file of budgets, the exit code."""
    folder = tmp_path / "tests" / "busy"
    folder.mkdir(parents=True)
    (folder / "test_it.py").write_text("def test_it():\n    sum(range(10**7))\n")
    program = (
        "import sys, time_budget, pytest, pathlib\n"
        f"time_budget.BUDGETS = pathlib.Path({str(tmp_path / 'budgets.toml')!r})\n"
        f"sys.exit(pytest.main(['-q', '-p', 'time_budget', '--budgets', '--times', {str(tmp_path / 't.json')!r}, "
        f"'--rootdir', {str(tmp_path)!r}, {str(folder)!r}]))\n"
    )
    codes = {}
    for budget in (0.0, 1000.0):
        (tmp_path / "budgets.toml").write_text(f"[cpu_seconds]\nbusy = {budget}\n")
        command = [sys.executable, "-c", program]
        surroundings = {**os.environ, "TILEWRIGHT_TEST_PHASES": "install until 3, checks and kernels until 34"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=TESTS, env=surroundings)
        codes[budget] = done.returncode
        assert "time per folder" in done.stdout and "slowest tests" in done.stdout, done.stdout + done.stderr
        assert "minutes: install until 3, checks and kernels until 34; the tests took 0" in done.stdout
    assert codes == {0.0: 1, 1000.0: 0}
    ((_, cpu_s),) = json.loads((tmp_path / "t.json").read_text()).values()
    assert cpu_s > 0.05
