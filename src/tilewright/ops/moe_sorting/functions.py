"""`sort_by_expert`: a function of arrays, whose shapes give the problem."""

from __future__ import annotations

from typing import Any

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
    make_result,
    match_results,
)
from tilewright.ops.moe_sorting.problem import Problem, list_tensors

NAMES = ("topk_ids", "topk_weights", "expert_mask")
_DTYPES = {"topk_ids": "int32", "topk_weights": "fp32", "expert_mask": "int32"}


def sort_by_expert(
    topk_ids: Array,
    topk_weights: Array,
    experts: int,
    unit: int,
    *,
    expert_mask: Array = None,
    out: Array = None,
    stream: StreamLike = None,
    device: DeviceLike = None,
) -> tuple[Array, Array, Array, Array]:
    """Sort pairs of tokens and experts by expert: (sorted_ids, sorted_weights, sorted_experts, totals).

    `topk_ids` (tokens, k) of int32 has k experts of each token, `topk_weights` their float32 weights. The pairs of each
    expert, in the order of tokens, fill blocks of `unit` entries: the rows of a tile of the product that follows. An
    entry of `sorted_ids` is token + 2²⁴ · place, where place counts the experts of the token from 0. In entries that
    fill up a block, token is the number of tokens, place is k, and the weight is 0. `sorted_experts` has the expert of
    each block. `totals` has the number of entries, and that of tokens. Experts without tokens have no block. Results
    have room for the most entries, tokens · k + experts · unit - k; behind the last entry they are not written.

    Experts below 0, and from `experts` on, are left out: servers use -1 for none. Of equal experts of a token, only the
    last is sorted, with its own weight; entries of the others fill up the expert's blocks.

    `expert_mask` (experts,) of int32 is 1 for experts of this GPU: the others are left out, and not counted in
    `sorted_experts`. `out` is a tuple of arrays for the results.

    For arrays, kernels and options see `tilewright.matmul` and `tilewright.options`.
    """
    arrays = (topk_ids, topk_weights) if expert_mask is None else (topk_ids, topk_weights, expert_mask)
    return _sort(arrays, out, stream, device, experts, unit)  # type: ignore[no-any-return]


def plan_sorting(
    arch: Arch,  # noqa: ARG001  (planners of other ops depend on it)
    topk_ids: ArraySpec,
    topk_weights: ArraySpec,
    expert_mask: ArraySpec | None,
    *given: Any,
) -> ArrayPlan:
    """One launch. `given` are the arrays for results, the number of experts and the entries of a block."""
    *passed, experts, unit = given
    if len(topk_ids.shape) != 2:
        raise TensorError(f"topk_ids has shape {topk_ids.shape}, must have tokens and experts of a token")
    tokens, k = topk_ids.shape
    masked = expert_mask is not None
    fields: dict[str, Any] = {"experts": experts, "k": max(1, k), "unit": unit, "masked": masked}
    problem = Problem(tokens=max(1, tokens), **fields)
    wanted = {"topk_ids": (tokens, k), "topk_weights": (tokens, k), "expert_mask": (experts,)}
    inputs = []
    for array in (topk_ids, topk_weights, *((expert_mask,) if expert_mask is not None else ())):
        if array.shape != wanted[array.name] or array.dtype != _DTYPES[array.name]:
            raise TensorError(
                f"{array.name} is {array.dtype} of shape {array.shape}, must be {_DTYPES[array.name]} of "
                f"{wanted[array.name]}"
            )
        inputs.append(array if array.is_packed else array.pack())
    tensors = [tensor for tensor in list_tensors(problem) if tensor.output]
    outs = match_results(passed, [tensor.name for tensor in tensors])
    results = [
        choose_result(out, tensor.name, place, tensor.dtype, tensor.shape)
        for place, (out, tensor) in enumerate(zip(outs, tensors, strict=True), len(NAMES))
    ]
    if 0 in (tokens, k):
        empty = [make_result(result.argument, result.name, result.dtype, result.shape) for result in results]
        return ArrayPlan(tuple(empty), zeros=True)
    results = [result if result.is_packed else result.pack() for result in results]
    return ArrayPlan(tuple(results), (ArrayLaunch(problem, tuple(inputs), tuple(results)),))


_sort = ArrayFunction(plan_sorting, *NAMES, required=2)
