"""Predicted times of many kernels for many problems: the op's estimate where a kernel fits, nan elsewhere."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from tilewright import arch as archs
from tilewright.base import events
from tilewright.base.errors import InvalidValueError
from tilewright.ops import find_op
from tilewright.ops.cost_model.cost import Facts
from tilewright.ops.rule import find_violations
from tilewright.select.portfolio import predict_times

GEMM = find_op("gemm")
GPU = archs.load("gfx942")
KERNELS = [
    kernel for name in ("fp16_rcr_essential", "bf16_rcr_essential") for kernel in GEMM.sets()[name].kernels("gfx942")
]
PROBLEMS = [
    GEMM.problem_type(m=m, n=n, k=k, dtype=dtype, layout="rcr")
    for m, n, k, dtype in ((4096, 4096, 4096, "fp16"), (1, 64, 64, "bf16"), (100, 36, 24, "fp16"), (64, 64, 64, "fp32"))
]


def test_a_time_is_the_estimate_where_the_kernel_fits() -> None:
    assert GEMM.cost is not None
    times = predict_times(GEMM, GPU, KERNELS, PROBLEMS)

    assert times.shape == (len(PROBLEMS), len(KERNELS))
    for row, problem in zip(times, PROBLEMS, strict=True):
        facts = Facts(**GEMM.cost.problem_numbers(problem))
        for us, kernel in zip(row, KERNELS, strict=True):
            if find_violations(GEMM.fit_rules, kernel.config, problem, GPU):
                assert math.isnan(us)
            else:
                numbers = Facts(**GEMM.cost.kernel_numbers(kernel.config, GPU, None))
                assert us == pytest.approx(GEMM.cost.estimate(facts, numbers, GPU).us, rel=1e-12)
    assert 0 < np.isnan(times[0]).sum() < len(KERNELS)
    assert np.isnan(times[3]).all()


def test_a_problem_that_comes_twice_has_the_same_times_and_is_counted_twice() -> None:
    seen: list[events.Event] = []
    with events.add_listener(seen.append):
        times = predict_times(GEMM, GPU, KERNELS, [PROBLEMS[0], PROBLEMS[0]])

    assert np.array_equal(times[0], times[1], equal_nan=True)
    assert [event.total for event in seen if isinstance(event, events.Started)] == [2]
    assert sum(isinstance(event, events.Advanced) for event in seen) == 2


def test_without_an_estimate_or_kernels_there_is_nothing_to_predict() -> None:
    with pytest.raises(InvalidValueError, match="gemm has no time estimates"):
        predict_times(dataclasses.replace(GEMM, cost=None), GPU, KERNELS, PROBLEMS)
    with pytest.raises(InvalidValueError, match="there are no gemm kernels to estimate"):
        predict_times(GEMM, GPU, [], PROBLEMS)
