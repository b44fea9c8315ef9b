"""The C struct of an attention call."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ops.call_struct import (
    WORKSPACE,
    CallStruct,
    Member,
    TensorStruct,
    declare_number,
    declare_numbers,
    declare_pointer,
)
from tilewright.ops.execution import Tensor
from tilewright.ops.fmha.problem import Problem
from tilewright.ops.fmha.tensors import LIKE, list_tensors

# Tensors with strides, in the order of the struct. All others are plain pointers.
STRIDED = (
    *("q", "k", "v", "o", "lse", "bias", "randval", "o_acc", "lse_acc", "k_new", "v_new"),
    *("d_o", "d", "dq_acc", "dq", "dk", "dv", "dbias"),
)


def get_struct_strides(problem: Problem, tensor: Tensor) -> tuple[int, int, int, int]:
    """Return a tensor's strides (part, batch, head, row) in elements; 0 where it has none."""
    like = LIKE.get(tensor.name, tensor.name)
    axes = dict(zip(_list_axes(problem, like), tensor.strides, strict=True))
    return axes.get("part", 0), axes.get("batch", 0), axes.get("head", 0), axes.get("row", 0)


def _list_axes(problem: Problem, name: str) -> tuple[str, ...]:
    """Return the struct's names of a tensor's dimensions. In a transposed v, `row` is the dimension of elements."""
    if name == "bias" and problem.bias == "alibi":
        return ("batch", "head")
    paged = name in ("k", "v") and problem.paged
    if paged and problem.kv_layout == "vectorised":
        return (
            ("batch", "head", "row", "column", "element")
            if name == "v"
            else ("batch", "head", "column", "row", "element")
        )
    outer = ("batch",) if problem.mode == "batch" or paged else ()
    if name in ("q", "o", "k", "v", "k_new", "v_new"):
        heads_outside = problem.layout == "bhsd" or (name in ("v", "v_new") and problem.v_layout == "col")
        return (*outer, "head", "row", "element") if heads_outside else (*outer, "row", "head", "element")
    part = ("part",) if name in ("o_acc", "lse_acc", "dq_acc") else ()
    element = () if name in ("lse", "d", "lse_acc") else ("element",)
    return (*part, *outer, "head", "row", *element)


def _get_tensor_values(problem: Problem, tensor: Tensor) -> dict[str, int | Sequence[int]]:
    values: dict[str, int | Sequence[int]] = {}
    if tensor.name in STRIDED:
        values[tensor.name] = get_struct_strides(problem, tensor)
    elif tensor.name == "page_table":
        values["page_table_stride"] = tensor.strides[0]
    if tensor.name == "k" and problem.paged:
        values["pages"] = tensor.shape[0]
    return values


CALL = CallStruct(
    op="fmha",
    title="attention",
    doc="""\
A kernel of a family reads and writes the tensors that its family has; the others are not looked at:
  forward, pagedkv, batch_prefill  q, k, v [, bias] -> o [, lse, randval]
  splitkv                          q, k, v [, bias] -> o_acc, lse_acc, one part of the keys each
  combine                          o_acc, lse_acc -> o [, lse]
  appendkv                         k_new, v_new, q -> k, v, q, in place
  dot_do_o                         o, d_o -> d
  dq_dk_dv                         q, k, v, lse, d_o, d [, bias] -> dq_acc, dk, dv [, dbias, randval]
  convert_dq                       dq_acc -> dq""",
    problem_type=Problem,
    tensor=TensorStruct(
        "tensor",
        """\
A tensor of (part,) batch, head, row, element: strides in elements, that of the elements is 1.
In group mode rows of all sequences follow each other and batch is 0. Pages take the place of the batch.
lse, lse_acc and d have no elements: a row is one number, and row is 1. ALiBi's slopes (bias) have batch and head.""",
        ("part", "batch", "head", "row"),
    ),
    tensors=list_tensors,
    tensor_values=_get_tensor_values,
    members=(
        *(Member(name, "tensor") for name in STRIDED),
        declare_pointer("seqstart_q", "group mode: batch + 1 first rows of the sequences", c_type="const int32_t"),
        declare_pointer("seqstart_k", c_type="const int32_t"),
        declare_pointer(
            "seqlens_q", "lengths where they are not the differences of the above; may be null", c_type="const int32_t"
        ),
        declare_pointer(
            "seqlens_k",
            "keys in the cache of each sequence; may be null where all have seqlen_k",
            c_type="const int32_t",
        ),
        declare_pointer("page_table", "numbers of pages, batch x page_table_stride", c_type="const int32_t"),
        declare_pointer("page_starts", "batch_prefill: batch + 1 places in page_list", c_type="const int32_t"),
        declare_pointer("page_list", c_type="const int32_t"),
        declare_pointer("cache_index", "which sequence of the cache a batch has; may be null", c_type="const int32_t"),
        declare_pointer("rotary_cos", "positions x rotary_dim / 2"),
        declare_pointer("rotary_sin"),
        declare_pointer("drop_seed_at", "in device memory, instead of drop_seed; may be null", c_type="const uint64_t"),
        declare_pointer("drop_offset_at", c_type="const uint64_t"),
        declare_number("group_mode", "0 or 1", value=lambda p: p.mode == "group"),
        *declare_numbers("batch", "heads", "kv_heads", "seqlen_q", "seqlen_k", "hdim_q", "hdim_v"),
        declare_number("mask"),
        declare_number("window_left", "visible keys before the diagonal; below 0: all"),
        declare_number("window_right", "visible keys after the diagonal; below 0: all"),
        declare_number("sink"),
        declare_number("bias_kind", value="bias"),
        declare_number("wants_lse", value="lse"),
        declare_number("wants_randval", value="store_randval"),
        *declare_numbers("static_quant", "bias_gradient", "deterministic", "num_splits", "page_size"),
        Member("pages", "int64_t", "pages of the whole cache"),
        Member("page_table_stride", "int64_t", "elements between rows of page_table"),
        *declare_numbers("seqlen_new", "rotary"),
        declare_number("rotary_dim", "rotated elements of a head", value="rotary_size"),
        *declare_numbers("dq_parts", "min_seqlen_q"),
        *declare_numbers("drop_seed", "drop_offset", c_type="uint64_t"),
        *declare_numbers("scale", "logits_cap", "p_drop", "scale_p", "scale_o", c_type="double"),
        *WORKSPACE,
        declare_pointer(
            "last_page_lens",
            "batch_prefill: tokens in the last page of each sequence; null for pages of one",
            c_type="const int32_t",
        ),
        declare_number("kv_layout", "of pages: token by token, or in vectors of 16 bytes"),
        declare_number("page_lookup", "of batch_prefill: page_list or page_table"),
        declare_number("has_sinks", "batch_prefill: 0 or 1", value="sink_logits"),
        declare_pointer("sink_logits", "a number for each head, with has_sinks", c_type="const float"),
    ),
    places=lambda problem: [tensor.name for tensor in list_tensors(problem)],
)
