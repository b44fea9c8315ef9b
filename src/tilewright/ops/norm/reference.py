"""Random inputs of a norm, its reference outputs, the allowed error of each element, and problems to try.

Imports NumPy: import this module only where arrays are used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats, find_largest, to_numpy_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.rounding import add_store_error, compute_store_error, to_float64
from tilewright.ops.norm.config import Config, get_common_fields
from tilewright.ops.norm.problem import STRIDES, Problem, list_tensors
from tilewright.ops.norm.rules import FIT_RULES
from tilewright.ops.rule import is_legal
from tilewright.ops.tolerance import Tolerance

U = 2.0**-24  # the rounding error of fp32
EPSILONS = (1e-3, 1e-5)  # of successive trials: a kernel that ignores epsilon is wrong in one of them


def make_inputs(problem: Problem, seed: int, arch: Arch) -> dict[str, NDArray[Any]]:
    """Inputs by name. Seed 0 gives whole numbers, or a power of two of them, so that sums of squares are exact; others
    normal distributions.

    Rows have different sizes, and half of them a mean of several deviations. Every second one is so small that epsilon
    is about as large as its variance.
    """
    generator = np.random.default_rng([seed, problem.rows, problem.columns])
    small = (np.arange(problem.rows) + seed) % 2 == 1
    near_zero = np.where(small, _find_power_of_two(math.sqrt(problem.epsilon)), 1.0)[:, None]
    made = {}
    for tensor in list_tensors(problem):
        if tensor.output:
            continue
        if len(tensor.shape) == 1:  # a factor or a bias of each column
            drawn = generator.uniform(-1, 1, tensor.shape)
            values = generator.choice((-1.0, 1.0), tensor.shape) * 2.0 ** (np.rint(drawn) if seed == 0 else drawn)
        elif seed == 0:
            values = generator.integers(-8, 9, tensor.shape).astype(np.float64) * near_zero
        else:
            factors = 2.0 ** generator.integers(-2, 3, (problem.rows, 1)) * near_zero
            values = (generator.normal(size=tensor.shape) + 4 * generator.integers(0, 2, (problem.rows, 1))) * factors
        made[tensor.name] = values.astype(to_numpy_dtype(tensor.dtype, arch))
    return made


def _find_power_of_two(value: float) -> float:
    """The largest power of two that is not above a value: a factor that rounds nothing. 1 for 0."""
    return 2.0 ** math.floor(math.log2(value)) if value else 1.0


def compute_reference(problem: Problem, given: Mapping[str, NDArray[Any]], arch: Arch) -> dict[str, Floats]:
    """The outputs by name in float64. Quantised values are truncated to int8, and not rounded to fp8."""
    found = _compute_values(problem, given, arch)
    if problem.dtype_y == "int8":
        found["y"] = np.trunc(found["y"])
    outputs = [tensor for tensor in list_tensors(problem) if tensor.output]
    return {tensor.name: found[tensor.name].reshape(tensor.shape) for tensor in outputs}


def _compute_values(problem: Problem, given: Mapping[str, NDArray[Any]], arch: Arch) -> dict[str, Floats]:
    """All values in float64, those of rows as one column. `normalized` is y before it is quantised."""
    wide = {name: to_float64(values) for name, values in given.items()}
    total = wide["x"] + wide.get("residual", 0.0)
    mean = total.mean(axis=1, keepdims=True) if problem.kind == "layer" else np.zeros((len(total), 1))
    variance = ((total - mean) ** 2).mean(axis=1, keepdims=True)
    rstd = 1 / np.sqrt(variance + np.float64(np.float32(problem.epsilon)))
    found = {"sum": total, "mean": mean, "variance": variance, "rstd": rstd}
    y = total if problem.kind == "smoothquant" else (total - mean) * rstd * wide["weight"] + wide.get("bias", 0.0)
    found["normalized"] = y = y * wide.get("smooth", 1.0)
    if problem.quant != "none":
        found["scale"] = np.abs(y).max(axis=1, keepdims=True) / find_largest(problem.dtype_y, arch)
        y = np.divide(y, found["scale"], out=np.zeros_like(y), where=found["scale"] > 0)
    return {**found, "y": y}


def compute_tolerance(
    config: Config,
    problem: Problem,
    inputs: Mapping[str, NDArray[Any]],
    reference: Mapping[str, NDArray[Any]],
    arch: Arch,
) -> dict[str, Tolerance]:
    """The allowed error of each element of each output: the sums' in fp32, then that of every further step.

    A thread adds up its own elements one after the other, then lanes and waves are combined. The relative error of a
    sum of squares is at most one rounding for each step; that of Welford's variance is larger by the ratio of root mean
    square and deviation (Chan, Golub and LeVeque, 1983). Limits take all steps, deviations the root of their number.
    Truncation to int8 gives the same integer unless one is within the error: then the next one is right, too.
    """
    steps = math.ceil(problem.columns / config.threads) + 16
    exact = _compute_values(problem, inputs, arch)
    limits, deviations = (_compute_errors(config, problem, inputs, exact, n, arch) for n in (steps, math.sqrt(steps)))
    found = {}
    for tensor in list_tensors(problem):
        if tensor.output:
            off = Tolerance(limits[tensor.name].reshape(tensor.shape), deviations[tensor.name].reshape(tensor.shape))
            if tensor.dtype == "int8":
                whole = np.trunc(exact["y"] - off.limit) != np.trunc(exact["y"] + off.limit)
                found[tensor.name] = Tolerance(whole.astype(np.float64), whole.astype(np.float64))
            else:
                exact_values = to_float64(reference[tensor.name])
                found[tensor.name] = add_store_error(exact_values, off, tensor.dtype, "fp32", arch)
    return found


def _compute_errors(
    config: Config,
    problem: Problem,
    inputs: Mapping[str, NDArray[Any]],
    exact: Mapping[str, Floats],
    steps: float,
    arch: Arch,
) -> dict[str, Floats]:
    """The errors of all values before they are stored, if sums take so many steps."""
    total, rstd, variance = exact["sum"], exact["rstd"], exact["variance"]
    of_sum = error = U * np.abs(total) * (config.residual != "none")
    if config.residual == "store" and config.two_pass:  # the second pass reads the stored sum
        error = error + compute_store_error(total, Tolerance(of_sum, of_sum), problem.dtype, "fp32", arch).limit
    errors = {"sum": of_sum}
    smooth = np.abs(to_float64(inputs["smooth"])) if problem.quant == "smooth" else 1.0
    if problem.kind != "smoothquant":
        weight = np.abs(to_float64(inputs["weight"]))
        size = np.sqrt((total * total).mean(axis=1, keepdims=True))
        condition = size / np.sqrt(np.maximum(variance, 1e-300))
        errors["mean"] = (2 * steps + 2) * U * size * (problem.kind == "layer")
        errors["rstd"] = rstd * (variance * rstd * rstd * (steps * condition + 4) + 6) * U
        centred = np.abs(total - exact["mean"])
        error = weight * rstd * (error + errors["mean"] + U * centred)
        error = error + weight * centred * (errors["rstd"] + 3 * U * rstd)
    # The sum with the bias, and the product with the smooth factor.
    error = error * smooth + 2 * U * np.abs(exact["normalized"])
    if problem.quant != "none":
        largest = find_largest(problem.dtype_y, arch)
        scale = np.where(exact["scale"] > 0, exact["scale"], 1.0)
        errors["scale"] = error.max(axis=1, keepdims=True) / largest + 3 * U * scale
        error = (error + np.abs(exact["y"]) * errors["scale"]) / scale + 3 * U * np.abs(exact["y"])
    return {**errors, "y": error}


def list_trials(config: Config, arch: Arch) -> tuple[Problem, ...]:
    """Problems at the edges of a kernel: one row, one more and one less than a work-group has, short and long rows."""
    whole, vector = config.columns, config.vector
    sizes = (
        (2 * config.rows + 1, whole, 0),
        (config.rows, whole - vector, 0),
        (1, vector, 0),
        (config.rows + 1, whole // 2 + vector, 3 * vector),
        (config.rows + 1, whole, vector),
        (3, 3 * whole, vector),
        (config.rows + 1, 2 * whole + vector, 0),
        (1, 5 * whole - vector, 0),
    )
    found = []
    for rows, columns, gap in sizes:
        if columns > 0:
            strides: dict[str, Any] = {name: columns + gap * times for times, name in enumerate(STRIDES.values(), 1)}
            found.append(Problem(**get_common_fields(config), rows=rows, columns=columns, **strides))
    legal = [problem for problem in found if is_legal(FIT_RULES, config, problem, arch)]
    return tuple(replace(problem, epsilon=epsilon) for problem, epsilon in zip(legal, cycle(EPSILONS), strict=False))
