"""Random inputs of a GEMM, its reference outputs, and the allowed error of each element.

Imports NumPy: import this module only where arrays are used.

The allowed error is derived from the steps of the computation. `block_gemm.rounding` covers summing, storing and adding
parts. GEMM combines them as follows:

**Split-K.** Each part is rounded to C's type and added to C atomically in that type, in any order: a rounding of each
part, and k_batch - 1 roundings of sums of parts, which are at most Σ|part|.

**D tensors.** The element-wise operation is computed in fp32 (`elementwise.compute_error`). With the cshuffle epilogue
the product is rounded to C's type before, with the default epilogue it is not. The result is rounded to C's type; for
an integer C it is truncated: less than 1.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats, is_integer
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.matrix_product import multiply_matrices
from tilewright.ops.block_gemm.random_values import (
    LEAST_TERMS,
    WHOLE_NUMBERS,
    SmallIntegers,
    choose_small_integers,
    draw_values,
    put_wide_numbers,
)
from tilewright.ops.block_gemm.resources import part_size
from tilewright.ops.block_gemm.rounding import (
    SumTypes,
    add_store_error,
    compute_add_error,
    compute_flush_error,
    compute_product_error,
    compute_stored_product_error,
    make_exact_tolerance,
    to_float64,
)
from tilewright.ops.gemm import elementwise
from tilewright.ops.gemm.config import Config
from tilewright.ops.gemm.problem import Problem
from tilewright.ops.gemm.tensors import list_tensors
from tilewright.ops.tolerance import Tolerance


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
        types = (problem.dtype_a, problem.dtype_b, problem.dtype_c)
        # With D tensors, large sums might exceed C's largest value.
        put_wide_numbers(generator, made["a"], made["b"], types, arch, far=not problem.num_d)
    return made


def compute_reference(problem: Problem, given: Mapping[str, NDArray[Any]], arch: Arch) -> dict[str, NDArray[Any]]:  # noqa: ARG001
    """The outputs by name: float64, or int64 if integers are summed and stored without an element-wise operation.

    `given` has logical arrays (m × k, k × n, m × n), with any strides. Nothing is rounded to C's type:
    `compute_tolerance` defines the allowed errors.
    """
    # Contiguous: every pass over parts of it would copy them.
    product = np.ascontiguousarray(multiply_matrices(to_float64(given["a"]), to_float64(given["b"])))
    if is_integer(problem.dtype_a) and problem.elementwise == "PassThrough":
        return {"c": product.astype(np.int64)}  # sums of 8-bit products are exact in float64
    return {"c": elementwise.apply(problem.elementwise, product, get_d_tensors(problem, given))}


def get_d_tensors(problem: Problem, given: Mapping[str, NDArray[Any]]) -> list[Floats]:
    """The D tensors in float64, each in the shape of C."""
    wanted = given["a"].shape[:-1] + given["b"].shape[-1:]
    return [np.broadcast_to(to_float64(given[f"d{i}"]), wanted) for i in range(problem.num_d)]


def compute_tolerance(
    config: Config,
    problem: Problem,
    inputs: Mapping[str, NDArray[Any]],
    reference: Mapping[str, NDArray[Any]],
    arch: Arch,
) -> dict[str, Tolerance]:
    """The allowed error of each element of c."""
    exact = to_float64(reference["c"])
    if is_integer(config.dtype_acc) and problem.elementwise == "PassThrough":
        return {"c": make_exact_tolerance(exact)}
    a, b = to_float64(inputs["a"]), to_float64(inputs["b"])
    if problem.k_batch > 1:
        return {"c": _compute_split_error(config, problem, a, b, arch)}
    if problem.elementwise == "PassThrough":
        types = SumTypes(config.dtype_a, config.dtype_b, config.dtype_c, config.dtype_acc)
        return {"c": compute_stored_product_error(multiply_matrices, (a, b), exact, problem.k, types, arch)}
    off = _compute_sum_error(config, a, b, arch)
    product = multiply_matrices(a, b)
    if config.epilogue == "cshuffle":
        off = add_store_error(product, off, config.dtype_c, config.dtype_acc, arch)
    ds = get_d_tensors(problem, inputs)
    off = elementwise.compute_error(problem.elementwise, product, ds, off, integers=is_integer(config.dtype_c))
    return {"c": add_store_error(exact, off, config.dtype_c, "fp32", arch)}


def tolerance_basis(config: Config, problem: Problem) -> Hashable:
    """The part of a config that the tolerance depends on: types, epilogue with D tensors, step if K is split."""
    epilogue = "" if problem.elementwise == "PassThrough" else config.epilogue
    step = config.mma.k if problem.k_batch > 1 else 0
    return config.dtype_a, config.dtype_b, config.dtype_c, config.dtype_acc, epilogue, step


def _compute_sum_error(config: Config, a: Floats, b: Floats, arch: Arch) -> Tolerance:
    """The error of a sum of products before it is stored."""
    terms = a.shape[-1]
    bound = compute_product_error(multiply_matrices, a, b, terms, config.dtype_acc, arch)
    return bound + compute_flush_error(multiply_matrices, (a, b), (config.dtype_a, config.dtype_b), arch)


def _compute_split_error(config: Config, problem: Problem, a: Floats, b: Floats, arch: Arch) -> Tolerance:
    """The error of parts of K that are added atomically in C's type."""
    name = config.dtype_c
    reach = np.zeros((*a.shape[:-1], b.shape[-1]))
    total = make_exact_tolerance(reach)
    exact = np.ones(reach.shape, dtype=bool)
    for part_a, part_b in _split_operands(config, problem, a, b, arch):
        product = multiply_matrices(part_a, part_b)
        off = _compute_sum_error(config, part_a, part_b, arch)
        off = add_store_error(product, off, name, config.dtype_acc, arch)
        total = total + off
        reach += np.abs(product) + off.limit
        exact &= (off.limit == 0) & (product == np.rint(product))
    return total + compute_add_error(reach, problem.k_batch, name, arch, exact=exact)


def _split_operands(
    config: Config, problem: Problem, a: Floats, b: Floats, arch: Arch
) -> Iterator[tuple[Floats, Floats]]:
    start = 0
    for number in range(problem.k_batch):
        end = start + part_size(number, problem.k, problem.k_batch, config.mma.k, arch.ck)
        yield a[..., start:end], b[..., start:end, :]
        start = end
