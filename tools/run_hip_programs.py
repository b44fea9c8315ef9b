"""Build the HIP programs of a folder, run them on an emulated GPU, and write a table of the outcomes.

    python tools/run_hip_programs.py FOLDER --list programs.toml --results results.jsonl --table table.md

The list has a table for each program, of which all keys can be left out:

    [vector_add]
    folder = "vector_add"    # below FOLDER; the program's name
    build = "make CC=hipcc"  # hipcc is one that uses Tilewright's toolchain
    run = "./main 1000"      # starts in the program's folder
    pass = "PASS"            # a regular expression in the output; else exit code 0 decides
    fail = "FAIL"            # a regular expression that must not be in the output
    limit_s = 60             # CPU seconds of a run
    note = "theirs: …"       # the reason of a failure, for the table

Programs that are in the results file are not run again: remove their lines to repeat them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hip_compiler import write_hipcc

PASS, RAN, WRONG, FAULT, MISSING, MEMORY, LIMIT, CODE, BUILD = (
    "passes its own check",
    "runs to its end, has no check",
    "reports a wrong result",
    "stops at a fault of a kernel",
    "calls a function that is not implemented",
    "needs more memory than the emulated device has",
    "exceeds the time limit",
    "ends with an exit code",
    "does not compile",
)
BUILD_LIMIT_S = 120.0  # of CPU time, for each compiler that make starts
PATIENCE = 15  # a busy machine: seconds for each second of CPU time
TAIL = 2000  # bytes of output that are kept
_TOLD = re.compile(r"tilewright: emulated \w+, \w+ mode: (?P<text>.*)$", re.MULTILINE)
_MISSING = re.compile(r"(?P<call>\w+) is not implemented by the emulated device")
_CHECK = r"\bPASS(ED)?\b|\bpass(ed)?\b|\bsuccess"
_WRONG = r"\b(FAIL|FAILED|FAILURE)\b|\bfail(ed)?\b|[Mm]ismatch|incorrect"


@dataclass(frozen=True, slots=True)
class Program:
    """One program of the list."""

    name: str
    folder: str
    build: str
    run: str
    passes: str
    fails: str
    limit_s: float
    note: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one program. `detail` is the first error, a fault or a function."""

    name: str
    outcome: str
    detail: str
    build_s: float
    cpu_s: float
    wall_s: float
    run: str
    note: str
    tail: str


def read_programs(file: Path) -> list[Program]:
    """Read the list."""
    document = tomllib.loads(file.read_text("utf-8"))
    return [_read_program(name, given) for name, given in document.items()]


def _read_program(name: str, given: Mapping[str, Any]) -> Program:
    known = {"folder", "build", "run", "pass", "fail", "limit_s", "note"}
    if unknown := set(given) - known:
        raise SystemExit(f"{name}: unknown keys {', '.join(sorted(unknown))}; known are {', '.join(sorted(known))}")
    return Program(
        name,
        given.get("folder", name),
        given.get("build", "make CC=hipcc"),
        given.get("run", "./main"),
        given.get("pass", _CHECK),
        given.get("fail", _WRONG),
        float(given.get("limit_s", 60)),
        given.get("note", ""),
    )


def run_program(program: Program, folder: Path, variables: Mapping[str, str], emulate: Sequence[str]) -> Outcome:
    """Build and run one program."""
    place = folder / program.folder
    start = time.perf_counter()
    code, text, _ = _run(shlex.split(program.build), place, variables, BUILD_LIMIT_S)
    build_s = time.perf_counter() - start
    if code != 0:
        first = next((line for line in text.splitlines() if re.search(r"\berror\b", line, re.I)), text[-200:])
        return _make_outcome(program, BUILD, first.strip(), build_s, 0, 0, text)
    start = time.perf_counter()
    code, text, cpu_s = _run([*emulate, *shlex.split(program.run)], place, variables, program.limit_s)
    outcome, detail = classify(program, code, text)
    return _make_outcome(program, outcome, detail, build_s, cpu_s, time.perf_counter() - start, text)


