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
problems = [tw.gemm.Problem(m=m, n=4096, k=4096, dtype="fp16", layout="rcr") for m in (1024, 4096)]
draw = random.Random(0)
recorded = {problem: [] for problem in problems}

with tempfile.TemporaryDirectory() as folder:
    with Journal(folder, "recorder", fsync="never") as journal:
        for problem in problems:
            for choice in registry.select(problem, built=False):
                us, name = choice.us * draw.uniform(0.7, 1.3), choice.kernel.slug
                recorded[problem].append(us)
                task = Task(op="gemm", arch="gfx942", kernel=name, problem=dump_problem(problem), device="gpu:0")
                times = TimeStats(us=us, us_min=us, us_max=us, us_p10=us, us_p90=us, runs=20, warmups=5)
                journal.append(Record(task=task, status="ok", kind="time", times=times))
    tuned = tw.tune(registry, problems, "replay:mi300x", replay=folder, budget=0.25)

measured = sum(len(each.us) for each in tuned.problems)
print(f"{measured} of {sum(map(len, recorded.values()))} kernels and problems were measured")
for each in sorted(tuned.problems, key=lambda each: each.problem.m):
    best, winner = min(recorded[each.problem]), each.winner.us
    print(f"m = {each.problem.m}: the winner takes {winner:.1f} µs, the best of all {best:.1f}")
    assert winner <= 1.1 * best
print("selected first:", registry.with_tuned(tuned.table).select(problems[0], built=False).best.why)
