"""Sweep kernels over problems on the emulated device: each result verified and counted, all of them on one page.

Give a folder to keep the journal and the page. A second run with the same folder measures nothing again.
"""

import sys
import tempfile
from pathlib import Path

import tilewright as tw
from tilewright.bench import TimingSettings

GPU, DEVICE = "gfx942", "emulated:gfx942"
folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tilewright-sweep-"))

kernels = list(tw.sets()["fp16_rcr_latency"].kernels(GPU))[:2]
problems = [{"m": m, "n": 128, "k": 256} for m in (64, 128, 192, 256)]
found = tw.sweep(kernels, problems, DEVICE, out=folder / "journal", settings=TimingSettings(mode="fast"))
print(f"{found.summary.done} measured now, {len(found.failures)} failed, {found.summary.known} known before")

for row in found.rows:
    kernel = tw.parse_kernel(row["kernel"])
    lines, conflicts = row["counter_cache_lines"], row["counter_bank_conflict_cycles"]
    print(f"{kernel.digest} m={row['m']:<3} {row['status']}: {lines:6} cache lines, {conflicts:6} cycles of conflicts")

page = folder / "page.html"
report = found.write_report(page, title="Two kernels, four problems")
print(f"{report.right} of {report.results} results are right: {page}")
