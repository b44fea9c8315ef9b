"""Error bounds of a kernel's scores, of their exponentials and of sums of exponentials.

Imports NumPy: import this module only where arrays are at hand.

Kernels multiply by log2(e) and compute powers of two. Errors of an exponent are in units of the natural logarithm, so
that a small one is a relative error of the exponential. With u = 2⁻²⁴, one rounding of fp32:

**A score** is scale · Σ q k [+ bias]. The error of the sum is that of `block_gemm.rounding`. Then scale · log2(e) is a
rounded constant of a rounded factor (2 u) and a product (1 u); a bias adds 2 u, and ALiBi's slope times a distance
3 u; their sum costs 1 u. A cap computes a tanh from an exponential and a reciprocal (CK Tile's `tanh_fast`), with an
error of at most 2⁻²⁰ of the cap.

**An exponential** is 2^(score - m), where m is the largest score of a row so far. The product may be rounded (the
compiler may also fuse it), and so may the product with m: 1 u each, and 1 u for the difference. The error of v_exp_f32
is at most one ulp, 2⁻²³. Errors of m itself cancel: numerator and denominator have the same m.

**Rescaling.** After each key tile, sums are multiplied by 2^(m before - m after), which adds the error of an
exponential and one rounding for every tile.

**A sink** is divided by scale · log2(e) and multiplied by log2(e), then treated as a score: 2 u for the rounded
factor, 2 u for the division, 2 u for the product with a rounded constant, and 2 u more for the product with the scale.

**Rows with equal scores**, from keys that are 0, have exponents of exactly 0, and so no error. A sink changes this
unless it is the same number, or so small that its exponential is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.arch.number_formats import Floats, compute_spacing, find_format, is_representable
from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm.matrix_product import multiply_matrices
from tilewright.ops.block_gemm.rounding import (
    STEP,
    STORE_ULPS,
    compute_flush_error,
    compute_product_error,
    is_flushed,
)
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.reference_forward import Scores
from tilewright.ops.tolerance import Tolerance

U = 2.0**-24
EXP = 2.0**-23
RECIPROCAL = 2.0**-22  # a division that may be a reciprocal with an error of one ulp, and a product
LOG = 2.0**-22  # a base-2 logarithm with an error of one ulp, times a constant; relative to it or to 1
TANH = 2.0**-20
# Pipelines that convert to fp16 with v_cvt_pkrtz_f16_f32, unless compiled with CK_TILE_FMHA_FLOAT_TO_FLOAT16_RTN.
_CUT_OFF = ("qr_async",)
# exp(-128) is 2⁻¹⁸⁴, which is 0 in fp32.
_FORGOTTEN = 128.0


@dataclass(frozen=True, slots=True)
class SoftmaxErrors:
    """Relative errors of one sequence, (head, query, key) unless noted."""

    exponentials: Tolerance  # the limit is after all rescaling, the deviation before
    rescaling: Floats  # (head, query): error of the sums before the last tile
    flat: NDArray[np.bool_]  # (head, query): all visible scores are equal and exact


def compute_dot_error(a: Floats, b: Floats, name: str, arch: Arch) -> Tolerance:
    """Return the error of a @ bᵀ in the matrix unit, for operands of a type."""
    turned, terms = b.swapaxes(-1, -2), a.shape[-1]
    bound = compute_product_error(multiply_matrices, a, turned, terms, "fp32", arch)
    return bound + compute_flush_error(multiply_matrices, (a, turned), (name, name), arch)


def compute_score_error(problem: Problem, of_scores: Scores, q: Floats, k: Floats, arch: Arch) -> Tolerance:
    """Return the error of each score before m is subtracted, in units of the natural logarithm."""
    products, added = np.abs(of_scores.products), np.abs(of_scores.added)
    dot = compute_dot_error(q, k, DTYPES[problem.dtype].qkv, arch).scale(problem.scale)
    own = 3 * products
    if problem.bias != "none":
        own = own + 3 * added + np.where(added > 0, products + added, 0.0)
    own = U * own
    if problem.logits_cap > 0:
        own = own + problem.logits_cap * TANH
    return (dot + Tolerance(own, own)).scale(of_scores.visible)


def compute_softmax_errors(of_scores: Scores, score_errors: Tolerance, tiles: int) -> SoftmaxErrors:
    """Return the errors of rows that are computed in the given number of key tiles."""
    size = np.where(of_scores.visible, np.abs(of_scores.final), 0.0)
    largest = np.maximum(size.max(axis=-1, initial=0.0), _compute_sink_sizes(of_scores))
    flat = is_flat(of_scores) & (score_errors.limit.max(axis=-1, initial=0.0) <= U * 4 * largest)
    step = U * 2 * 3 * largest + EXP + U
    rescaling = np.where(flat, 0.0, (tiles - 1) * step)
    exponent = U * 2 * (size + largest[..., None]) + EXP
    own = (score_errors + Tolerance(exponent, exponent)).scale(~flat[..., None])
    return SoftmaxErrors(Tolerance(own.limit + rescaling[..., None], own.deviation), rescaling, flat)


def is_flat(of_scores: Scores) -> NDArray[np.bool_]:
    """Return the rows whose visible scores all have products of 0 and the same value: (head, query)."""
    seen = of_scores.visible
    zero = np.all(~seen | (of_scores.products == 0), axis=-1)
    largest = of_scores.final.max(axis=-1, initial=-np.inf)
    below = of_scores.sinks[..., None]
    unchanged = np.isneginf(below) | (below == largest) | (below <= largest - _FORGOTTEN)
    return np.asarray(zero & unchanged & np.all(~seen | (of_scores.final == largest[..., None]), axis=-1))


def compute_sink_error(of_scores: Scores) -> Floats:
    """Return the relative error of the sum of a row's exponentials from that of its sink: (head, query)."""
    sinks = of_scores.sinks[..., None]
    share = np.exp(sinks - of_scores.largest) / of_scores.total
    size = np.where(np.isfinite(sinks), np.abs(sinks), 0.0)
    return np.asarray(share * (U * (8 * size + 2 * (size + np.abs(of_scores.largest))) + EXP + 2 * U))


