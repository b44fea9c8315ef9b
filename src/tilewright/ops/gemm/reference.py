"""What a GEMM's outputs should be, and inputs to try it with.

Imports NumPy: import this module only where arrays are at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats, format_of, is_integer, numpy_dtype
from tilewright.arch.spec import Arch
from tilewright.ops.gemm import elementwise
from tilewright.ops.gemm.problem import Problem
from tilewright.ops.gemm.tensors import tensors

# Whole numbers that fp32 sums exactly in any order, with a margin for partial sums.
EXACT_SUM = 2**23
WHOLE_NUMBERS = 0  # the seed that asks for them


def inputs(problem: Problem, seed: int, arch: Arch) -> dict[str, NDArray[Any]]:
    """Inputs by name, as NumPy arrays in the GPU's encoding; the same for the same seed.

    Seed 0 gives small whole numbers: their sums are exact, so that a kernel's result is either right or wrong. Other
    seeds give normally distributed numbers (integers: uniformly). No sum comes near the largest value of C.
    """
    generator = np.random.default_rng([seed, problem.m, problem.n, problem.k])
    made: dict[str, NDArray[Any]] = {}
    for tensor in tensors(problem):
        if tensor.output:
            continue
        kind = numpy_dtype(tensor.dtype, arch)
        if seed == WHOLE_NUMBERS or is_integer(tensor.dtype):
            most = _largest(problem, tensor.name, arch)
            values: NDArray[Any] = generator.integers(-most, most, tensor.shape, endpoint=True)
        else:
            values = generator.standard_normal(tensor.shape)
        made[tensor.name] = values.astype(kind)
    return made


def _largest(problem: Problem, name: str, arch: Arch) -> int:
    """The largest whole number to draw for a tensor."""
    if name not in ("a", "b"):
        return 2
    if is_integer(problem.dtype_a):
        return 127
    # A sum of k products of numbers up to r has a deviation of about sqrt(k) · r² / 3. Four of them should be
    # within the whole numbers of C's type, and all sums within those of fp32.
    held = EXACT_SUM if is_integer(problem.dtype_c) else min(format_of(problem.dtype_c, arch).integers, EXACT_SUM)
    typical = int((held / (4 / 3 * problem.k**0.5)) ** 0.5)
    certain = int((EXACT_SUM / problem.k) ** 0.5)
    exact = min(format_of(kind, arch).integers for kind in (problem.dtype_a, problem.dtype_b))
    return max(1, min(typical, certain, exact))


def reference(problem: Problem, given: Mapping[str, NDArray[Any]], arch: Arch) -> dict[str, NDArray[Any]]:  # noqa: ARG001
    """The outputs by name: float64, or int64 where integers are summed and stored as they are.

    `given` holds logical arrays (m × k, k × n, m × n), whatever their memory looks like. Nothing is rounded to C's
    type: how far a kernel may be off is the matter of `tolerance`.
    """
    a, b = given["a"], given["b"]
    if is_integer(problem.dtype_a) and problem.elementwise == "PassThrough":
        return {"c": np.asarray(a, dtype=np.int64) @ np.asarray(b, dtype=np.int64)}
    product = wide(a) @ wide(b)
    return {"c": elementwise.apply(problem.elementwise, product, d_tensors(problem, given))}


def wide(values: NDArray[Any]) -> Floats:
    """The values in float64, which holds every type's exactly."""
    return np.asarray(values).astype(np.float64)


def d_tensors(problem: Problem, given: Mapping[str, NDArray[Any]]) -> list[Floats]:
    """The D tensors in float64."""
    return [wide(given[f"d{i}"]) for i in range(problem.num_d)]
