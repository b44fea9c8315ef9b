"""Sweep kernels over problems on the emulated device: each result verified and counted, all of them on one page.

Give a folder to keep the journal and the page. A second run with the same folder measures nothing again.
"""

import sys
import tempfile
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import tilewright as tw
from tilewright.bench import (
    LocalExecutor,
    SweepPlan,
    TimingSettings,
    WorkerConfig,
    format_versions,
    open_sources,
    parse_problem,
    write_report,
)

GPU, DEVICE = "gfx942", "emulated:gfx942"
folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tilewright-sweep-"))

kernels = list(islice(tw.gemm.OP.sets()["fp16_rcr_latency"].kernels(GPU), 2))
problems = [tw.gemm.Problem(m=m, n=128, k=256, dtype="fp16", layout="rcr") for m in (64, 128, 192, 256)]
settings = asdict(TimingSettings(mode="fast"))
plan = SweepPlan(problems, kernels, {DEVICE: GPU}, settings, format_versions(DEVICE))

summary = tw.sweep(plan, folder / "journal", LocalExecutor([(DEVICE, GPU)], WorkerConfig(settings)))
print(f"{summary.done} measured now, {summary.failed} failed, {summary.known} known before")

found = open_sources(folder / "journal")
for record in found.iterate_records():
    kernel, problem = tw.parse_kernel(record.task.kernel), parse_problem("gemm", record.task.problem)
    lines, conflicts = record.counters["cache_lines"], record.counters["bank_conflict_cycles"]
    print(f"{kernel.digest} m={problem.m:<3} {record.status}: {lines:6} cache lines, {conflicts:6} cycles of conflicts")

page = folder / "page.html"
report = write_report(page, found.iterate_records(), title="Two kernels, four problems")
print(f"{report.right} of {report.results} results are right: {page}")
