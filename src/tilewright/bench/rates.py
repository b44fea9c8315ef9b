"""The operations and bytes of a problem, and the rates that follow from a time. Derived here, once for all ops."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from tilewright.arch.dtypes import find_dtype
from tilewright.base.errors import InvalidValueError
from tilewright.bench.plan import parse_problem
from tilewright.bench.record import Task
from tilewright.ops import find_op


@dataclass(frozen=True)
class Effort:
    """Operations and bytes of a problem, independent of the kernel.

    None if its op does not define them, is not installed here, or cannot read the problem.
    """

    flops: int | None
    bytes_moved: int | None


@dataclass(frozen=True)
class Rates:
    """10¹² operations per second, and 10⁹ bytes per second of the least traffic."""

    tflops: float | None
    gbs: float | None


# In a sweep each problem occurs once for every kernel.
@functools.lru_cache(maxsize=1 << 16)
def compute_effort(op: str, problem: str) -> Effort:
    """The operations of a problem, and its least traffic: as the problem defines it, else each tensor once.

    A tensor that is changed in place counts twice. For paged memory the whole pool counts, used or not.
    """
    try:
        value = parse_problem(op, problem)
    except InvalidValueError:  # a record of another installation is a valid record, too
        return Effort(None, None)
    flops: int | None = getattr(value, "flops", None)
    moved: int | None = getattr(value, "bytes_moved", None)
    execution = find_op(op).execution
    if moved is None and execution is not None:
        bits = (
            math.prod(tensor.shape) * find_dtype(tensor.dtype).bits * (2 if tensor.updated else 1)
            for tensor in execution.tensors(value)
        )
        moved = sum(bits) // 8
    return Effort(flops, moved)


def compute_rates(task: Task, us: float) -> Rates:
    """The rates of a task's time: operations and bytes per microsecond, scaled."""
    own = compute_effort(task.op, task.problem)
    return Rates(
        None if own.flops is None else own.flops / us * 1e-6,
        None if own.bytes_moved is None else own.bytes_moved / us * 1e-3,
    )
