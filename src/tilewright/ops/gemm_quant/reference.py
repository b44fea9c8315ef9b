"""Random inputs of a GEMM with scales, its reference output, the allowed error of each element, and problems to try.

Imports NumPy: import this module only where arrays are used.

The product has the error of a sum (`block_gemm.rounding`). Two products in fp32 with the scales follow, each with a
rounding; then C is rounded to its type. Scales of seed 0 are powers of two, so that integers remain exact.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.matrix_product import multiply_matrices
from tilewright.ops.block_gemm.random_values import (
    LEAST_TERMS,
    WHOLE_NUMBERS,
    choose_small_integers,
    draw_values,
    put_wide_numbers,
)
from tilewright.ops.block_gemm.rounding import (
    add_store_error,
    compute_product_error,
    to_float64,
)
from tilewright.ops.block_gemm.scales import LEAST_EXPONENT, bound_scaled_error, draw_scales, multiply_scales
from tilewright.ops.block_gemm.trial_sizes import Sizes, find_units, list_edges, list_loop_sizes
from tilewright.ops.gemm_quant.config import (
    COMMON_FIELDS,
    GROUP_COLUMNS,
    GROUP_K,
    GROUP_ROWS,
    GROUPED,
    Config,
    view_gemm,
)
from tilewright.ops.gemm_quant.problem import Problem, list_tensors
from tilewright.ops.gemm_quant.rules import FIT_RULES
from tilewright.ops.rule import is_legal
from tilewright.ops.tolerance import Tolerance


def make_inputs(problem: Problem, seed: int, arch: Arch) -> dict[str, NDArray[Any]]:
    """Inputs by name, in the GPU's encoding. Seed 0 gives integers and scales that are powers of two, so that a result
    is either right or wrong; other seeds normally distributed numbers and scales between powers of two."""
    generator = np.random.default_rng([seed, problem.m, problem.n, problem.k])
    types = (problem.dtype_a, problem.dtype_b, problem.dtype_c)
    small = choose_small_integers(types, problem.k, arch)
    made: dict[str, NDArray[Any]] = {}
    for tensor in list_tensors(problem):
        if tensor.name in ("a", "b"):
            made[tensor.name] = draw_values(generator, tensor, seed, small, arch)
        elif not tensor.output:
            made[tensor.name] = draw_scales(generator, tensor, seed, arch)
    if seed == WHOLE_NUMBERS and problem.k >= LEAST_TERMS:
        put_wide_numbers(generator, made["a"], made["b"], types, arch)
    return made


def _scale_operands(problem: Problem, given: Mapping[str, NDArray[Any]]) -> tuple[Floats, Floats]:
    """A and B with each element times the scale of its group, if it has one."""
    a, b = to_float64(given["a"]), to_float64(given["b"])
    rows, columns = GROUP_ROWS.get(problem.quant), GROUP_COLUMNS.get(problem.quant)
    if rows:
        along_k = np.repeat(to_float64(given["scale_a"]), GROUP_K, axis=1)[:, : problem.k]
        a = a * np.repeat(along_k, rows, axis=0)[: problem.m]
    if columns:
        along_k = np.repeat(to_float64(given["scale_b"]), GROUP_K, axis=0)[: problem.k]
        b = b * np.repeat(along_k, columns, axis=1)[:, : problem.n]
    return a, b


def compute_reference(problem: Problem, given: Mapping[str, NDArray[Any]], arch: Arch) -> dict[str, Floats]:  # noqa: ARG001
    """C in float64, not rounded to its type. `given` has logical arrays (m × k, k × n), with any strides."""
    if problem.quant in GROUPED:
        a, b = _scale_operands(problem, given)
        return {"c": multiply_matrices(a, b)}
    product = multiply_matrices(to_float64(given["a"]), to_float64(given["b"]))
    return {"c": product * multiply_scales(given["scale_a"], given["scale_b"])}


def compute_tolerance(
    config: Config,
    problem: Problem,
    inputs: Mapping[str, NDArray[Any]],
    reference: Mapping[str, NDArray[Any]],
    arch: Arch,
) -> dict[str, Tolerance]:
    """The allowed error of each element of c."""
    exact = to_float64(reference["c"])
    if config.quant in GROUPED:
        off = _bound_group_error(config, problem, inputs, arch)
    else:
        off = _bound_product_error(config, problem, inputs, exact, arch)
    return {"c": add_store_error(exact, off, config.dtype_c, "fp32", arch)}


def _bound_product_error(
    config: Config, problem: Problem, inputs: Mapping[str, NDArray[Any]], exact: Floats, arch: Arch
) -> Tolerance:
    """The error of a sum of products, and of its two products with scales."""
    a, b = to_float64(inputs["a"]), to_float64(inputs["b"])
    summed = compute_product_error(multiply_matrices, a, b, problem.k, config.dtype_acc, arch)
    return bound_scaled_error(summed, inputs["scale_a"], inputs["scale_b"], exact, arch)


def _bound_group_error(config: Config, problem: Problem, inputs: Mapping[str, NDArray[Any]], arch: Arch) -> Tolerance:
    """The error of a sum of scaled products. Each group has up to three roundings more: of products of its sum with
    scales, and of the addition to C.

    Integers with scales of seed 0 are multiples of the smallest product of scales, so that in its units they are summed
    exactly.
    """
    unit_a = 2.0 ** (LEAST_EXPONENT if problem.quant in GROUP_ROWS else 0)
    unit_b = 2.0 ** (LEAST_EXPONENT if problem.quant in GROUP_COLUMNS else 0)
    unit = unit_a * unit_b
    scaled_a, scaled_b = _scale_operands(problem, inputs)
    a, b = scaled_a / unit_a, scaled_b / unit_b
    terms = problem.k + 3 * -(-problem.k // GROUP_K)
    summed = compute_product_error(multiply_matrices, a, b, terms, config.dtype_acc, arch)
    return summed.scale(unit)


def tolerance_basis(config: Config, problem: Problem) -> Hashable:  # noqa: ARG001
    """The part of a config that the tolerance depends on: its types."""
    return config.dtype_a, config.dtype_b, config.dtype_c


def list_trials(config: Config, arch: Arch) -> tuple[Problem, ...]:
    """Trials that the kernel supports, the most sensitive first: many tiles in every form of the loop, then edges."""
    block = config.block
    common = {name: getattr(config, name) for name in COMMON_FIELDS}
    base = Problem(m=block.m, n=block.n, k=block.k * 2, **common)
    packed = {"stride_a": 0, "stride_b": 0, "stride_c": 0}
    found: dict[Problem, None] = {}
    for alternatives in _list_sizes(config, arch):
        # A vector may be as long as the block, so that a size is 0 after subtracting it.
        whole = (sizes for sizes in alternatives if min(sizes.values(), default=1) > 0)
        made = (dataclasses.replace(base, **{**packed, **sizes}) for sizes in whole)
        first = next((problem for problem in made if is_legal(FIT_RULES, config, problem, arch)), None)
        if first is not None:
            found[first] = None
    return tuple(found)


def _list_sizes(config: Config, arch: Arch) -> Iterator[list[Sizes]]:
    """Lists of alternatives: the first of each that the kernel supports is a trial."""
    gemm = view_gemm(config)
    units = find_units(gemm, arch)
    yield from list_loop_sizes(gemm, units, arch)
    yield from list_edges(config.block, units)
    yield [{}]  # whole tiles
