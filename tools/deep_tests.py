"""Run the checks that take too long for CI: tests marked `deep`, and the tables of truth, verified and mutations.

The checks are split into parts. A part that passed is not run again while the sources stay the same, so you can stop a
run at any time and continue later. `--list` prints the parts, `--part NAME` runs one of them even if it passed.

    python tools/deep_tests.py --jobs 2
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DONE = ROOT / "build" / "deep_tests.jsonl"
# The outcome of a part depends on these. Documents are excluded: parts write some of them.
SOURCES = ("src", "tests", "research", "tools", "examples", "pyproject.toml")


@dataclass(frozen=True)
class Part:
    """A command that takes minutes to hours, and that you can stop at any time."""

    name: str
    command: tuple[str, ...]


def list_deep_files() -> list[str]:
    """Return the files in which pytest finds deep tests: some mark only those that need a kernel that CI lacks."""
    command = (sys.executable, "-m", "pytest", "-q", "-m", "deep", "--collect-only", "-p", "no:cacheprovider")
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


def run_parts(wanted: Sequence[Part], sources: str) -> bool:
    """Run parts one after another. Return whether all of them passed."""
    all_passed = True
    DONE.parent.mkdir(exist_ok=True)
    for part in wanted:
        print(f"== {part.name}", flush=True)
        began = time.monotonic()
        code = subprocess.run(part.command, cwd=ROOT, check=False).returncode
        entry = {"part": part.name, "sources": sources, "exit": code, "seconds": round(time.monotonic() - began)}
        with DONE.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")
        all_passed &= code == 0
    return all_passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="print the parts and whether they passed")
    parser.add_argument("--part", action="append", help="run only this part, even if it passed; may be repeated")
    options = parser.parse_args()
    every, sources = list_parts(options.jobs), digest_sources()
    unknown = set(options.part or ()) - {part.name for part in every}
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; known: {', '.join(part.name for part in every)}")
    done = read_passed(sources)
    if options.list:
        for part in every:
            print(f"{'passed' if part.name in done else 'to do':7} {part.name}: {' '.join(part.command)}")
        return 0
    selected = [p for p in every if (p.name in options.part if options.part else p.name not in done)]
    return 0 if run_parts(selected, sources) else 1


if __name__ == "__main__":
    sys.exit(main())
