"""The reference of top-k against torch's operators on the CPU, and the tolerance against wrong and right results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from played import Played

from ci_kernels import read_samples
from tilewright import arch as archs
from tilewright.ops import find_op, kernel_of
from tilewright.ops.kernel import Kernel
from tilewright.ops.topk.config import Config, count_rows
from tilewright.ops.topk.problem import Problem, apply_strides, list_tensors
from tilewright.ops.topk.reference import compute_reference, compute_tolerance, list_trials, make_inputs

torch = pytest.importorskip("torch")
TOPK = find_op("topk")
GPU = archs.load("gfx942")
Compute = Callable[[Problem, Any], dict[str, Any]]
SAMPLE = [kernel for expected, kernel in read_samples() if expected == "computes" and kernel.op == TOPK.name]


@pytest.mark.parametrize("kernel", SAMPLE, ids=lambda kernel: kernel.slug)
def test_reference_and_torch_agree_on_the_trials_of_every_kernel(kernel: Kernel) -> None:
    """Kernels are compared with the reference on these inputs. So torch's results are those that they must have."""
    arch, config = archs.load(kernel.arch), kernel.config
    assert isinstance(config, Config)
    for problem in list_trials(config, arch):
        for seed in (0, 1):
            inputs = make_inputs(problem, seed, arch)
            found = compute_reference(problem, inputs, arch)
            x = torch.tensor(np.asarray(inputs["x"], dtype=np.float64))
            values = torch.softmax(x, -1) if problem.activation == "softmax" else torch.sigmoid(x)
            np.testing.assert_allclose(found["weights"], torch.topk(values, problem.k)[0], rtol=1e-12)
            # torch.topk does not say which of equal elements it takes; its stable sort does.
            places = torch.sort(x, dim=-1, descending=True, stable=True)[1][:, : problem.k]
            np.testing.assert_array_equal(found["indices"], places)


def test_inputs_have_equal_logits_and_different_ones() -> None:
    problem = Problem(activation="softmax", rows=9, experts=64, k=8, dtype="bf16")
    equal, different = (np.asarray(make_inputs(problem, seed, GPU)["x"], dtype=np.float64) for seed in (0, 1))
    ordinary = slice(None, 2)  # and extreme ones
    counts = [len(np.unique(np.sort(row)[-8:])) for row in equal[ordinary]]
    assert max(counts) < 8
    assert np.mean([len(np.unique(row)) for row in different[ordinary]]) > 50


@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
def test_fp32_results_are_within_the_limit_and_coarser_ones_are_not(activation: str) -> None:
    problem = Problem(activation=activation, rows=50, experts=128, k=8, dtype="fp32")
    config = Config(activation=activation, dtype="fp32", experts=128, rows=1, threads=64, vector=1)
    inputs = make_inputs(problem, 1, GPU)
    reference = compute_reference(problem, inputs, GPU)
    tolerance = compute_tolerance(config, problem, inputs, reference, GPU)
    assert not tolerance["indices"].limit.any()
    right = np.take_along_axis(activate(activation, inputs["x"]), reference["indices"].astype(int), axis=1)
    defined = ~np.isnan(reference["weights"])
    np.testing.assert_array_equal(np.isnan(right), ~defined)
    limit = tolerance["weights"].limit
    off = np.abs(right - reference["weights"])
    assert (off <= limit)[defined].all() and off[defined].any()
    coarse = right.astype(np.float16).astype(np.float64)
    wrong = np.abs(coarse - reference["weights"]) > limit
    assert wrong[0::10].mean() > 0.5 and wrong[1::10].mean() > 0.5


def activate(activation: str, x: Any) -> Any:
    """The activation of all logits in fp32. torch's NaN may have all bits, as poison has."""
    tensor = torch.tensor(np.asarray(x, dtype=np.float32))
    weights = (torch.softmax(tensor, -1) if activation == "softmax" else torch.sigmoid(tensor)).numpy()
    return np.where(np.isnan(weights), np.float32(np.nan), weights)


