"""The fields of a config that a family uses."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ops.fmha.families import (
    APPENDKV,
    BATCH_PREFILL,
    COMBINE,
    CONVERT_DQ,
    DOT_DO_O,
    DQ_DK_DV,
    FORWARD,
    PAGEDKV,
    SPLITKV,
)

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
