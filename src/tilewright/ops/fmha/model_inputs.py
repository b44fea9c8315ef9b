"""The model inputs of an attention problem for C programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tilewright.arch.dtypes import find_dtype
from tilewright.ops.cost_model.model_inputs import CModelInputs
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.families import APPENDKV, COMBINE, CONVERT_DQ, DOT_DO_O, DQ_DK_DV, SPLITKV
from tilewright.ops.fmha.types import DTYPES


def list_kind_inputs(config: Config) -> Mapping[str, float]:
    """Family and types, which the arguments of a call do not contain."""
    families = (COMBINE, APPENDKV, DOT_DO_O, CONVERT_DQ, SPLITKV, DQ_DK_DV)
    types = DTYPES[config.dtype]
    bits = {"bits": types.qkv, "bits_o": types.o, "bits_bias": types.bias}
    flags = {name: float(config.family == name) for name in families}
    return {**flags, **{name: float(find_dtype(each).bits) for name, each in bits.items()}}


# Fields that hold names (mask, bias, rotary) and those of group mode only (totals) are left out.
_SAME = (
    *("batch", "heads", "kv_heads", "seqlen_q", "seqlen_k", "hdim_q", "hdim_v", "window_left", "window_right", "sink"),
    *("static_quant", "bias_gradient", "deterministic", "num_splits", "page_size", "seqlen_new", "dq_parts"),
)
_MEMBERS = {**{name: name for name in _SAME}, "lse": "wants_lse", "store_randval": "wants_randval"}
C_NUMBERS = CModelInputs(Path(__file__).with_name("numbers.h"), list_kind_inputs, _MEMBERS)
