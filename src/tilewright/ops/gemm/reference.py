"""Reference outputs of a GEMM, and random inputs.

Imports NumPy: import this module only where arrays are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats, is_integer
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.random_values import (
    APART,
    LEAST_TERMS,
    WHOLE_NUMBERS,
    SmallIntegers,
    choose_small_integers,
    draw_signs,
    draw_values,
    draw_wide_numbers,
    far_factor,
)
from tilewright.ops.block_gemm.rounding import to_float64
from tilewright.ops.gemm import elementwise
from tilewright.ops.gemm.problem import Problem
from tilewright.ops.gemm.tensors import list_tensors


def make_inputs(problem: Problem, seed: int, arch: Arch) -> dict[str, NDArray[Any]]:
    """Inputs by name, as NumPy arrays in the GPU's encoding; the same for the same seed.

    Seed 0 gives integers: their sums are exact, so that a kernel's result is either right or wrong. Other seeds give
    normally distributed numbers (integer types: uniformly distributed). All sums are far below the largest value of C.
    """
    generator = np.random.default_rng([seed, problem.m, problem.n, problem.k])
    small = choose_small_integers((problem.dtype_a, problem.dtype_b, problem.dtype_c), problem.k, arch, problem.k_batch)
    made = {
        tensor.name: draw_values(
            generator, tensor, seed, small if tensor.name in ("a", "b") else SmallIntegers(2), arch
        )
        for tensor in list_tensors(problem)
        if not tensor.output
    }
    if seed == WHOLE_NUMBERS and problem.k >= LEAST_TERMS and not is_integer(problem.dtype_a):
        _put_wide_numbers(generator, problem, made["a"], made["b"], arch)
    return made


def _put_wide_numbers(
    generator: np.random.Generator, problem: Problem, a: NDArray[Any], b: NDArray[Any], arch: Arch
) -> None:
    """Put wide numbers of A into one term of the sums, and wide numbers of B into another.

    Each affects separate columns, or separate rows if there is only one column. Sums that C cannot represent are in a
    third group of columns.
    """
    of_a, of_b = generator.choice(problem.k, 2, replace=False)
    by_column = problem.n > 1
    for term, place in ((of_a, 0), (of_b, 1)):
        rows = by_column | (np.arange(problem.m) % APART == place)
        columns = (not by_column) | (np.arange(problem.n) % APART == place)
        a[..., :, term] = draw_signs(generator, (problem.m,)) * rows
        b[..., term, :] = draw_signs(generator, (problem.n,)) * columns
    far = far_factor(problem.dtype_a, problem.dtype_c, problem.n)
    if far and not problem.num_d:  # D tensors might make them exceed C's largest value
        b[..., of_a, 2::APART] = far
    a[..., :, of_a] *= np.abs(draw_wide_numbers(generator, a.shape[:-1], problem.dtype_a, arch)).astype(a.dtype)
    b[..., of_b, :] *= np.abs(draw_wide_numbers(generator, (*b.shape[:-2], problem.n), problem.dtype_b, arch)).astype(
        b.dtype
    )


def compute_reference(problem: Problem, given: Mapping[str, NDArray[Any]], arch: Arch) -> dict[str, NDArray[Any]]:  # noqa: ARG001
    """The outputs by name: float64, or int64 if integers are summed and stored without an element-wise operation.

    `given` has logical arrays (m × k, k × n, m × n), with any strides. Nothing is rounded to C's type:
    `compute_tolerance` defines the allowed errors.
    """
    a, b = given["a"], given["b"]
    if is_integer(problem.dtype_a) and problem.elementwise == "PassThrough":
        return {"c": np.asarray(a, dtype=np.int64) @ np.asarray(b, dtype=np.int64)}
    product = to_float64(a) @ to_float64(b)
    return {"c": elementwise.apply(problem.elementwise, product, get_d_tensors(problem, given))}


def get_d_tensors(problem: Problem, given: Mapping[str, NDArray[Any]]) -> list[Floats]:
    """The D tensors in float64."""
    return [to_float64(given[f"d{i}"]) for i in range(problem.num_d)]
