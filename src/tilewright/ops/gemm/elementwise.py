"""The element-wise operations in NumPy, and error bounds of their single-precision code.

Imports NumPy: import this module only where arrays are used. The functions follow CK Tile's definitions
(ck_tile/ops/elementwise/unary_element_wise_operation.hpp), including its rounded constants. All of them compute in fp32
on the device. Errors are in units of ULP = 2**-23, the largest relative distance of two neighbours in fp32; one
rounding to nearest has an error of half of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.arch.number_formats import Floats
from tilewright.ops.gemm.own_operations import OwnOperation, load_own_operations
from tilewright.ops.tolerance import Tolerance

ULP = 2.0**-23
SMALLEST_NORMAL = 2.0**-126  # results below it may be flushed to zero

# Accuracy of ROCm's fp32 functions, in ulps: the bounds that OpenCL 1.2 (section 7.4) requires, which are wider than
# those of the device library. A reciprocal instruction is within 1 ulp; so is a division.
EXP_ULPS = 3
TANH_ULPS = 5
ERF_ULPS = 16
RECIPROCAL_ULPS = 1

# FastGelu's and Gelu's constants as floats. FastGelu's are doubled before they are rounded, which is exact.
_CUBIC = -2.0 * float(np.float32(0.035677))
_LINEAR = -2.0 * float(np.float32(0.797885))
_ROOT_HALF = float(np.float32(0.70710678118))


@dataclass(frozen=True, slots=True)
class Unary:
    """A function of one value: `slope` bounds its derivative, `own_error(x, y)` the error of computing y in fp32."""

    apply: Callable[[Floats], Floats]
    slope: float
    own_error: Callable[[Floats, Floats], Floats]


def _relu(x: Floats) -> Floats:
    return np.maximum(x, 0.0)


def _sigmoid(x: Floats) -> Floats:
    # exp of a large argument is inf and gives the correct limit.
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-x)))


def _silu(x: Floats) -> Floats:
    return x * _sigmoid(x)


def _fast_gelu(x: Floats) -> Floats:
    return x * _sigmoid(-_fast_gelu_exponent(x))


def _fast_gelu_exponent(x: Floats) -> Floats:
    return x * (_CUBIC * x * x + _LINEAR)


def _gelu(x: Floats) -> Floats:
    erf = np.asarray(np.vectorize(math.erf, otypes=[np.float64])(_ROOT_HALF * x))
    return 0.5 * x * (1.0 + erf)


def _no_error(x: Floats, y: Floats) -> Floats:  # noqa: ARG001  (all have this signature)
    return np.zeros_like(x)


def _sigmoid_error(x: Floats, y: Floats) -> Floats:  # noqa: ARG001
    # exp, one sum, one division; the relative error of y from the exponential is at most the exponential's.
    return (EXP_ULPS + 0.5 + RECIPROCAL_ULPS) * ULP * np.abs(y) + SMALLEST_NORMAL


def _silu_error(x: Floats, y: Floats) -> Floats:
    # As the sigmoid, and one product. If exp overflows, sigmoid(x) is 0 instead of at most 2**-126.
    return _sigmoid_error(x, y) + 0.5 * ULP * np.abs(y) + SMALLEST_NORMAL * np.abs(x)


def _fast_gelu_error(x: Floats, y: Floats) -> Floats:
    # Four roundings make the exponent's relative error 2 ulps; its two terms have the same sign. exp turns an absolute
    # error of its argument into a relative error of its result.
    exponent = np.abs(_fast_gelu_exponent(x))
    relative = 2 * exponent + EXP_ULPS + 0.5 + RECIPROCAL_ULPS + 0.5
    return relative * ULP * np.abs(y) + SMALLEST_NORMAL * (1 + np.abs(x))


def _gelu_error(x: Floats, y: Floats) -> Floats:
    # For negative x, 1 + erf cancels, so erf's error counts as an absolute one. A rounded argument z of erf changes it
    # by z · erf'(z) half ulps, and z · erf'(z) is below 0.5. Two products follow.
    in_sum = ERF_ULPS + 0.5 * 0.5 + 0.5
    return 0.5 * np.abs(x) * in_sum * ULP + 2 * 0.5 * ULP * np.abs(y) + SMALLEST_NORMAL


def _tanh_error(x: Floats, y: Floats) -> Floats:  # noqa: ARG001
    return TANH_ULPS * ULP * np.abs(y) + SMALLEST_NORMAL


# The largest slopes are at x = sqrt(2) for Gelu, near it for FastGelu, and near 2.4 for Silu; rounded up.
UNARY = {
    "Relu": Unary(_relu, 1.0, _no_error),
    "Gelu": Unary(_gelu, 1.13, _gelu_error),
    "FastGelu": Unary(_fast_gelu, 1.13, _fast_gelu_error),
    "Silu": Unary(_silu, 1.1, _silu_error),
    "Sigmoid": Unary(_sigmoid, 0.25, _sigmoid_error),
    "Tanh": Unary(np.tanh, 1.0, _tanh_error),
}


def find_unary(name: str) -> Unary:
    """The function of an operation: CK Tile's, or one of yours."""
    return UNARY[name] if name in UNARY else _make_own(load_own_operations()[name])


