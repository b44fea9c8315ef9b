"""Run the checks that take too long for CI: tests marked `deep`, and the tables of truth, verified and mutations.

The checks are split into parts. A part that passed is not run again while the sources stay the same, so you can stop a
run at any time and continue later. `--list` prints the parts, `--part NAME` runs one of them even if it passed. Each
part's last result is in a table, with its date and commit.

    python tools/deep_tests.py --jobs 2 --out docs/deep-tests.md
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DONE = ROOT / "build" / "deep_tests.jsonl"
# The outcome of a part depends on these. Documents are excluded: parts write some of them.
SOURCES = ("src", "tests", "research", "tools", "examples", "pyproject.toml")
PAGE_HEAD = """\
# Deep tests

Written by `tools/deep_tests.py`. CI leaves out the checks that take too long for each change. They are split into
parts: one for each test file, and one for each table of [truth](truth.md), [verified kernels](verified.md) and
[mutations](mutations.md), which have dates of their own. You see the last run of each part, the commit that it ran on,
and its result.

| part | date | commit | minutes | result |
|---|---|---|---|---|
"""
_ROW = re.compile(r"\| `(?P<part>\w+)` \|.*")
# The last line of pytest's output, such as `12 passed, 1 skipped in 3.21s (0:00:03)`.
_SUMMARY = re.compile(r"(?P<counts>\d+ \w+(, \d+ \w+)*)(, \d+ warnings?)? in [\d.]+s")
# pytest's exit code if all tests ran and some failed. It has others if it was interrupted, and prints counts, too.
_TESTS_FAILED = 1


@dataclass(frozen=True)
class Part:
    """A command that takes minutes to hours, and that you can stop at any time."""

    name: str
    command: tuple[str, ...]


def list_deep_files(*paths: str) -> list[str]:
    """Return the files among `paths` (default: all) with deep tests.

    pytest must find them: some files mark only those tests that need a kernel that CI does not build.
    """
    command = (sys.executable, "-m", "pytest", "-q", "-m", "deep", "--collect-only", "-p", "no:cacheprovider", *paths)
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"pytest cannot collect the tests:\n{done.stdout}")
    return sorted({line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line})


def list_parts(jobs: int) -> list[Part]:
    """List a part for each test file with deep tests, then the tables."""
    pytest = (sys.executable, "-m", "pytest", "-q", "-m", "deep", "-n", str(jobs), "--dist", "worksteal")
    tests = [Part(Path(file).stem, (*pytest, file)) for file in list_deep_files()]
    tables = [Part(name, ("make", name, f"JOBS={jobs}")) for name in ("truth", "verified", "mutations")]
    return [*tests, *tables]


def digest_sources() -> str:
    """Return git's digest of the sources in the work tree."""
    stash = subprocess.run(["git", "stash", "create"], cwd=ROOT, capture_output=True, text=True, check=True)
    tree = stash.stdout.strip() or "HEAD"
    command = ["git", "ls-tree", tree, "--", *SOURCES]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = subprocess.run(["git", "hash-object", "--stdin"], input=listed, capture_output=True, text=True, check=True)
    return found.stdout.strip()


def read_passed(sources: str) -> set[str]:
    lines = DONE.read_text(encoding="utf-8").splitlines() if DONE.exists() else []
    entries = [json.loads(line) for line in lines]
    return {entry["part"] for entry in entries if entry["sources"] == sources and entry["exit"] == 0}


def run_parts(wanted: Sequence[Part], names: Iterable[str], sources: str, out: Path | None) -> bool:
    """Run parts one after another, and update the table of all `names` after each. Return whether all passed."""
    all_passed = True
    DONE.parent.mkdir(exist_ok=True)
    for part in wanted:
        print(f"== {part.name}", flush=True)
        began = time.monotonic()
        code, result = run_part(part)
        entry = {
            "part": part.name,
            "sources": sources,
            "exit": code,
            "seconds": round(time.monotonic() - began),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "commit": read_commit(),
            "result": result,
        }
        with DONE.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")
        if out is not None:
            update_page(out, [entry], names)
        all_passed &= code == 0
    return all_passed


def run_part(part: Part) -> tuple[int, str]:
    """Run a part and print its output. Return its exit code and pytest's counts, or whether the command passed."""
    counts = ""
    with subprocess.Popen(part.command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout is not None
        for line in run.stdout:
            print(line, end="", flush=True)
            if found := _SUMMARY.search(line):
                counts = found["counts"]
    if counts and run.returncode not in (0, _TESTS_FAILED):
        return run.returncode, f"stopped with exit code {run.returncode}; {counts}"
    return run.returncode, counts or ("passed" if run.returncode == 0 else f"failed with exit code {run.returncode}")


def read_commit() -> str:
    """Return the commit in the work tree, with `+` if sources differ from it."""
    head = ["git", "rev-parse", "--short=10", "HEAD"]
    changes = ["git", "status", "--porcelain", "--", *SOURCES]
    commit, changed = (
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
        for command in (head, changes)
    )
    return f"{commit}{'+' if changed else ''}"


def describe_run() -> str:
    """Say when and on which commit a page's figures were measured."""
    return f"Measured on {datetime.date.today()}, commit `{read_commit()}`."


def update_page(page: Path, entries: Iterable[dict[str, Any]], names: Iterable[str]) -> None:
    """Write the rows of these entries to the table, which has a row for each of `names`. Rows of other parts stay."""
    lines = page.read_text(encoding="utf-8").splitlines() if page.exists() else []
    rows = {found["part"]: line for line in lines if (found := _ROW.fullmatch(line))}
    for entry in entries:
        minutes = f"{entry['seconds'] / 60:.1f}"
        fields = (f"`{entry['part']}`", entry["date"], f"`{entry['commit']}`", minutes, entry["result"])
        rows[entry["part"]] = f"| {' | '.join(fields)} |"
    listed = (rows.get(name, f"| `{name}` | – | – | – | not run |") for name in sorted(names))
    page.write_text(PAGE_HEAD + "".join(f"{row}\n" for row in listed), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="print the parts and whether they passed")
    parser.add_argument(
        "--part", action="append", help="run only this part, even if it passed; may be repeated, in the order to run"
    )
    parser.add_argument("--out", type=Path, help="the page with the table of results, which is updated")
    options = parser.parse_args()
    # A script's background jobs ignore SIGINT, and so would the tests' own programs, which are interrupted on purpose.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    every, sources = list_parts(options.jobs), digest_sources()
    unknown = set(options.part or ()) - {part.name for part in every}
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; known: {', '.join(part.name for part in every)}")
    done = read_passed(sources)
    if options.list:
        for part in every:
            print(f"{'passed' if part.name in done else 'to do':7} {part.name}: {' '.join(part.command)}")
        return 0
    by_name = {part.name: part for part in every}
    selected = [by_name[name] for name in options.part or [name for name in by_name if name not in done]]
    return 0 if run_parts(selected, list(by_name), sources, options.out) else 1


if __name__ == "__main__":
    sys.exit(main())