def _compute_sink_sizes(of_scores: Scores) -> Floats:
    """Return the sizes of sinks that change the sums of their rows: (head, query); 0 for the others."""
    sinks = of_scores.sinks[..., None]
    counts = np.isfinite(sinks) & (sinks > of_scores.largest - _FORGOTTEN)
    return np.where(counts, np.abs(np.where(counts, sinks, 0.0)), 0.0)


def compute_exponential_sum_error(terms: int, tiles: int) -> Tolerance:
    """Return the error of a sum of exponentials: one rounding to nearest for each term and for each tile."""
    count = np.asarray(float(terms + tiles))
    return Tolerance(count * STEP["fp32"], np.sqrt(count) * STEP["fp32"])


def get_rounding_ulps(name: str, pipeline: str = "") -> float:
    """Return the error in ulps of rounding probabilities to a type. Some pipelines truncate instead of rounding."""
    cut_off = name == "fp16" and pipeline in _CUT_OFF
    return 1.0 if cut_off else STORE_ULPS.get(name, 0.5)


def get_rounding_bias(name: str, ulps: float, arch: Arch) -> float:
    """Return the mean relative loss of rounding a number to a type: half an ulp where it is truncated, else 0."""
    return 0.0 if ulps < 1 or name == "fp32" else float(2.0 ** -find_format(name, arch).precision)


def compute_weight_rounding(weights: Floats, reach: Floats, name: str, ulps: float, arch: Arch) -> Floats:
    """Return the error of rounding weights to a type, when the row's largest weight is `reach` of the rounded value.

    A weight is rounded when it is up to 1 / reach times larger, relative to the largest score so far.
    """
    if name == "fp32":
        return np.zeros_like(weights)
    kind = find_format(name, arch)
    lost = kind.smallest_normal if is_flushed(name, arch) else ulps * kind.smallest
    return ulps * 2.0 ** (1 - kind.precision) * weights + lost * reach


def compute_constant_rounding(value: float, name: str, ulps: float, arch: Arch) -> float:
    """Return the error of rounding one number to a type; 0 if the type represents it exactly."""
    if name == "fp32" or bool(is_representable(np.asarray(value), name, arch)):
        return 0.0
    return float(ulps * compute_spacing(np.asarray(value), name, arch))
