"""The kernels to mutate: one of each op and kind, with tiles that compile and run quickly.

The newer ops' kernels are those of CI's list where it has one, so that the tests' store has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ck_trees import NEWER, TREES, use_tree
from tilewright.ops import OPS, find_op, fmha
from tilewright.ops import gemm as gemm_op
from tilewright.ops import grouped_conv as conv_op
from tilewright.ops import norm as norm_op
from tilewright.ops.kernel import Kernel

GPU = "gfx942"
GEMM: dict[str, Any] = {
    "variant": "standard",
    "dtype": "fp16",
    "layout": "rcr",
    "block": (64, 64, 32),
    "waves": (2, 2, 1),
    "mma": (16, 16, 16),
    "pipeline": "compv3",
    "scheduler": "intrawave",
    "epilogue": "cshuffle",
}
_PADDED: dict[str, Any] = {"pad_m": True, "pad_n": True, "pad_k": True}
_SHUFFLED: dict[str, Any] = {
    "block": (64, 128, 64),
    "waves": (1, 4, 1),
    "mma": (16, 16, 32),
    "pipeline": "preshufflev2",
}
_CONV: dict[str, Any] = {
    "ndim": 2,
    "dtype": "fp16",
    "block": (64, 64, 32),
    "waves": (2, 2, 1),
    "mma": (16, 16, 16),
    "pipeline": "compv3",
    "scheduler": "intrawave",
    "epilogue": "cshuffle",
}
_SMALL: dict[str, Any] = {"block": (32, 32, 32), "pipeline": "mem", "scheduler": "interwave"}
_ATTENTION: dict[str, Any] = {
    "block": (64, 64, 32, 64, 32, 64),
    "waves": (4, 1, 1, 4, 1, 1),
    "mma": (16, 16, 16, 16, 16, 16),
    "pad_q": True,
    "pad_k": True,
}
_GRADIENTS: dict[str, Any] = {
    "block": (32, 64, 64, 32, 64, 32, 32, 64, 64),
    "waves": (1, 4, 1, 4, 1, 1, 1, 4, 1),
    "mma": (16, 16, 32, 16, 16, 16, 16, 16, 32),
}
_FMHA: dict[str, dict[str, Any]] = {
    "forward": {**_ATTENTION, "pipeline": "qr", "mode": "group", "mask_form": "any", "lse": True},
    "pagedkv": {**_ATTENTION, "pipeline": "qr_pagedkv", "paged": True, "mask_form": "any"},
    "splitkv": {**_ATTENTION, "pipeline": "qr", "uneven_splits": True, "mask_form": "any"},
    "combine": {"block": (32, 64), "pad_q": True, "log_max_splits": 3, "lse": True},
    "appendkv": {"block": (64, 64, 64, 64), "pad_q": True, "pad_k": True, "rotary": "interleaved", "paged": True},
    "batch_prefill": {
        **_ATTENTION,
        **{"pipeline": "qr_async", "pad_hdim_q": 8, "pad_hdim_v": 8, "paged": True, "mask_form": "any", "lse": True},
    },
    "dot_do_o": {"block": (64, 128), "pad_q": True, "pad_hdim_v": 1},
    "dq_dk_dv": {**_GRADIENTS, "pipeline": "kr_ktr_vr", "pad_hdim_q": 8, "pad_hdim_v": 8, "mask_form": "any"},
    "convert_dq": {"block": (128, 32, 64, 128), "pad_q": True, "pad_hdim_q": 1, "deterministic": True},
}
# Two waves share a row.
_NORM: dict[str, Any] = {"dtype": "fp16", "rows": 1, "columns": 1024, "threads": 128, "vector": 8, "pad": True}
_INT8: dict[str, Any] = {"dtype_y": "int8", "quant": "dynamic"}
_SCALED: dict[str, Any] = {
    **{"dtype_a": "fp8", "dtype_b": "fp8", "dtype_acc": "fp32", "dtype_c": "bf16", "layout": "rcr"},
    **{"mma": (16, 16, 32), "pipeline": "compv3", "scheduler": "intrawave"},
}
_GROUPED: dict[str, Any] = {"block": (32, 32, 32), "waves": (2, 2, 1), "mma": (16, 16, 16), **_PADDED}
_SCALED_BY_KIND: dict[str, dict[str, Any]] = {
    "tensor": {"block": (64, 64, 64), "waves": (2, 2, 1), "pad_n": True, "pad_k": True},
    "rowcol": {"block": (64, 64, 64), "waves": (2, 2, 1), "pad_n": True, "pad_k": True},
    "b1x128": {"block": (32, 32, 128), "waves": (2, 2, 1), **_PADDED},
    "b128x128": {"block": (16, 128, 128), "waves": (1, 4, 1), **_PADDED},
    "a1x128": {"block": (32, 32, 128), "waves": (1, 2, 1), **_PADDED},
}
_TOPK: dict[str, Any] = {"dtype": "fp32", "experts": 64, "rows": 1, "threads": 64, "vector": 1}


def make_gemm(gpu: str = GPU, **changes: Any) -> Kernel:
    """Make the GEMM kernel, with other values in some fields."""
    return gemm_op.OP.make_kernel(gemm_op.config(**{**GEMM, **changes}), gpu)


def _make_conv(direction: str, vector: tuple[int, int, int], **changes: Any) -> Kernel:
    fields = {**_CONV, "direction": direction, "vector": vector, **changes}
    return conv_op.OP.make_kernel(conv_op.config(**fields), GPU)


def _make_fmha(family: str, **changes: Any) -> Kernel:
    fields = {"family": family, "mode": "batch", "dtype": "fp16", "pipeline": family, **_FMHA[family], **changes}
    return fmha.OP.make_kernel(fmha.Config(**fields), GPU)


def _make_norm(kind: str, **changes: Any) -> Kernel:
    return norm_op.OP.make_kernel(norm_op.config(**{**_NORM, "kind": kind, "dtype_y": "fp16", **changes}), GPU)


def _make(op: str, **fields: Any) -> Kernel:
    return find_op(op).make_kernel(find_op(op).make_config(**fields), GPU)


def _make_scaled(quant: str, **changes: Any) -> Kernel:
    return _make("gemm_quant", quant=quant, **{**_SCALED, **changes})


def _make_grouped(dtype: str, **changes: Any) -> Kernel:
    types = {"dtype_a": dtype, "dtype_b": dtype}
    return _make("grouped_gemm", **{**_SCALED, **types, "epilogue": "cshuffle", **_GROUPED, **changes})


def get_tree(name: str) -> str:
    """The CK tree in ../shared/ck that a kernel needs, or an empty string for the fetched one."""
    return name.partition("@")[2]


@contextmanager
def use_tree_of(name: str) -> Iterator[None]:
    """Use the CK headers that a kernel needs meanwhile."""
    if not get_tree(name):
        yield
        return
    with use_tree(TREES / get_tree(name)):
        yield


def list_kinds() -> set[str]:
    """List all kinds of all ops: the table of mutations has a kernel of each."""
    return {f"{op.name}/{kind.name}" for op in OPS for kind in op.kinds}


def get_kind(kernel: Kernel) -> str:
    """The op and kind of a kernel, as in `list_kinds`."""
    return f"{kernel.op}/{find_op(kernel.op).kind(kernel.config).name}"


def make_kernels() -> dict[str, Kernel]:
    """Make the kernels to mutate, by name: op and kind or form, after `@` the CK tree if it is not the fetched one."""
    pages: dict[str, Any] = {"mode": "group", "page_size": 16, "kv_layout": "vectorised"}
    return {
        "gemm/standard": make_gemm(),
        "gemm/batched": make_gemm(variant="batched", pipeline="mem", scheduler="interwave", **_PADDED),
        "gemm/multi_d": make_gemm(variant="multi_d", num_d=2, elementwise="Gelu", pipeline="compv4", **_PADDED),
        "gemm/preshuffle": make_gemm(variant="preshuffle", scheduler="default", **_SHUFFLED),
        "gemm/persistent": make_gemm(persistent=True, split_k=True),
        "grouped_conv/forward": _make_conv("forward", (4, 4, 4), **_SMALL),
        "grouped_conv/backward_data": _make_conv("backward_data", (4, 8, 8)),
        "grouped_conv/backward_weight": _make_conv("backward_weight", (4, 8, 8), block=(32, 64, 32), split_k=True),
        **{f"fmha/{family}": _make_fmha(family) for family in _FMHA},
        f"fmha/batch_prefill_pages@{NEWER}": _make_fmha("batch_prefill", **pages),
        "norm/rms": _make_norm("rms", residual="store", **_INT8),
        "norm/layer": _make_norm("layer", save=True),
        "norm/smoothquant": _make_norm("smoothquant", **{**_INT8, "quant": "smooth"}),
        "norm/two_pass": _make_norm("rms", residual="store", save=True, rows=2, vector=4, two_pass=True),
        **{f"gemm_quant/{quant}": _make_scaled(quant, **fields) for quant, fields in _SCALED_BY_KIND.items()},
        f"gemm_quant/a1x128_b128x128@{NEWER}": _make_scaled(
            "a1x128_b128x128", block=(32, 128, 128), waves=(1, 4, 1), **_PADDED
        ),
        "grouped_gemm/bf16": _make_grouped("bf16"),
        "grouped_gemm/fp8": _make_grouped("fp8", block=(32, 32, 64), mma=(16, 16, 32), pad_m=False),
        "topk/softmax": _make("topk", activation="softmax", **_TOPK),
        "topk/sigmoid": _make("topk", activation="sigmoid", **_TOPK),
        "moe_sorting/plain": _make("moe_sorting", tile=1),
        "moe_sorting/masked": _make("moe_sorting", tile=2, masked=True, keep_empty=True),
    }
