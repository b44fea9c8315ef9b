"""Profiles: the kernels that an integration needs, each a predicate over configs.

They filter a given list of kernels, such as the space `default`: a profile requires features, not tiles.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch.spec import Arch
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.families import (
    BATCH_PREFILL,
    COMBINE,
    CONVERT_DQ,
    DOT_DO_O,
    DQ_DK_DV,
    DTYPES,
    FORWARD,
    SPLITKV,
)
from tilewright.ops.op import Profile

_HALVES = ("fp16", "bf16")
_GRADIENTS = (DOT_DO_O, DQ_DK_DV, CONVERT_DQ)
FP8 = tuple(name for name, types in DTYPES.items() if types.qkv in ("fp8", "bf8"))


def _is_for_frameworks(config: Config) -> bool:
    """Whether a kernel has none of the features that frameworks do not use.

    These are transposed values, result scales, skipped sequences and sinks.
    """
    return config.v_layout == "row" and not (config.static_quant or config.skip_min_seqlen_q or config.sink)


def _is_for_ck_default(config: Config, arch: Arch) -> bool:  # noqa: ARG001
    return config.dtype != "fp32"


def _is_for_flash(config: Config, arch: Arch) -> bool:  # noqa: ARG001
    if (
        config.dtype not in _HALVES
        or config.family == BATCH_PREFILL
        or config.soft_cap
        or not _is_for_frameworks(config)
    ):
        return False
    if config.family == FORWARD and not config.lse:
        return False
    return config.bias in ("none", "alibi") and not config.bias_gradient


def _is_for_pytorch(config: Config, arch: Arch) -> bool:  # noqa: ARG001
    if config.dtype not in _HALVES or config.family not in (FORWARD, *_GRADIENTS) or config.soft_cap:
        return False
    if config.family == FORWARD and not config.lse:
        return False
    return _is_for_frameworks(config) and config.bias in ("none", "elementwise")


def _is_for_aiter(config: Config, arch: Arch) -> bool:  # noqa: ARG001
    if config.family not in (FORWARD, SPLITKV, COMBINE, BATCH_PREFILL, *_GRADIENTS):
        return False
    return config.dtype in (*_HALVES, "fp8bf16") and _is_for_frameworks(config)


def _is_fp32(config: Config, arch: Arch) -> bool:  # noqa: ARG001
    return config.dtype == "fp32"


def _is_fp8(config: Config, arch: Arch) -> bool:  # noqa: ARG001
    return config.dtype in FP8


PROFILES: Mapping[str, Profile] = {
    "ck_default": Profile(
        "the kernels of CK Tile's own examples: all types except fp32, which is not used for serving",
        _is_for_ck_default,
    ),
    "flash": Profile(
        "flash-attention: 16-bit types, LSE always returned, ALiBi as the only bias, dropout, caches, gradients",
        _is_for_flash,
    ),
    "pytorch": Profile(
        "PyTorch's scaled_dot_product_attention: 16-bit types, LSE for the gradients, an additive mask with a gradient",
        _is_for_pytorch,
    ),
    "aiter": Profile(
        "aiter, for vLLM and SGLang: 16-bit types, fp8 with bf16 results, soft cap, one-token pages, split keys",
        _is_for_aiter,
    ),
    "fp32": Profile("only fp32, to check other kernels", _is_fp32),
    "fp8": Profile("only 8-bit operands, with any result type", _is_fp8),
}
