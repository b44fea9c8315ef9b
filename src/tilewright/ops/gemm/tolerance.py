"""How far a GEMM's output may be from the exact result: a bound for each element, derived from how it is computed.

Imports NumPy: import this module only where arrays are at hand.

**Summation.** c = Σ a·b over k terms, in the accumulator's type, in an order nobody promises. Each of the at most k
roundings (k - 1 sums, and one product where products are not exact) changes a partial result by a factor of at most
1 ± u. Together that is an error of at most γ(k) · Σ|a||b| with γ(k) = k·u / (1 - k·u), in any order (Higham,
Accuracy and Stability of Numerical Algorithms, section 4.2). u is 2⁻²³ for fp32: the inside of a matrix unit is not
documented and may cut off instead of rounding. Whole numbers are summed exactly while Σ|a||b| is at most 2²⁴,
integers always.

**Subnormals.** Some GPUs' matrix instructions (`Arch.numbers.halves_flushed`) take subnormal fp16 and bf16 inputs for
zero: what these inputs contribute is allowed to be missing. Any sum may lose results below the smallest normal fp32.

**Storing.** A value is rounded to C's type: half an ulp. CK Tile cuts off when it makes bf16
(CK_TILE_FLOAT_TO_BFLOAT16_DEFAULT in ck_tile/core/config.hpp), and rounds with newer ROCm headers: one ulp covers
both. A value that is exact so far and that C's type holds is stored as it is.

**Split-K.** Each part is rounded to C's type and added to C atomically in that type, in any order: a rounding of each
part, and k_batch - 1 roundings of sums of parts, which are at most Σ|part|.

**D tensors.** The element-wise operation is computed in fp32 (`elementwise.error`). With the cshuffle epilogue the
product was rounded to C's type before, with the default epilogue it was not. The result is rounded to C's type; a C
of integers is cut off: less than 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats, format_of, is_integer, representable, spacing
from tilewright.arch.spec import Arch
from tilewright.ops.gemm import elementwise
from tilewright.ops.gemm.config import Config
from tilewright.ops.gemm.problem import Problem
from tilewright.ops.gemm.reference import d_tensors, wide

# Largest relative error of one step of a sum, by accumulator.
STEP = {"fp32": 2.0**-23, "fp64": 2.0**-52}
# Ulps of C's type that storing may cost, where it is not half a one.
STORE_ULPS = {"bf16": 1.0}


def tolerance(
    config: Config,
    problem: Problem,
    inputs: Mapping[str, NDArray[Any]],
    reference: Mapping[str, NDArray[Any]],
    arch: Arch,
) -> dict[str, Floats]:
    """The largest error allowed to each element of c."""
    exact = wide(reference["c"])
    if is_integer(config.dtype_acc) and problem.elementwise == "PassThrough":
        return {"c": np.zeros_like(exact)}
    a, b = wide(inputs["a"]), wide(inputs["b"])
    if problem.k_batch > 1:
        return {"c": _split(config, problem, a, b, arch)}
    product = a @ b
    summed = _summation(config, a, b, arch)
    if problem.elementwise == "PassThrough":
        return {"c": summed + _stored(product, summed, config, arch)}
    if config.epilogue == "cshuffle":
        summed = summed + _stored(product, summed, config, arch)
    ds = d_tensors(problem, inputs)
    off = elementwise.error(problem.elementwise, product, ds, summed, integers=is_integer(config.dtype_c))
    return {"c": off + _stored(exact, off, config, arch, computed="fp32")}


def _summation(config: Config, a: Floats, b: Floats, arch: Arch) -> Floats:
    """The error of a sum of products before it is stored."""
    magnitude = np.abs(a) @ np.abs(b)
    if is_integer(config.dtype_acc):
        return np.zeros_like(magnitude)
    terms = a.shape[-1]
    step, kind = STEP[config.dtype_acc], format_of(config.dtype_acc, arch)
    inexact = terms * step / (1 - terms * step) * magnitude + terms * kind.smallest_normal
    whole = bool(np.all(a == np.rint(a)) and np.all(b == np.rint(b)))
    bound = np.where(whole & (magnitude <= kind.integers), 0.0, inexact)
    return bound + _flushed(config, a, b, arch)


def _flushed(config: Config, a: Floats, b: Floats, arch: Arch) -> Floats:
    """What subnormal inputs contribute, on a GPU that takes them for zero."""
    if not arch.numbers.halves_flushed or config.dtype_a not in ("fp16", "bf16"):
        return np.zeros(np.broadcast_shapes((*a.shape[:-1], b.shape[-1])))
    kept_a = _without_subnormals(a, config.dtype_a, arch)
    kept_b = _without_subnormals(b, config.dtype_b, arch)
    lost: Floats = np.abs(a) @ np.abs(b) - np.abs(kept_a) @ np.abs(kept_b)
    return np.maximum(lost, 0.0)


def _without_subnormals(values: Floats, name: str, arch: Arch) -> Floats:
    return np.where(np.abs(values) < format_of(name, arch).smallest_normal, 0.0, values)


def _stored(values: Floats, off: Floats, config: Config, arch: Arch, computed: str | None = None) -> Floats:
    """The error of storing values in C's type, when they are off by up to `off` and were computed in `computed`."""
    name = config.dtype_c
    if name == (computed or config.dtype_acc):
        return np.zeros_like(off)
    lost = STORE_ULPS.get(name, 1.0 if is_integer(name) else 0.5) * spacing(np.abs(values) + off, name, arch)
    return np.where((off == 0) & representable(values, name, arch), 0.0, lost)


def _split(config: Config, problem: Problem, a: Floats, b: Floats, arch: Arch) -> Floats:
    """The error of parts of K that are added atomically in C's type."""
    total = np.zeros(np.broadcast_shapes((*a.shape[:-1], b.shape[-1])))
    reach = np.zeros_like(total)
    whole = np.ones(total.shape, dtype=bool)
    for part_a, part_b in _parts(config, problem, a, b):
        product = part_a @ part_b
        off = _summation(config, part_a, part_b, arch)
        off = off + _stored(product, off, config, arch)
        total += off
        reach += np.abs(product) + off
        whole &= (off == 0) & (product == np.rint(product))
    name = config.dtype_c
    if is_integer(name):
        return total
    ulp = spacing(reach, name, arch)
    added = STORE_ULPS.get(name, 0.5) * ulp * (problem.k_batch - 1)
    return total + np.where(whole & (reach <= format_of(name, arch).integers), 0.0, added)


def _parts(config: Config, problem: Problem, a: Floats, b: Floats) -> Iterator[tuple[Floats, Floats]]:
    # Whole mma tiles, the same number for every part but the last (split_of in launch.hpp).
    first = -(-problem.k // (problem.k_batch * config.mma.k)) * config.mma.k
    for start in range(0, problem.k, first):
        yield a[..., start : start + first], b[..., start : start + first, :]
