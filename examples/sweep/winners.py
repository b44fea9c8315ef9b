"""Select the kernels that were measured to be the fastest.

A tuned table has the winner of each problem, and selection asks it first. The times are made up: a sweep on a GPU would
have recorded them.
"""

import tilewright as tw
from tilewright.bench import Record, Task, TimeStats, compute_gains, group_times, make_tuned_table
from tilewright.ops import dump_problem

GPU = "gfx942"
kernels = list(tw.sets()["fp16_rcr_compute"].kernels(GPU))
problem = tw.gemm.Problem(m=4096, n=4096, k=4096, dtype="fp16", layout="rcr")


def measured(kernel, us):
    asked = Task(op="gemm", arch=GPU, kernel=kernel.slug, problem=dump_problem(problem), device="gpu:0")
    times = TimeStats(us=us, us_min=us, us_max=us, us_p10=us, us_p90=us, runs=20, warmups=10)
    return Record(task=asked, status="ok", kind="time", times=times)


records = [measured(kernel, 240.0 - number) for number, kernel in enumerate(kernels)]
worth = compute_gains(group_times(records))
print(f"the winner is {worth.times_faster:.3f} times as fast as the kernel with the best estimate")

registry = tw.Registry.of(kernels).with_tuned(make_tuned_table(records))
best = registry.select(problem, GPU, built=False).best
assert best.kernel == kernels[-1]
print(best.why)
