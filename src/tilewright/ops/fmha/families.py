"""The families of attention kernels: computation, tile labels, pipelines, element types, used fields and paddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright.base.errors import choose

PAD_FIELDS = ("pad_q", "pad_k", "pad_hdim_q", "pad_hdim_v")
PADS: dict[str, tuple[Any, ...]] = {
    "none": (False, False, 0, 0),  # whole tiles of queries, keys and heads
    "queries": (True, False, 0, 0),  # any number of queries, whole tiles of keys
    "lengths": (True, True, 0, 0),  # any lengths of sequences, heads as large as the tiles
    "vectors": (True, True, 8, 8),  # and smaller heads that are multiples of 8
    "any": (True, True, 1, 1),  # and any smaller heads
    "heads": (False, False, 8, 8),  # smaller heads, for families that always pad lengths
}


def get_padding_preset(name: str) -> tuple[Any, ...]:
    """Return the values of the four fields."""
    return PADS[choose("pads of fmha", name, PADS)]


@dataclass(frozen=True, slots=True)
class ElementTypes:
    """Element types. Sums, the softmax and LSE are always fp32."""

    qkv: str  # queries, keys, values and their gradients
    p: str  # probabilities, as the operand of the second GEMM
    o: str  # the result
    bias: str


DTYPES: dict[str, ElementTypes] = {
    "fp16": ElementTypes("fp16", "fp16", "fp16", "fp16"),
    "bf16": ElementTypes("bf16", "bf16", "bf16", "bf16"),
    "fp32": ElementTypes("fp32", "fp32", "fp32", "fp32"),
    "fp8": ElementTypes("fp8", "fp8", "fp8", "fp32"),
    "bf8": ElementTypes("bf8", "bf8", "bf8", "fp32"),
    "fp8fp16": ElementTypes("fp8", "fp8", "fp16", "fp32"),
    "fp8bf16": ElementTypes("fp8", "fp8", "bf16", "fp32"),
    "fp8fp32": ElementTypes("fp8", "fp8", "fp32", "fp32"),
}


# A problem of one of these families is computed by one kernel.
FORWARD, PAGEDKV, SPLITKV, COMBINE = "forward", "pagedkv", "splitkv", "combine"
APPENDKV, BATCH_PREFILL = "appendkv", "batch_prefill"
DOT_DO_O, DQ_DK_DV, CONVERT_DQ = "dot_do_o", "dq_dk_dv", "convert_dq"
# Three kernels compute it: dot_do_o, dq_dk_dv, convert_dq. A forward problem with splits takes two: splitkv, combine.
BACKWARD = "backward"
# Families that compute scores: products of queries and keys.
SCORING = (FORWARD, PAGEDKV, SPLITKV, BATCH_PREFILL, DQ_DK_DV)

_FORWARD_BLOCK = ("m0", "n0", "k0", "n1", "k1", "hdim_q")


@dataclass(frozen=True, slots=True)
class Family:
    """`block` names the numbers of a work-group's tile; `gemms` is the number of triples in waves and mma."""

    doc: str
    block: tuple[str, ...]
    gemms: int
    pipelines: tuple[str, ...]


FAMILIES: dict[str, Family] = {
    FORWARD: Family(
        "attention in one kernel",
        _FORWARD_BLOCK,
        2,
        ("qr", "qr_async", "qr_async_trload", "qr_whole_k", "qs", "v3"),
    ),
    PAGEDKV: Family("attention over a cache of pages", _FORWARD_BLOCK, 2, ("qr_pagedkv",)),
    SPLITKV: Family(
        "attention over parts of the keys; combine merges them", _FORWARD_BLOCK, 2, ("qr", "qr_nwarp_sshuffle")
    ),
    COMBINE: Family("merges the partial results of splitkv", ("n1", "hdim_v"), 0, ("combine",)),
    APPENDKV: Family(
        "writes new keys and values to a cache, rotated", ("m0", "n0", "hdim_q", "hdim_v"), 0, ("appendkv",)
    ),
    BATCH_PREFILL: Family(
        "attention over pages of one token, listed for each sequence", _FORWARD_BLOCK, 2, ("qr_async",)
    ),
    DOT_DO_O: Family(
        "backward, first stage: sums of the output times its gradient", ("threads", "hdim_v"), 0, ("dot_do_o",)
    ),
    DQ_DK_DV: Family(
        "backward, second stage: gradients of queries, keys and values",
        ("m0", "n0", "k0", "k1", "k2", "k3", "k4", "hdim_q", "hdim_v"),
        3,
        ("kr_ktr_vr", "kr_ktr_vr_iglp", "trload_kr_ktr_vr", "trload_qr_qtr_dor"),
    ),
    CONVERT_DQ: Family(
        "backward, third stage: conversion of the summed query gradient",
        ("threads", "m0", "n0", "hdim_q"),
        0,
        ("convert_dq",),
    ),
}


class HasBlock(Protocol):
    """A config, or a part of one, with a family and the numbers of a work-group's tile."""

    @property
    def family(self) -> str: ...

    @property
    def block(self) -> tuple[int, ...]: ...


PIPELINES = tuple(dict.fromkeys(name for family in FAMILIES.values() for name in family.pipelines))


def get_tile(config: HasBlock) -> dict[str, int]:
    """Return the numbers of a config's block by name; empty if their count is not the family's (rule T207)."""
    labels = FAMILIES[config.family].block
    return dict(zip(labels, config.block, strict=True)) if len(labels) == len(config.block) else {}


_ATTENTION = (
    *("waves", "mma", "pad_q", "pad_k", "pad_hdim_q", "pad_hdim_v", "mask_form", "sink", "bias", "lse", "soft_cap"),
    *("static_quant", "blocks_per_cu"),
)
# The fields that a family uses, in addition to those that all kernels use.
USED: Mapping[str, tuple[str, ...]] = {
    FORWARD: (*_ATTENTION, "dropout", "v_layout", "skip_min_seqlen_q"),
    PAGEDKV: (*_ATTENTION, "v_layout", "paged", "skip_min_seqlen_q"),
    SPLITKV: (*(n for n in _ATTENTION if n != "lse"), "v_layout", "paged", "uneven_splits", "merge_heads"),
    COMBINE: ("pad_q", "pad_hdim_v", "lse", "static_quant", "log_max_splits", "blocks_per_cu"),
    APPENDKV: (*("pad_q", "pad_k", "pad_hdim_q", "pad_hdim_v", "v_layout", "paged", "rotary", "blocks_per_cu"),),
    BATCH_PREFILL: (*_ATTENTION, "dropout", "paged"),
    DOT_DO_O: ("pad_q", "pad_hdim_v", "blocks_per_cu"),
    DQ_DK_DV: (
        *("waves", "mma", "pad_hdim_q", "pad_hdim_v", "mask_form", "sink", "bias", "dropout", "store_randval"),
        *("bias_gradient", "deterministic", "max_seqlen_q", "blocks_per_cu"),
    ),
    CONVERT_DQ: ("pad_q", "pad_hdim_q", "deterministic", "blocks_per_cu"),
}
