"""Verifying kernels of several stages: each by itself, and all of them as one problem; old contents and infinities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import InvalidValueError
from tilewright.dispatch.comparison import compute_errors
from tilewright.dispatch.verify import _check_given, verify, verify_plan
from tilewright.emulator.launch import Mode
from tilewright.ops import find_op
from tilewright.ops.execution import Tensor
from tilewright.ops.kernel import Kernel

MakeKernel = Callable[..., Kernel]


def problem(n: int, step: str = "whole", **fields: Any) -> Any:
    return find_op("axpb").problem_type(step, n, **fields)


@pytest.mark.compile
def test_each_kernel_by_itself(staged: tw.Registry, device: tw.Device) -> None:
    execution = find_op("axpb").execution
    assert execution is not None
    for kernel, artifact in staged.artifacts.items():
        checks = verify(kernel, artifact, device, execution.trials(kernel.config, device.arch), mode=Mode.STRICT)
        assert [check.ok for check in checks] == [not kernel.config.lazy] * 3, kernel.slug  # type: ignore[attr-defined]


@pytest.mark.compile
def test_a_whole_problem(staged: tw.Registry, device: tw.Device, axpb: MakeKernel) -> None:
    problems = [problem(1), problem(65), problem(100, onto=True, both=True), problem(64, "add", count=3)]
    checks = verify_plan(staged.artifacts, device, problems, mode=Mode.STRICT)
    assert [check.verdict for check in checks] == ["ok"] * 4, [check.message for check in checks]
    assert [check.problem for check in checks] == problems
    assert (checks[0].kernel, checks[0].later) == (axpb("scale"), (axpb("add"),))
    assert (checks[3].kernel, checks[3].later) == (axpb("add", parts=3), ())
    assert checks[1].counters is not None and checks[1].counters.waves == 4, "two waves of each kernel"


@pytest.mark.compile
def test_what_a_stage_does_not_write_is_seen_in_the_result(
    staged: tw.Registry, device: tw.Device, axpb: MakeKernel
) -> None:
    lazy = {kernel: staged.artifact(kernel) for kernel in (axpb("scale", lazy=True), axpb("add"))}
    [check] = verify_plan(lazy, device, [problem(100)])
    assert check.verdict == "wrong" and check.worst == (99,)
    assert "1 of 100 elements are wrong" in check.message


@pytest.mark.compile
def test_a_stage_without_a_kernel(staged: tw.Registry, device: tw.Device, axpb: MakeKernel) -> None:
    only = {axpb("scale"): staged.artifact(axpb("scale"))}
    [check] = verify_plan(only, device, [problem(10)])
    assert check.verdict == "unsupported" and "lacks a kernel for stage 2" in check.message


def test_old_contents_must_be_among_the_inputs() -> None:
    tensors = [Tensor("x", "fp32", (4,), (1,)), Tensor("y", "fp32", (4,), (1,), output=True, updated=True)]
    values = np.zeros(4, np.float32)
    _check_given(tensors, {"x": values, "y": values})
    with pytest.raises(InvalidValueError, match="`inputs` return no old contents for y, only x"):
        _check_given(tensors, {"x": values})
    with pytest.raises(InvalidValueError, match="`inputs` return no values for x, only y"):
        _check_given(tensors, {"y": values})


def test_infinities_are_right_where_they_are_wanted() -> None:
    inf, nan = np.inf, np.nan
    found = np.array([1.0, -inf, inf, inf, 1.0, nan, 1.0, nan])
    wanted = np.array([1.5, -inf, inf, -inf, inf, 1.0, nan, nan])
    np.testing.assert_array_equal(compute_errors(found, wanted), [0.5, 0, 0, inf, inf, inf, inf, inf])
