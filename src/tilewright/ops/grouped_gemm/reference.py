"""Random inputs of a grouped GEMM, its reference output, the allowed error of each element, and problems to try.

Imports NumPy: import this module only where arrays are used.

Each group is a plain product, with the error of its own number of terms (`block_gemm.rounding`), and that of products
with scales (`block_gemm.scales`). Elements of C behind the last group are exactly 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
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
    compute_flush_error,
    compute_product_error,
    to_float64,
)
from tilewright.ops.block_gemm.scales import bound_scaled_error, draw_scales, multiply_scales
from tilewright.ops.block_gemm.trial_sizes import Sizes, find_units, list_edges, list_loop_sizes
from tilewright.ops.grouped_gemm.config import COMMON_FIELDS, Config, view_gemm
from tilewright.ops.grouped_gemm.problem import RAGGED, Problem, list_tensors
from tilewright.ops.grouped_gemm.rules import FIT_RULES
from tilewright.ops.rule import is_legal
from tilewright.ops.tolerance import Tolerance

# A work-group processes several tiles only if there are more than fit on the GPU at once. Larger results than this take
# too long on the host.
MOST_PERSISTENT = 1 << 22
# Numbers of groups of trials, in turn: fewer where each group has all tiles.
GROUPS = {"m": (5, 1, 3, 7, 2), "n": (5, 1, 3, 7, 2), "k": (3, 1, 4, 2), "none": (2, 1, 3)}
# How ends of groups are drawn: groups of random sizes, with one of a single element, or without reaching the end; all
# in the last, the first or a middle group; with an empty first and an empty last group.
PATTERNS = ("random", "last", "short", "first", "middle", "hollow")


class Group(NamedTuple):
    """The indices of one group into a, b, c and scales."""

    a: Any
    b: Any
    c: Any
    terms: int
    scale_a: Any
    scale_b: Any


def make_inputs(problem: Problem, seed: int, arch: Arch) -> dict[str, NDArray[Any]]:
    """Inputs by name. Seed 0 gives integers, so that a result is either right or wrong; other seeds normally
    distributed numbers. The ends of groups depend on sizes and seed: see `PATTERNS`."""
    generator = np.random.default_rng([seed, problem.m, problem.n, problem.k, problem.groups])
    types = (problem.dtype_a, problem.dtype_b, problem.dtype_c)
    small = choose_small_integers(types, problem.k, arch)
    made = {
        tensor.name: draw_values(generator, tensor, seed, small, arch)
        for tensor in list_tensors(problem)
        if tensor.name in ("a", "b")
    }
    for tensor in list_tensors(problem):
        if tensor.name in ("scale_a", "scale_b"):
            made[tensor.name] = draw_scales(generator, tensor, seed, arch)
    if problem.ragged != "none":
        made["offs"] = draw_ends(problem, choose_pattern(problem, seed), generator)
    if seed == WHOLE_NUMBERS:
        for group in list_groups(problem, made):
            a, b = made["a"][group.a], made["b"][group.b]
            if group.terms >= LEAST_TERMS and 0 not in (*a.shape, *b.shape):
                put_wide_numbers(generator, a, b, types, arch)  # they are views
    return made


def choose_pattern(problem: Problem, seed: int) -> str:
    """How the ends of a problem's groups are drawn."""
    generator = np.random.default_rng([seed, problem.m, problem.n, problem.k, problem.groups])
    return PATTERNS[int(generator.integers(len(PATTERNS)))]


