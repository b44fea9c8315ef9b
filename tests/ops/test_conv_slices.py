"""Gradients of the input that CK Tile leaves out are zero, so that clearing the result first is all that is needed."""

from __future__ import annotations

import itertools

import numpy as np

from conv_slices import written
from tilewright.arch import load
from tilewright.dispatch.plan import get_execution
from tilewright.ops.grouped_conv import Problem

BASE = {"direction": "backward_data", "n": 1, "c": 1, "k": 1, "dtype": "fp32"}


def met(problem: Problem) -> set[int]:
    """The inputs that meet a tap, by the reference: their gradients are sums of ones."""
    execution = get_execution("grouped_conv")
    ones = {t.name: np.ones(t.shape, np.float32) for t in execution.tensors(problem) if not t.output}
    (gradient,) = execution.reference(problem, ones, load("gfx942")).values()
    return set(np.flatnonzero(gradient.reshape(-1)).tolist())


def test_what_is_left_out_meets_no_tap_and_nothing_is_written_twice() -> None:
    left_out = 0
    ranges = range(1, 4), (1, 2, 3, 4), (1, 2, 3), (0, 1, 2), (0, 1), (1, 4, 7, 10)
    for filter_, stride, dilation, left, right, size in itertools.product(*ranges):
        if size + left + right <= (filter_ - 1) * dilation:
            continue
        fields = {"filter_size": filter_, "stride": stride, "dilation": dilation}
        problem = Problem(**BASE, **fields, input_size=(size,), left_pad=left, right_pad=right)
        places = written(size, problem.output_size[0], filter_, stride, dilation, left)
        assert len(places) == len(set(places)), problem
        assert met(problem) <= set(places), problem
        left_out += len(places) < size
    assert left_out > 100