def select(weights: Any, logits: Any, k: int) -> dict[str, Any]:
    """What a kernel stores that selects by `logits`."""
    order = torch.sort(torch.tensor(np.asarray(logits, dtype=np.float32)), dim=-1, descending=True, stable=True)[1]
    indices = order[:, :k].numpy()
    return {"weights": np.take_along_axis(weights, indices, axis=1), "indices": indices}


def compute_without_maximum(problem: Problem, x: Any) -> dict[str, Any]:
    with np.errstate(all="ignore"):
        exponentials = np.exp(np.asarray(x, dtype=np.float32))
        return select(exponentials / exponentials.sum(axis=1, keepdims=True), x, problem.k)


def select_after_activation(problem: Problem, x: Any) -> dict[str, Any]:
    weights = activate(problem.activation, x)
    return select(weights, weights, problem.k)


def ignore_nan(problem: Problem, x: Any) -> dict[str, Any]:
    """Weights of logits without NaN, which are as right as they can be."""
    known = np.nan_to_num(np.asarray(x, dtype=np.float32), posinf=np.inf, neginf=-np.inf)
    return select(activate(problem.activation, known), x, problem.k)


def rank_nan_last(problem: Problem, x: Any) -> dict[str, Any]:
    logits = np.asarray(x, dtype=np.float32)
    return select(activate(problem.activation, x), np.where(np.isnan(logits), -np.inf, logits), problem.k)


def compute_correctly(problem: Problem, x: Any) -> dict[str, Any]:
    return select(activate(problem.activation, x), x, problem.k)


WRONG = {
    "softmax": (compute_without_maximum, select_after_activation, ignore_nan, rank_nan_last),
    "sigmoid": (select_after_activation, ignore_nan, rank_nan_last),
}


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
def test_trials_notice_wrong_extremes(activation: str, dtype: str) -> None:
    config = Config(activation=activation, dtype=dtype, experts=64, rows=1, threads=64, vector=1)
    trials = [Played(kernel_of(config, GPU.name), problem, GPU) for problem in list_trials(config, GPU)]

    def is_refused(compute: Compute) -> bool:
        return any(
            each.refuses(lambda inputs, _, problem=each.problem: compute(problem, inputs["x"])) for each in trials
        )

    assert not is_refused(compute_correctly)
    for compute in WRONG[activation]:
        assert is_refused(compute), compute.__name__


@pytest.mark.parametrize("seed", [0, 1])
def test_many_work_groups_and_a_short_row_of_negative_logits_are_in_trials(seed: int) -> None:
    """A kernel that takes 0 for a missing logit is right unless all others are negative, and one that finds the rows of
    a work-group wrongly may be right for few work-groups."""
    kernels = [kernel for expected, kernel in read_samples() if expected == "computes" and kernel.op == "topk"]
    assert kernels
    for kernel in kernels:
        arch, config = archs.load(kernel.arch), kernel.config
        assert isinstance(config, Config)
        assert max(problem.rows for problem in list_trials(config, arch)) > 8 * count_rows(config, arch)
        short = [problem for problem in list_trials(config, arch) if problem.experts < config.experts]
        rows = [row for problem in short for row in make_inputs(problem, seed, arch)["x"].astype(np.float64)]
        assert any((row < 0).all() for row in rows), kernel.slug


def test_rows_may_have_gaps_and_results_may_not() -> None:
    problem = Problem(activation="softmax", rows=3, experts=8, k=2, dtype="fp16")
    assert apply_strides(problem, {"x": (12, 1)}).stride_x == 12
    assert [tensor.strides for tensor in list_tensors(problem)] == [(8, 1), (2, 1), (2, 1)]
    with pytest.raises(Exception, match="weights"):
        apply_strides(problem, {"weights": (3, 1)})
