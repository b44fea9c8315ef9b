"""Profiles: which kernels an integration needs, each one predicate over a config.

They choose among kernels that somebody lists, such as those of the space `default`: a profile says what a kernel must
be able to do, not which tiles it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.fmha.families import BATCH_PREFILL, COMBINE, CONVERT_DQ, DOT_DO_O, DQ_DK_DV, FORWARD, SPLITKV
from tilewright.ops.fmha.types import DTYPES
from tilewright.ops.op import Profile

_HALVES = ("fp16", "bf16")
_GRADIENTS = (DOT_DO_O, DQ_DK_DV, CONVERT_DQ)
FP8 = tuple(name for name, types in DTYPES.items() if types.qkv in ("fp8", "bf8"))


def _framework(config: Any) -> bool:
    """What frameworks do not ask for: values transposed, scales of results, sequences left out, sinks."""
    return config.v_layout == "row" and not (config.static_quant or config.skip_min_seqlen_q or config.sink)


def _ck_default(config: Any, arch: Arch) -> bool:  # noqa: ARG001
    return bool(config.dtype != "fp32")


def _flash(config: Any, arch: Arch) -> bool:  # noqa: ARG001
    if config.dtype not in _HALVES or config.family == BATCH_PREFILL or config.soft_cap or not _framework(config):
        return False
    if config.family == FORWARD and not config.lse:
        return False
    return config.bias in ("none", "alibi") and not config.bias_gradient


def _pytorch(config: Any, arch: Arch) -> bool:  # noqa: ARG001
    if config.dtype not in _HALVES or config.family not in (FORWARD, *_GRADIENTS) or config.soft_cap:
        return False
    if config.family == FORWARD and not config.lse:
        return False
    return _framework(config) and config.bias in ("none", "elementwise")


def _aiter(config: Any, arch: Arch) -> bool:  # noqa: ARG001
    if config.family not in (FORWARD, SPLITKV, COMBINE, BATCH_PREFILL, *_GRADIENTS):
        return False
    return config.dtype in (*_HALVES, "fp8bf16") and _framework(config)


def _fp32(config: Any, arch: Arch) -> bool:  # noqa: ARG001
    return bool(config.dtype == "fp32")


def _fp8(config: Any, arch: Arch) -> bool:  # noqa: ARG001
    return config.dtype in FP8


PROFILES: Mapping[str, Profile] = {
    "ck_default": Profile(
        "what CK Tile's own examples build: everything but fp32, which nobody serves with", _ck_default
    ),
    "flash": Profile(
        "flash-attention: halves, LSE always returned, ALiBi but no other bias, dropout, caches, gradients", _flash
    ),
    "pytorch": Profile(
        "PyTorch's scaled_dot_product_attention: halves, LSE kept for the gradients, an additive mask with a gradient",
        _pytorch,
    ),
    "aiter": Profile(
        "aiter, for vLLM and SGLang: halves and fp8 with bf16 results, soft cap, pages of one token, split keys", _aiter
    ),
    "fp32": Profile("fp32 alone: for checking other kernels against", _fp32),
    "fp8": Profile("8-bit operands alone, whatever the result's type", _fp8),
}
