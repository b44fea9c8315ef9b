"""A recording of made-up times of real kernels, on which sweeps and tuning can be replayed without a GPU."""

from __future__ import annotations

from pathlib import Path

import tilewright as tw
from tilewright.bench.journal import Journal
from tilewright.bench.record import Record, Task, TimeStats
from tilewright.ops.kernel import Kernel
from tilewright.ops.problem_values import dump_problem

GPU = "gfx942"
SET = "fp16_rcr_essential"
KERNELS = tuple(tw.sets()[SET].kernels(GPU))
PROBLEMS = tuple(tw.gemm.Problem(m=m, n=4096, k=4096, dtype="fp16", layout="rcr") for m in (512, 1024, 2048, 4096))
# The kernel that wins everywhere. The estimate prefers two others.
WINNER = tw.Registry(KERNELS).select(PROBLEMS[-1], GPU, built=False).choices[2].kernel


def invent_us(kernel: Kernel, problem: object) -> float:
    """The estimate, but the winner takes half of the best one."""
    choices = {choice.kernel: choice.us for choice in tw.Registry(KERNELS).select(problem, GPU, built=False)}
    us = choices.get(kernel)
    assert us is not None
    return 0.5 * min(each for each in choices.values() if each is not None) if kernel == WINNER else us


def write_recording(folder: Path) -> Path:
    """Write the times of all kernels that support a problem."""
    with Journal(folder, "worker", fsync="never") as journal:
        for problem in PROBLEMS:
            for choice in tw.Registry(KERNELS).select(problem, GPU, built=False):
                us = invent_us(choice.kernel, problem)
                task = Task(
                    op="gemm", arch=GPU, kernel=choice.kernel.slug, problem=dump_problem(problem), device="gpu:0"
                )
                times = TimeStats(us=us, us_min=us, us_max=us, us_p10=us, us_p90=us, runs=20, warmups=5)
                journal.append(Record(task=task, status="ok", kind="time", times=times))
    return folder