def classify(program: Program, code: int | None, text: str) -> tuple[str, str]:
    """Return the outcome of a run and its detail. `code` is None if the time limit was exceeded."""
    told = [match["text"] for match in _TOLD.finditer(text)]
    missing = [match["call"] for line in told if (match := _MISSING.search(line))]
    faults = [line for line in told if not _MISSING.search(line)]
    passed = re.search(program.passes, text) is not None
    wrong = re.search(program.fails, text) is not None
    if faults:
        return (MEMORY if faults[0].startswith("no room for") else FAULT), faults[0]
    if missing and not (passed and not wrong and code == 0):
        return MISSING, ", ".join(missing)
    if code is None:
        return LIMIT, f"{program.limit_s:g} CPU seconds"
    if wrong:
        return WRONG, ""
    if code != 0:
        return CODE, str(code)
    return (PASS, "") if passed else (RAN, "")


def _make_outcome(
    program: Program, outcome: str, detail: str, build_s: float, cpu_s: float, wall_s: float, text: str
) -> Outcome:
    times = (round(build_s, 1), round(cpu_s, 2), round(wall_s, 1))
    return Outcome(program.name, outcome, detail[:300], *times, program.run, program.note, text[-TAIL:])


def _run(
    words: Sequence[str], folder: Path, variables: Mapping[str, str], limit_s: float
) -> tuple[int | None, str, float]:
    """Return exit code (None: time limit), output and CPU seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                words,
                cwd=folder,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return 127, str(error), 0
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (int(limit_s), int(limit_s) + 1))
        try:
            code: int | None = process.wait(PATIENCE * limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = None
        if code in (-signal.SIGXCPU, -signal.SIGKILL):
            code = None
        output.seek(0)
        text = output.read().decode(errors="replace")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return code, text, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def format_table(outcomes: Iterable[Outcome]) -> str:
    """Return the table of outcomes, and a line for each program that did not pass."""
    found = list(outcomes)
    counted = Counter(outcome.outcome for outcome in found)
    lines = [
        "| outcome | programs |",
        "|---|---|",
        *(f"| {name} | {number} |" for name, number in counted.most_common()),
    ]
    lines += ["", "| program | outcome | detail | reason |", "|---|---|---|---|"]
    lines += [
        f"| {each.name} | {each.outcome} | {each.detail} | {each.note} |"
        for each in sorted(found, key=lambda each: (each.outcome, each.name))
        if each.outcome != PASS
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the programs of a list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--list", type=Path, required=True, dest="listed")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--gpu", default="gfx942")
    parser.add_argument("--mode", choices=("fast", "strict"), default="strict")
    given = parser.parse_args()
    done = {}
    if given.results.exists():
        done = {(value := json.loads(line))["name"]: Outcome(**value) for line in given.results.open()}
    programs = read_programs(given.listed)
    emulate = (sys.executable, "-m", "tilewright", "emulate", "--gpu", given.gpu, "--mode", given.mode, "--")
    with tempfile.TemporaryDirectory(prefix="hip-programs-") as private:
        write_hipcc(Path(private), given.gpu)
        variables = {"PATH": f"{private}:{os.environ['PATH']}"}
        for program in programs:
            if program.name in done:
                continue
            outcome = run_program(program, given.folder, variables, emulate)
            done[program.name] = outcome
            with given.results.open("a") as results:
                results.write(json.dumps(asdict(outcome)) + "\n")
            print(f"{outcome.name}: {outcome.outcome} {outcome.detail} ({outcome.cpu_s:.1f} s)", flush=True)
    table = format_table(done[program.name] for program in programs)
    if given.table is None:
        print(table)
    else:
        given.table.write_text(table, "utf-8")


if __name__ == "__main__":
    main()
