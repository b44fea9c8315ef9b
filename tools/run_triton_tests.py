"""Run Triton's own tests on an emulated GPU, a part of them in each run, and write tables of the outcomes.

    git clone --filter=blob:none --no-checkout https://github.com/triton-lang/triton
    git -C triton sparse-checkout set python/test && git -C triton checkout f4fca2c0bc
    python tools/run_triton_tests.py triton --gpu gfx942 --seed 1 --minutes 30 --records run.jsonl --table table.md

The installed Triton runs; only the tests come from the sources. All cases of six files are ordered by the seed, first
one of each test function. A case with a record is not run again, so that runs with the same records file add up to the
whole suite. `--again failed` repeats failed cases, after a fix. With `--minutes 0`, only the tables are written.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from triton_cases import Plan
from triton_records import FAILED, SKIPPED, TIME, Run, cut_incomplete_line, format_tables, read_reasons, read_records

ROOT = Path(__file__).resolve().parents[1]
REASONS = Path(__file__).with_name("triton_reasons.toml")
FILES = ("core", "matmul", "mxfp", "conversions", "standard", "random")


def find_commit(sources: Path, given: str | None) -> str:
    """Return the commit of the tests: the given one, else the one that is checked out."""
    if given is not None:
        return given
    command = ["git", "-C", str(sources), "rev-parse", "--show-toplevel", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.split()
    if done.returncode != 0 or Path(lines[0]) != sources.resolve():
        raise SystemExit(f"{sources} is not a checkout of git: name the commit of its tests with --commit")
    return lines[1]


def run_part(plan: Plan, sources: Path) -> int:
    """Run cases until the time is over; return pytest's exit code."""
    # `-p triton` imports the installed package before pytest puts the sources' folders first in Python's path.
    plugins = ("-p", "triton", "-p", "tilewright.pytest_plugin", "-p", "triton_cases", "-p", "no:cacheprovider")
    # Not the settings of a folder around the sources.
    settings = (f"--rootdir={sources}", f"--confcutdir={sources}", "-c", os.devnull)
    quiet = ("-s", "-q", "--no-header", "--no-summary", "-W", "ignore", "--tb=short")
    chosen = (f"--triton-gpu={plan.run.gpu}", f"--triton-mode={plan.run.mode}", "--device=cuda")
    tests = [str(sources / f"python/test/unit/language/test_{name}.py") for name in FILES]
    paths = os.pathsep.join([str(ROOT / "tools"), *sys.path[1:]])
    variables = {
        "PYTHONPATH": paths,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "OMP_NUM_THREADS": "1",  # a job is one core
        "TRITON_DEFAULT_FP_FUSION": "1",  # Triton 3.9 warns if it is not set
    }
    with tempfile.TemporaryDirectory(prefix="triton-tests-") as private:
        file = Path(private, "plan.json")
        plan.write(file)
        command = [sys.executable, "-m", "pytest", *plugins, *settings, *quiet, *chosen, f"--case-plan={file}", *tests]
        return subprocess.run(command, env={**os.environ, **variables}, check=False).returncode


def make_plan(given: argparse.Namespace) -> Plan:
    """Make the plan of this run: the cases that need none are those with a record."""
    commit = find_commit(given.sources, given.commit)
    run = Run(given.gpu, given.mode, importlib.metadata.version("triton"), commit)
    cut_incomplete_line(given.records)
    mine = [record for record in read_records(given.records) if record.run == run]
    done = frozenset(record.case for record in mine if record.outcome not in given.again)
    until = time.time() + 60 * given.minutes
    return Plan(run, given.seed, until, given.jobs, given.limit_s, given.records.resolve(), done)


def main(words: Sequence[str] | None = None) -> int:
    """Run a part of the suite and write the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sources", type=Path, help="a checkout of Triton's sources")
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--mode", choices=("fast", "strict"), default="strict")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30, help="the time of this run, collecting included")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit-s", type=int, default=45, help="CPU seconds of a case")
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--reasons", type=Path, default=REASONS, help="why cases do not pass, for the table")
    parser.add_argument("--again", action="append", choices=(FAILED, TIME, SKIPPED), default=[])
    parser.add_argument("--commit", help="of the tests, if the sources are not a checkout of git")
    given = parser.parse_args(words)
    code = run_part(make_plan(given), given.sources.resolve()) if given.minutes > 0 else 0
    if given.table is not None:
        given.table.write_text(format_tables(read_records(given.records), read_reasons(given.reasons)), "utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
