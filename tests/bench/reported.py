"""Records as sweeps make them, to be reported: measured times of public data, and counters of made-up launches."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from research import conv_data
from tilewright.bench.record import Record, Task, TimeStats
from tilewright.ops import gemm, kernel_of
from tilewright.ops.kernel import Kernel
from tilewright.ops.problem_values import dump_problem

VERSIONS = "tilewright 0.1, ck 7.0"
EMULATED = "emulated:gfx942"


def failed(record: Record, status: str, message: str) -> Record:
    """The same task, as if it had come to nothing."""
    return Record(task=record.task, status=status, message=message, worker=record.worker, started=record.started)


@functools.cache
def conv_times() -> tuple[Record, ...]:
    """The public sweep of convolutions on gfx950: the median of all rows of a kernel and a problem."""
    data = conv_data.load().data
    found = []
    for row, us in enumerate(data.us.tolist()):
        kernel, problem = data.kernels[data.kernel[row]], data.problems[data.problem[row]]
        wobble = 0.004 + 0.01 * (row % 7) / 7
        times = TimeStats(
            us=us,
            us_min=us * (1 - wobble),
            us_max=us * (1 + 2 * wobble),
            us_p10=us * (1 - wobble / 2),
            us_p90=us * (1 + wobble),
            runs=50,
            warmups=12,
        )
        task = Task(
            op="grouped_conv",
            arch="gfx950",
            kernel=kernel.slug,
            problem=dump_problem(problem),
            device="gpu:0",
            versions=VERSIONS,
        )
        share = 0.1 + 0.05 * (row % 5)
        found.append(Record(task=task, status="ok", kind="time", times=times, share=share, worker="a:1", started=row))
    return tuple(found)


def with_failures(records: Sequence[Record]) -> list[Record]:
    """Some of the results of each kind of failure instead; those of one kernel end in quarantine."""
    kernels = sorted({record.task.kernel for record in records})
    bad, seen, made = kernels[3], 0, []
    for i, record in enumerate(records):
        if record.task.kernel == bad and i % 3:
            seen += 1
            said = ("crashed", f"signal 11 after {seen}.{i} s") if seen <= 3 else ("quarantined", "3 failures before")
            made.append(failed(record, *said))
        elif i % 97 == 5:
            made.append(failed(record, "wrong", f"{i} of 4096 elements are outside the tolerance, the worst by {i}.5×"))
        elif i % 131 == 7:
            made.append(failed(record, "timeout", f"not ended after {10 + i % 3} s"))
        elif i % 211 == 9:
            made.append(failed(record, "out_of_memory", f"{i} MiB asked for, 1024 MiB left"))
        elif i % 61 == 11:
            made.append(failed(record, "unsupported", "c is 3, must be a multiple of 8"))
        else:
            made.append(record)
    return made


def gemm_kernels() -> list[Kernel]:
    """Fourteen GEMM kernels: seven tiles, two pipelines."""
    tiles = [(256, 128, 32), (128, 256, 32), (128, 128, 32), (128, 128, 64), (128, 64, 64), (64, 64, 64), (64, 32, 64)]
    return [
        kernel_of(
            gemm.config(
                variant="standard",
                dtype="fp16",
                layout="rcr",
                block=block,
                waves=(2, 2, 1) if block[1] > 32 else (2, 1, 1),
                mma=(32, 32, 16),
                pipeline=pipeline,
                scheduler="intrawave",
                epilogue="cshuffle",
            ),
            "gfx942",
        )
        for block, pipeline in itertools.product(tiles, ("compv3", "compv4"))
    ]


def gemm_problems() -> list[gemm.Problem]:
    """Fifteen small ones, as an emulated device gets them."""
    sizes = [(32, 32, 32), (64, 64, 64), (128, 128, 64), (96, 80, 32), (256, 128, 64), (1, 256, 128), (16, 512, 64)]
    sizes += [(512, 16, 64), (200, 200, 96), (256, 256, 256), (384, 128, 128), (128, 384, 32), (512, 512, 64)]
    sizes += [(33, 65, 128), (512, 256, 128)]
    return [gemm.Problem(m=m, n=n, k=k, dtype="fp16", layout="rcr") for m, n, k in sizes]


def counters_of(kernel: Kernel, problem: gemm.Problem) -> dict[str, int]:
    """What such a launch would count, near enough to look real."""
    config: Any = kernel.config
    blocks = math.ceil(problem.m / config.block.m) * math.ceil(problem.n / config.block.n)
    steps = math.ceil(problem.k / config.block.k)
    mnk = config.block.m * config.block.n * config.block.k
    step_bytes = 2 * (config.block.m + config.block.n) * config.block.k
    read, written = blocks * steps * step_bytes, 2 * problem.m * problem.n
    return {
        "atomics": 0,
        "bank_conflict_cycles": blocks * steps * (config.block.k // 8) * (7 if config.pipeline == "compv4" else 3),
        "barriers": blocks * steps * 8,
        "cache_lines": (read + written) // 96,
        "global_read_bytes": read,
        "global_write_bytes": written,
        "instructions_matrix": blocks * steps * mnk // (32 * 32 * 8),
        "instructions_valu": blocks * steps * 400,
        "lds_read_bytes": 3 * read,
        "lds_write_bytes": read,
        "matrix_flops": 2 * blocks * steps * mnk,
        "waves": blocks * 4,
    }


def gemm_counters() -> list[Record]:
    """All of these kernels on all of these problems on an emulated device; some fail."""
    found = []
    for i, (kernel, problem) in enumerate(itertools.product(gemm_kernels(), gemm_problems())):
        task = Task(
            op="gemm",
            arch="gfx942",
            kernel=kernel.slug,
            problem=dump_problem(problem),
            device=EMULATED,
            versions=VERSIONS,
        )
        record = Record(
            task=task, status="ok", kind="counters", counters=counters_of(kernel, problem), share=0.2, worker="a:1"
        )
        if problem.m == 1:
            record = failed(record, "unsupported", "m is 1, must be a multiple of 8")
        elif i % 23 == 4:
            record = failed(record, "fault", f"global load of 16 bytes at 0x{i:x}000 is outside of every allocation")
        found.append(record)
    return found


def many(count: int, problems: int) -> Iterator[Record]:
    """So many made-up times of real GEMM kernels, all on so many problems; some kernels fail now and then."""
    space = gemm.space(dtype="fp16", layout="rcr", variant="standard", mma=(32, 32, 16), scheduler="intrawave")
    kernels = [kernel.slug for kernel in itertools.islice(space.iter("gfx942"), -(-count // problems))]
    sizes = [(64 * (1 + i % 64), 128 << i // 64 % 7, 256 + 64 * (i // 448)) for i in range(problems)]
    texts = [dump_problem(gemm.Problem(m=m, n=n, k=k, dtype="fp16", layout="rcr")) for m, n, k in sizes]
    for i in range(count):
        kernel, problem = divmod(i, problems)
        task = Task(
            op="gemm", arch="gfx942", kernel=kernels[kernel], problem=texts[problem], device="gpu:1", versions=VERSIONS
        )
        luck = i * 7919 % 1009
        if kernel % 5 == 2 and luck < 200:
            yield Record(task=task, status="crashed", message=f"signal 9 after {luck} s")
            continue
        us = 100.0 + (problem % 64 - kernel % 64) ** 2 + luck / 50 + 3 * kernel
        times = TimeStats(us=us, us_min=us, us_max=us, us_p10=us, us_p90=us, runs=20, warmups=5)
        yield Record(task=task, status="ok", kind="time", times=times)
