"""Find the fastest kernels with a quarter of the measurements.

A search measures the kernels with the best estimates first, and then those that may still win. The times are replayed
from a journal, as if a GPU were there; here they are made up: the estimate, with a random error of up to 30 %.
"""

import random
import tempfile

import tilewright as tw
from tilewright.bench import Journal, Record, Task, TimeStats
from tilewright.ops import dump_problem

registry = tw.Registry.of(["fp16_rcr_compute", "fp16_rcr_memory"], "gfx942")
problems = [tw.gemm.Problem(m=m, n=4096, k=4096, dtype="fp16", layout="rcr") for m in (256, 1024, 2048, 4096)]
draw = random.Random(0)

with tempfile.TemporaryDirectory() as folder:
    with Journal(folder, "recorder", fsync="never") as journal:
        for problem in problems:
            for choice in registry.select(problem, built=False):
                us = choice.us * draw.uniform(0.7, 1.3)
                task = Task(
                    op="gemm", arch="gfx942", kernel=choice.kernel.slug, problem=dump_problem(problem), device="gpu:0"
                )
                times = TimeStats(us=us, us_min=us, us_max=us, us_p10=us, us_p90=us, runs=20, warmups=5)
                journal.append(Record(task=task, status="ok", kind="time", times=times))
    full = tw.tune(registry, problems, "replay:mi300x", replay=folder)
    quick = tw.tune(registry, problems, "replay:mi300x", replay=folder, budget=0.25)

for name, found in (("all", full), ("search", quick)):
    measured = sum(len(each.us) for each in found.problems)
    total = sum(each.winner.us for each in found.problems)
    print(f"{name:6}: {measured:3} measurements, the winners take {total:.1f} µs together")
loss = sum(each.winner.us for each in quick.problems) / sum(each.winner.us for each in full.problems)
assert loss < 1.15
best = registry.with_tuned(quick.table).select(problems[0], built=False).best
print("selected first:", best.why)
