"""Measure time and memory of journals: appending with each fsync policy, resuming, merging, exporting, querying.

    python tools/bench_journal.py --records 1000000

Each step runs in its own process, to measure its own peak memory. The output is Markdown.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import tilewright as tw
from tilewright.base.digest import to_canonical_json
from tilewright.bench.journal import FSYNC, Journal, iterate_records, read_known_keys
from tilewright.bench.journal_lines import TAIL, append_checksum, format_line
from tilewright.bench.journal_merge import select_best, write_merged, write_new_file
from tilewright.bench.record import Record, Task, TimeStats
from tilewright.bench.sources import run_query
from tilewright.bench.table import export_table, read_table
from tilewright.ops.problem_values import dump_problem

# Kernels per problem, as in the largest sweep.
KERNELS = 500
KERNEL = "gemm-gfx942-standard-fp16-fp16-fp32-fp16-rcr-b256x128x32-w2x2x1-i32x32x16-compv4-intrawave-cshuffle"
VERSIONS = to_canonical_json(
    {
        "ck": "0123456789ab",
        "compiler": "AMD clang version 19.0.0git (https://github.com/ROCm/llvm-project roc-6.4.0)",
        "gpu": "AMD Instinct MI300X, 304 units",
        "hip": "60443483",
        "tilewright": tw.__version__,
        "toolchain": "0123456789ab",
    }
)
APPENDED = {"record": 500, "batch": 20_000, "never": 20_000}
STATUS = Path("/proc/self/status")


def make_records(count: int) -> Iterator[Record]:
    """Make the records of a sweep: every tenth is a failure, every hundredth repeats the previous task."""
    for number in range(count):
        yield make_record(number - 1 if number % 100 == 99 else number, number)


@functools.lru_cache(maxsize=2)
def format_problem(m: int) -> str:
    return dump_problem(tw.gemm.Problem(m=m, n=4096, k=4096, dtype="fp16", layout="rcr"))


def make_record(number: int, moment: int) -> Record:
    task = Task(
        op="gemm",
        arch="gfx942",
        kernel=f"{KERNEL}-{number % KERNELS:012}",
        problem=format_problem(64 + number // KERNELS),
        device="gpu:0",
        versions=VERSIONS,
    )
    host: dict[str, Any] = {"worker": "host-17:4242", "started": 1.7e9 + moment, "took_s": 0.25}
    if number % 10 == 0:
        return Record(task=task, status="timeout", message="ran longer than 10 s", **host)
    us = 100.0 + number % 977
    times = TimeStats(us=us, us_min=us - 1, us_max=us + 9, us_p10=us - 0.5, us_p90=us + 2, runs=100, warmups=5)
    return Record(task=task, status="ok", kind="time", times=times, share=0.125, **host)


def make_lines(count: int) -> Iterator[bytes]:
    """Make the lines of `make_records` from those of one kernel, which is faster and not measured."""
    for first in range(0, count, KERNELS):
        shapes = {kind: make_record(first + kind, first) for kind in (0, 1)}
        bodies = {kind: format_line(shape)[: -TAIL - 1] for kind, shape in shapes.items()}
        for number in range(first, min(first + KERNELS, count)):
            own = number - 1 if number % 100 == 99 else number
            kind = 0 if own % 10 == 0 else 1
            task = replace(shapes[kind].task, kernel=f"{KERNEL}-{own % KERNELS:012}")
            body = bodies[kind].replace(shapes[kind].key.encode(), task.key.encode())
            yield append_checksum(body.replace(shapes[kind].task.kernel.encode(), task.kernel.encode()))


def measure_append(folder: Path, policy: str) -> None:
    """Measure and print the time to append a record."""
    made = list(make_records(APPENDED[policy]))
    started = time.perf_counter()
    with Journal(folder / policy, "w", fsync=policy) as journal:
        for each in made:
            journal.append(each)
    took = time.perf_counter() - started
    print(f"| {policy} | {1e6 * took / len(made):,.0f} µs |", flush=True)


def make_steps(folder: Path, count: int) -> dict[str, Callable[[], Any]]:
    """Make the steps to measure, by name and in order: later steps read the files of earlier ones."""
    journal, table = folder / "sweep", folder / "records.parquet"
    return {
        "(write them)": lambda: write_new_file(journal / "w.jsonl", make_lines(count)),
        "resume: `known_keys`": lambda: read_known_keys(journal),
        "choose what to keep: `select_best`": lambda: select_best(journal),
        "choose and write: `data merge`": lambda: write_merged(select_best(journal), folder / "all" / "merged.jsonl"),
        "read one by one: `journal_records`": lambda: sum(1 for _ in iterate_records(journal)),
        "choose and write a table: `data export`": lambda: _export(journal, table),
        "read the table: `read_table`": lambda: sum(1 for _ in read_table(table)),
        "ask the table, GROUP BY: `data query`": lambda: run_query(ASKED, table),
    }


ASKED = "SELECT problem, arg_min(kernel, us), min(us) FROM records WHERE kind = 'time' GROUP BY problem"


def _export(journal: Path, table: Path) -> None:
    selected = select_best(journal)
    export_table(selected.iterate_records(), table, counters=selected.list_counters())


def run_step(folder: Path, count: int, name: str) -> None:
    """Run a step, and print its time and memory."""
    started, cpu = time.perf_counter(), time.process_time()
    make_steps(folder, count)[name]()
    took, cpu = time.perf_counter() - started, time.process_time() - cpu
    print(f"| {name} | {took:.1f} s | {cpu:.1f} s | {_read_peak_mib():,.0f} MiB |", flush=True)


def _read_peak_mib() -> float:
    """Read the peak memory of this process. The figure of getrusage would include the parent's."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def measure(folder: Path, count: int) -> None:
    """Print a table for appending and one for the steps with many records."""
    print("| append, fsync | of one record |\n|---|---:|", flush=True)
    for policy in FSYNC:
        measure_append(folder, policy)
    print(f"\n| {count:,} records | seconds | of CPU | most memory |\n|---|---:|---:|---:|", flush=True)
    context = multiprocessing.get_context("spawn")
    for name in make_steps(folder, count):
        process = context.Process(target=run_step, args=(folder, count, name))
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(f"{name} failed: exit code {process.exitcode}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="a folder for temporary files, about 2 GiB for a million records")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-journal-", dir=arguments.folder) as folder:
        measure(Path(folder), arguments.records)


if __name__ == "__main__":
    main()
