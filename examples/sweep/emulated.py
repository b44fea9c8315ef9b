"""Sweep kernels over problems on the emulated device.

Each result is verified and counted, and all of them are on one page. Give a folder to keep the journal and the page: a
second run with the same folder measures nothing again.
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

for row in sorted(found.rows, key=lambda row: (row["kernel"], row["m"])):
    kernel = tw.parse_kernel(row["kernel"])
    lines, conflicts = row["counter_cache_lines"], row["counter_bank_conflict_cycles"]
    print(f"{kernel.digest} m={row['m']:<3} {row['status']}: {lines:6} cache lines, {conflicts:6} cycles of conflicts")

report = found.write_report(folder / "page.html", title="Two kernels, four problems")
print(f"{report.right} of {report.results} results on the page are right")
assert report.right == report.results == 8
