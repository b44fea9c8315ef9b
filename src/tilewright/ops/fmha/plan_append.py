"""The plan of `append_to_cache`: new tokens are written to a cache in place, and keys and queries are rotated."""

from __future__ import annotations

import dataclasses
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError, TensorError
from tilewright.ops.array_plan import ArrayPlan, ArraySpec, check_same_type
from tilewright.ops.fmha.array_operands import find_memory, make_launch, pack
from tilewright.ops.fmha.array_options import AttentionOptions
from tilewright.ops.fmha.array_sizes import Operands, Sizes, find_types, format_shape, read_sizes, swap_heads
from tilewright.ops.fmha.problem import Problem

_UPDATED = ("q", "k_cache", "v_cache")


def plan_append(
    arch: Arch,  # noqa: ARG001  (planners of other functions depend on it)
    k: ArraySpec,
    v: ArraySpec,
    seqlens_k: ArraySpec,
    page_table: ArraySpec | None,
    rotary_cos: ArraySpec | None,
    rotary_sin: ArraySpec | None,
    *rest: Any,
) -> ArrayPlan:
    """One launch. `rest` are the queries, keys and values that are updated, the options, and the kind of rotation."""
    *updated, options, rotary = rest
    assert isinstance(options, AttentionOptions)
    options.check()
    results = tuple(dataclasses.replace(each, name=name) for name, each in zip(_UPDATED, updated, strict=True))
    q, k_cache, v_cache = results
    sizes = read_sizes(Operands(q=q, k=k_cache, v=v_cache, seqlens_k=seqlens_k, page_table=page_table), options)
    check_same_type(q, k, v)
    length = _read_new_length(sizes, options.layout, k, v)
    rotation, tables = _prepare_rotation(sizes, length, rotary, rotary_cos, rotary_sin, q)
    if sizes.empty or not length:
        return ArrayPlan(results)
    memory = find_memory(options.layout, q, k_cache, v_cache, k, v)
    stored = [memory.view_result(array) for array in results]
    for array, view in zip(results, stored, strict=True):
        if not view.is_packed:
            raise TensorError(
                f"{array.name} is {format_shape(array)} with strides {array.strides}. It is updated in place, so it "
                "must not have gaps: copy it once into an array without gaps"
            )
    problem = Problem(
        family="appendkv",
        dtype=find_types(q, None),
        layout=memory.layout,
        seqlen_new=length,
        **sizes.describe(),
        **options.describe_scores(sizes.length_q, sizes.length_k),
        **rotation,
    )
    arrays = {
        **{"q": stored[0], "k": stored[1], "v": stored[2], "k_new": memory.view(k), "v_new": memory.view(v)},
        **{"seqlens_k": pack(seqlens_k), "page_table": None if page_table is None else pack(page_table), **tables},
    }
    return ArrayPlan(results, (make_launch(problem, arrays),))


def _read_new_length(sizes: Sizes, layout: str, k: ArraySpec, v: ArraySpec) -> int:
    """The number of new tokens of each sequence."""
    for array, size in ((k, sizes.hdim_q), (v, sizes.hdim_v)):
        shape = (array if layout == "bshd" or len(array.shape) != 4 else swap_heads(array)).shape
        if len(shape) != 4 or (shape[0], *shape[2:]) != (sizes.batch, sizes.kv_heads, size):
            raise TensorError(
                f"{array.name} is {format_shape(array)}, must have new tokens of {sizes.batch} sequences with "
                f"{sizes.kv_heads} heads of {size} elements in the layout {layout}"
            )
    if k.shape[:-1] != v.shape[:-1]:
        raise TensorError(f"k is {format_shape(k)} and v is {format_shape(v)}: they must have the same tokens")
    length = k.shape[1 if layout == "bshd" else 2]
    if length > sizes.length_k:
        raise TensorError(f"k has {length} new tokens, but the cache of a sequence holds {sizes.length_k}")
    return length


def _prepare_rotation(
    sizes: Sizes, length: int, rotary: str, cos: ArraySpec | None, sin: ArraySpec | None, q: ArraySpec
) -> tuple[dict[str, Any], dict[str, ArraySpec | None]]:
    """The fields of the rotation, and as many rows of its tables as there are positions."""
    if cos is None and sin is None:
        return {}, {"rotary_cos": None, "rotary_sin": None}
    if cos is None or sin is None:
        raise InvalidValueError("a rotation needs both rotary_cos and rotary_sin")
    check_same_type(q, cos, sin)
    positions = sizes.length_k + max(0, sizes.length_q - length)
    if len(cos.shape) != 2 or cos.shape != sin.shape or cos.shape[0] < positions or 2 * cos.shape[1] > sizes.hdim_q:
        raise TensorError(
            f"rotary_cos is {format_shape(cos)} and rotary_sin {format_shape(sin)}, both must have a row for each of "
            f"{positions} positions and at most {sizes.hdim_q // 2} columns, one for each rotated pair of elements"
        )
    used = [dataclasses.replace(pack(table), shape=(positions, table.shape[1])) for table in (cos, sin)]
    return {"rotary": rotary, "rotary_dim": 2 * cos.shape[1]}, {"rotary_cos": used[0], "rotary_sin": used[1]}
