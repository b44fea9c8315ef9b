"""What a GEMM's outputs should be, and inputs to try it with.

Imports NumPy: import this module only where arrays are at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats, is_integer
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.draw import drawn, largest_factor
from tilewright.ops.block_gemm.rounding import wide
from tilewright.ops.gemm import elementwise
from tilewright.ops.gemm.problem import Problem
from tilewright.ops.gemm.tensors import tensors


def inputs(problem: Problem, seed: int, arch: Arch) -> dict[str, NDArray[Any]]:
    """Inputs by name, as NumPy arrays in the GPU's encoding; the same for the same seed.

    Seed 0 gives small whole numbers: their sums are exact, so that a kernel's result is either right or wrong. Other
    seeds give normally distributed numbers (integers: uniformly). No sum comes near the largest value of C.
    """
    generator = np.random.default_rng([seed, problem.m, problem.n, problem.k])
    factor = largest_factor((problem.dtype_a, problem.dtype_b, problem.dtype_c), problem.k, arch)
    return {
        tensor.name: drawn(generator, tensor, seed, factor if tensor.name in ("a", "b") else 2, arch)
        for tensor in tensors(problem)
        if not tensor.output
    }


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


def d_tensors(problem: Problem, given: Mapping[str, NDArray[Any]]) -> list[Floats]:
    """The D tensors in float64."""
    return [wide(given[f"d{i}"]) for i in range(problem.num_d)]
