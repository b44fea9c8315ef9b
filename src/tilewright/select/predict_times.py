"""Estimated times of many kernels for many problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError
from tilewright.base.events import report_task
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op
from tilewright.select.analytical import estimate_times
from tilewright.select.pool import CandidatePool
from tilewright.select.portfolio import Matrix


def predict_times(op: Op, arch: Arch, kernels: Sequence[Kernel], problems: Sequence[Any]) -> Matrix:
    """Estimated microseconds, problems × kernels; nan if a kernel does not support the unpadded problem."""
    if op.cost is None:
        raise InvalidValueError(f"{op.name} has no time estimates: use measured times")
    if not kernels:
        raise InvalidValueError(f"there are no {op.name} kernels to estimate: pass at least one")
    pool = CandidatePool.create(arch, kernels)
    times = np.full((len(problems), len(kernels)), np.nan)
    known: dict[Any, int] = {}  # a list may name a problem more than once
    with report_task("estimating", len(problems)) as advance:
        for row, problem in enumerate(problems):
            part = pool.get_candidates(problem)
            assert part is not None, "problems and kernels are of one op"
            if problem in known:
                times[row] = times[known[problem]]
            elif places := part.find_supporting(problem):
                times[row, places] = estimate_times(part, problem, places)
            known.setdefault(problem, row)
            advance()
    return times
