"""The C struct of an attention call, `tw_fmha_args` of abi.h, and its values for a problem."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from tilewright.ops.execution import Tensor
from tilewright.ops.fmha.config import BIASES, ROTARIES
from tilewright.ops.fmha.problem import MASKS, Problem
from tilewright.ops.fmha.tensors import LIKE, list_tensors

# Tensors with strides, in the order of abi.h. All others are plain pointers.
STRIDED = (
    *("q", "k", "v", "o", "lse", "bias", "randval", "o_acc", "lse_acc", "k_new", "v_new"),
    *("d_o", "d", "dq_acc", "dq", "dk", "dv", "dbias"),
)
POINTERS = (
    *("seqstart_q", "seqstart_k", "seqlens_q", "seqlens_k", "page_table", "page_starts", "page_list", "cache_index"),
    *("rotary_cos", "rotary_sin", "drop_seed_at", "drop_offset_at"),
)
_NUMBERS = (
    *("group_mode", "batch", "heads", "kv_heads", "seqlen_q", "seqlen_k", "hdim_q", "hdim_v"),
    *("mask", "window_left", "window_right", "sink", "bias_kind"),
    *("wants_lse", "wants_randval", "static_quant", "bias_gradient", "deterministic"),
    *("num_splits", "page_size", "pages", "page_table_stride", "seqlen_new", "rotary", "rotary_dim"),
    *("dq_parts", "min_seqlen_q"),
)
_FLOATS = ("scale", "logits_cap", "p_drop", "scale_p", "scale_o")
# Problem fields that the struct has under the same name.
_SAME = (
    *("batch", "heads", "kv_heads", "seqlen_q", "seqlen_k", "hdim_q", "hdim_v", "window_left", "window_right", "sink"),
    *("static_quant", "bias_gradient", "deterministic", "num_splits", "page_size", "seqlen_new", "dq_parts"),
    *("min_seqlen_q", "drop_seed", "drop_offset", *_FLOATS),
)


class TensorArgs(ctypes.Structure):
    """tw_fmha_tensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("part", "batch", "head", "row")),
    )


class FmhaArgs(ctypes.Structure):
    """tw_fmha_args, field by field."""

    _fields_ = (
        ("size", ctypes.c_uint64),
        *((name, TensorArgs) for name in STRIDED),
        *((name, ctypes.c_void_p) for name in POINTERS),
        *((name, ctypes.c_int64) for name in _NUMBERS),
        ("drop_seed", ctypes.c_uint64),
        ("drop_offset", ctypes.c_uint64),
        *((name, ctypes.c_double) for name in _FLOATS),
        ("workspace", ctypes.c_void_p),
        ("workspace_size", ctypes.c_uint64),
    )


def make_arguments(problem: Problem) -> FmhaArgs:
    """Return the struct for a problem, without addresses."""
    args = FmhaArgs(size=ctypes.sizeof(FmhaArgs), **{name: getattr(problem, name) for name in _SAME})
    args.group_mode = problem.mode == "group"
    args.mask = MASKS.index(problem.mask)
    args.bias_kind = BIASES.index(problem.bias)
    args.rotary = ROTARIES.index(problem.rotary)
    args.rotary_dim = problem.rotary_size
    args.wants_lse, args.wants_randval = problem.lse, problem.store_randval
    for tensor in list_tensors(problem):
        if tensor.name in STRIDED:
            strides = get_struct_strides(problem, tensor)
            place = getattr(args, tensor.name)
            place.part, place.batch, place.head, place.row = strides
        elif tensor.name == "page_table":
            args.page_table_stride = tensor.strides[0]
        if tensor.name == "k" and problem.paged:
            args.pages = tensor.shape[0]
    return args


def make_address_setter(problem: Problem) -> Callable[[FmhaArgs, Sequence[int]], None]:
    """Return a function that writes the addresses of a problem's tensors, in order, into the struct."""
    names = [tensor.name for tensor in list_tensors(problem)]

    def set_addresses(args: FmhaArgs, addresses: Sequence[int]) -> None:
        for name, address in zip(names, addresses, strict=True):
            if name in STRIDED:
                getattr(args, name).data = address
            else:
                setattr(args, name, address)

    return set_addresses


def get_struct_strides(problem: Problem, tensor: Tensor) -> tuple[int, int, int, int]:
    """Return a tensor's strides (part, batch, head, row) for the struct of abi.h, in elements; 0 where it has none."""
    like = LIKE.get(tensor.name, tensor.name)
    axes = dict(zip(_list_axes(problem, like), tensor.strides, strict=True))
    return axes.get("part", 0), axes.get("batch", 0), axes.get("head", 0), axes.get("row", 0)


def _list_axes(problem: Problem, name: str) -> tuple[str, ...]:
    """Return the names of a tensor's dimensions in abi.h. In a transposed v, `row` is the dimension of elements."""
    if name == "bias" and problem.bias == "alibi":
        return ("batch", "head")
    paged = name in ("k", "v") and problem.paged
    outer = ("batch",) if problem.mode == "batch" or paged else ()
    if name in ("q", "o", "k", "v", "k_new", "v_new"):
        heads_outside = problem.layout == "bhsd" or (name in ("v", "v_new") and problem.v_layout == "col")
        return (*outer, "head", "row", "element") if heads_outside else (*outer, "row", "head", "element")
    part = ("part",) if name in ("o_acc", "lse_acc", "dq_acc") else ()
    element = () if name in ("lse", "d", "lse_acc") else ("element",)
    return (*part, *outer, "head", "row", *element)
