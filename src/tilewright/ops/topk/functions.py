"""`topk_softmax` and `topk_sigmoid`: functions of arrays, whose shapes give the problem."""

from __future__ import annotations

import math

from tilewright.arch.spec import Arch
from tilewright.base.errors import TensorError
from tilewright.ops.array_plan import (
    Array,
    ArrayFunction,
    ArrayLaunch,
    ArrayPlan,
    ArraySpec,
    DeviceLike,
    StreamLike,
    choose_result,
    match_results,
)
from tilewright.ops.topk.config import DTYPES
from tilewright.ops.topk.problem import Problem

NAMES = ("x",)
_RESULTS = {"weights": "fp32", "indices": "int32"}


def topk_softmax(
    x: Array, k: int, *, out: Array = None, stream: StreamLike = None, device: DeviceLike = None
) -> tuple[Array, Array]:
    """The k most probable experts of each token: (weights, indices).

    `x` (tokens, experts) are the logits of a router, of fp32, fp16 or bf16; it may have further dimensions before.
    Weights, of float32, are the probabilities `softmax(x)` of the chosen experts. They are not normalised again: divide
    them by their sum if your model does. Indices are int32. The largest logit is first; of equal ones, that with the
    lower index. NaN counts as the largest logit. Indices are always different experts that exist; a row with NaN or
    +infinity, or with nothing but -infinity, has NaN as all its weights. Weights below 2⁻¹²⁶ may be 0. `out` is a tuple
    of arrays for both results.

    For arrays, kernels and options see `tilewright.matmul` and `tilewright.options`.
    """
    return _select((x,), out, stream, device, k, "softmax")  # type: ignore[no-any-return]


def topk_sigmoid(
    x: Array, k: int, *, out: Array = None, stream: StreamLike = None, device: DeviceLike = None
) -> tuple[Array, Array]:
    """The k experts of each token with the largest logits: (weights, indices), with weights `1 / (1 + exp(-x))`.

    A weight is NaN only if its logit is; everything else is as for `topk_softmax`.
    """
    return _select((x,), out, stream, device, k, "sigmoid")  # type: ignore[no-any-return]


def plan_topk(arch: Arch, x: ArraySpec, *given: object) -> ArrayPlan:  # noqa: ARG001  (planners of other ops do)
    """One launch. `given` are the arrays for results, k and the activation."""
    *passed, k, activation = given
    if x.dtype not in DTYPES:
        raise TensorError(f"x is {x.dtype}, kernels have {', '.join(DTYPES)}")
    if not x.shape:
        raise TensorError("x has no dimension, must have at least one: the experts")
    experts = x.shape[-1]
    if not isinstance(k, int) or not 1 <= k <= experts:
        raise TensorError(f"k is {k}, must be 1 to {experts}: x has shape {x.shape}")
    outs = match_results(passed, list(_RESULTS))
    results = []
    for place, (out, (name, dtype)) in enumerate(zip(outs, _RESULTS.items(), strict=True), len(NAMES)):
        result = choose_result(out, name, place, dtype, (*x.shape[:-1], k))
        results.append(result if result.is_packed else result.pack())
    rows = math.prod(x.shape[:-1])
    if rows == 0:
        return ArrayPlan(tuple(results), zeros=True)
    view = x.view_rows()
    problem = Problem(
        activation=str(activation), rows=rows, experts=experts, k=k, dtype=x.type, stride_x=view.strides[0]
    )
    launch = ArrayLaunch(problem, (view,), tuple(result.reshape((rows, k)) for result in results))
    return ArrayPlan(tuple(results), (launch,))


_select = ArrayFunction(plan_topk, *NAMES)