def draw_ends(problem: Problem, pattern: str, generator: np.random.Generator) -> NDArray[np.int32]:
    """The end of each group along the ragged dimension."""
    total: int = getattr(problem, problem.ragged)
    groups = problem.groups
    ends = np.sort(generator.integers(0, total, groups, endpoint=True))
    if pattern == "last":
        ends[:] = 0
    elif pattern == "first":
        ends[:] = total
    elif pattern == "middle":
        ends[:] = np.where(np.arange(groups) < groups // 2, 0, total)
    elif pattern == "hollow" and groups > 2:
        ends[0], ends[-2] = 0, total
    elif pattern == "random" and groups > 2:
        ends[1] = min(ends[0] + 1, total)  # one element
        ends[2:] = np.maximum(ends[2:], ends[1])
    if pattern != "short":
        ends[-1] = total
    return ends.astype(np.int32)


def list_groups(problem: Problem, given: Mapping[str, NDArray[Any]]) -> list[Group]:
    """The part of each matrix that belongs to each group."""
    whole = slice(None)
    if problem.ragged == "none":
        return [Group(i, i, i, problem.k, i, i) for i in range(problem.groups)]
    ends = np.asarray(given["offs"]).astype(np.int64)
    found = []
    for i, (begin, end) in enumerate(zip((0, *ends[:-1]), ends, strict=True)):
        part = slice(int(begin), int(end))
        if problem.ragged == "m":
            found.append(Group(part, i, part, problem.k, part, i))
        elif problem.ragged == "n":
            found.append(Group(i, (whole, part), (whole, part), problem.k, i, part))
        else:
            found.append(Group((whole, part), part, i, int(end - begin), i, i))
    return found


def compute_reference(problem: Problem, given: Mapping[str, NDArray[Any]], arch: Arch) -> dict[str, Floats]:  # noqa: ARG001
    """C in float64, not rounded to its type; 0 for elements of no group."""
    a, b = to_float64(given["a"]), to_float64(given["b"])
    c = np.zeros(next(tensor.shape for tensor in list_tensors(problem) if tensor.name == "c"))
    for group in list_groups(problem, given):
        c[group.c] = multiply_matrices(a[group.a], b[group.b])
        if problem.has_scales:
            c[group.c] *= multiply_scales(given["scale_a"][group.scale_a], given["scale_b"][group.scale_b])
    return {"c": c}


def compute_tolerance(
    config: Config,
    problem: Problem,
    inputs: Mapping[str, NDArray[Any]],
    reference: Mapping[str, NDArray[Any]],
    arch: Arch,
) -> dict[str, Tolerance]:
    """The allowed error of each element of c: none for elements of no group, which are 0."""
    a, b, exact = to_float64(inputs["a"]), to_float64(inputs["b"]), to_float64(reference["c"])
    limit, deviation = np.zeros_like(exact), np.zeros_like(exact)
    types = (config.dtype_a, config.dtype_b)
    for group in list_groups(problem, inputs):
        left, right = a[group.a], b[group.b]
        off = compute_product_error(multiply_matrices, left, right, group.terms, config.dtype_acc, arch)
        off = off + compute_flush_error(multiply_matrices, (left, right), types, arch)
        if problem.has_scales:
            scales = inputs["scale_a"][group.scale_a], inputs["scale_b"][group.scale_b]
            off = bound_scaled_error(off, *scales, exact[group.c], arch)
        off = add_store_error(exact[group.c], off, config.dtype_c, config.dtype_acc, arch)
        limit[group.c], deviation[group.c] = off.limit, off.deviation
    return {"c": Tolerance(limit, deviation)}


def tolerance_basis(config: Config, problem: Problem) -> Hashable:  # noqa: ARG001
    """The part of a config that the tolerance depends on: its types."""
    return config.dtype_a, config.dtype_b, config.dtype_c


def list_trials(config: Config, arch: Arch) -> tuple[Problem, ...]:
    """Trials that the kernel supports, the most sensitive first: many tiles in every form of the loop, then edges.

    Forms of problems, numbers of groups and patterns of their ends alternate.
    """
    block = config.block
    common = {name: getattr(config, name) for name in COMMON_FIELDS}
    base = Problem(m=block.m, n=block.n, k=block.k * 2, groups=1, ragged="none", **common)
    forms = [ragged for ragged in RAGGED if _supports(config, _resize(base, {"ragged": ragged}), arch)]
    found: dict[Problem, None] = {}
    for turn, alternatives in enumerate(_list_sizes(config, arch)):
        for ragged in forms:
            fields = {"ragged": ragged, "groups": GROUPS[ragged][turn % len(GROUPS[ragged])]}
            # A vector may be as long as the block, so that a size is 0 after subtracting it.
            whole = (sizes for sizes in alternatives if min(sizes.values(), default=1) > 0)
            made = (_resize(base, {**fields, **sizes}) for sizes in whole)
            first = next((problem for problem in made if _supports(config, problem, arch)), None)
            if first is not None:
                found[first] = None
    return tuple(found)


def _supports(config: Config, problem: Problem, arch: Arch) -> bool:
    return is_legal(FIT_RULES, config, problem, arch)


def _resize(base: Problem, fields: Sizes) -> Problem:
    packed = {"stride_a": 0, "stride_b": 0, "stride_c": 0}
    made: Problem = dataclasses.replace(base, **{**packed, **fields})
    return made


def _list_sizes(config: Config, arch: Arch) -> Iterator[list[Sizes]]:
    """Lists of alternatives: the first of each that the kernel supports is a trial."""
    gemm = view_gemm(config)
    units = find_units(gemm, arch)
    yield from list_loop_sizes(gemm, units, arch)
    yield from list_edges(config.block, units)
    yield [{}]  # whole tiles
    yield [_sizes_beyond_gpu(config, arch)]


def _sizes_beyond_gpu(config: Config, arch: Arch) -> Sizes:
    """More tiles than a GPU has work-groups at once, if the result is not too large for the host."""
    gemm, block, compute = view_gemm(config), config.block, arch.compute
    threads = resources.block_threads(gemm, arch)
    by_threads = compute.simds_per_unit * compute.max_waves_per_simd * arch.wave_size // threads
    at_once = compute.units * max(min(by_threads, arch.lds.bytes // resources.lds_bytes(gemm, arch)), 1)
    columns = 3
    rows = -(-(at_once + 1) // columns)
    if rows * columns * block.m * block.n > MOST_PERSISTENT:
        return {"m": 0}
    return {"m": rows * block.m, "n": columns * block.n, "k": block.k, "groups": 2}