@functools.cache
def _make_own(operation: OwnOperation) -> Unary:
    def own_error(x: Floats, y: Floats) -> Floats:  # noqa: ARG001
        return operation.error_ulps * ULP * np.abs(y) + SMALLEST_NORMAL

    function = operation.import_reference()
    return Unary(lambda x: np.asarray(function(x), np.float64), operation.slope, own_error)


def apply(name: str, product: Floats, ds: Sequence[Floats]) -> Floats:
    """Apply the operation to A·B and the D tensors."""
    if name == "PassThrough":
        return product
    if name == "MultiDMultiply":
        return math.prod(ds, start=product)
    total = sum(ds, start=product)
    return total if name == "MultiDAdd" else find_unary(name).apply(total)


def compute_error(
    name: str, product: Floats, ds: Sequence[Floats], product_error: Tolerance, *, integers: bool
) -> Tolerance:
    """The error of the operation if the product itself has the error `product_error`.

    With n D tensors, a sum or product of them has n roundings, and one more per operand if operands are integers that
    fp32 may not represent. Of these errors, which are small, only the limit is known.
    """
    if name == "PassThrough":
        return product_error
    magnitudes = [np.abs(d) for d in ds]
    reach = np.abs(product) + product_error.limit
    steps = len(ds) + (len(ds) + 1 if integers else 0)
    if name == "MultiDMultiply":
        scale = math.prod(magnitudes, start=np.ones_like(product))
        own = _compute_rounding_error(steps, reach * scale, product * scale, product_error.limit)
        return product_error.scale(scale) + Tolerance(own, own)
    reach = sum(magnitudes, start=reach)
    own = _compute_rounding_error(steps, reach, reach, product_error.limit)
    summed = product_error + Tolerance(own, own)
    if name == "MultiDAdd":
        return summed
    total = sum(ds, start=product)
    function = find_unary(name)
    # The largest own error within the range of the argument's error.
    result = np.abs(function.apply(total)) + function.slope * summed.limit
    own = function.own_error(np.abs(total) + summed.limit, result)
    return summed.scale(function.slope) + Tolerance(own, own)


def _compute_rounding_error(steps: int, reach: Floats, exact: Floats, input_error: Floats) -> Floats:
    """The error of `steps` roundings of values up to `reach`; 0 if all values are integers that fp32 represents."""
    relative = steps * 0.5 * ULP / (1 - steps * 0.5 * ULP)
    whole = (input_error == 0) & (exact == np.rint(exact)) & (reach <= 2.0**24)
    return np.where(whole, 0.0, relative * reach)
