"""Profiles: the kernels that an integration needs, each a predicate over configs.

They filter a given list of kernels: a profile requires features, not tiles. Without such a list, commands choose from
the space `profiles`, which has a few tiles only. CK's generators know profiles as receipts, by number.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.arch.spec import Arch
from tilewright.ops.fmha.config import Config
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kind import find_kind
from tilewright.ops.fmha.kinds.forward import FORWARD
from tilewright.ops.op import Profile

_HALVES = ("fp16", "bf16")
FP8 = tuple(name for name, types in DTYPES.items() if types.qkv in ("fp8", "bf8"))


def _is_for_frameworks(config: Config) -> bool:
    """Whether a kernel has none of the features that frameworks do not use.

    These are transposed values, result scales, skipped sequences and sinks.
    """
    return config.v_layout == "row" and not (config.static_quant or config.skip_min_seqlen_q or config.sink)


def _is_for_ck_default(config: Config, arch: Arch) -> bool:  # noqa: ARG001
    return config.dtype != "fp32"


def _is_for_flash(config: Config, arch: Arch) -> bool:  # noqa: ARG001
    if not _is_half_with_lse(config, "flash") or config.bias_gradient:
        return False
    return _is_for_frameworks(config) and config.bias in ("none", "alibi")


def _is_for_pytorch(config: Config, arch: Arch) -> bool:  # noqa: ARG001
    return (
        _is_half_with_lse(config, "pytorch") and _is_for_frameworks(config) and config.bias in ("none", "elementwise")
    )


def _is_half_with_lse(config: Config, profile: str) -> bool:
    """Whether a kernel has 16-bit types and no cap and, in a forward pass, stores the LSE for the gradients."""
    kind = find_kind(config)
    if config.dtype not in _HALVES or config.soft_cap or profile not in kind.profiles:
        return False
    return config.lse or kind is not FORWARD


def _is_for_aiter(config: Config, arch: Arch) -> bool:  # noqa: ARG001
    known = "aiter" in find_kind(config).profiles
    return known and config.dtype in (*_HALVES, "fp8bf16") and _is_for_frameworks(config)


def _is_fp32(config: Config, arch: Arch) -> bool:  # noqa: ARG001
    return config.dtype == "fp32"


def _is_fp8(config: Config, arch: Arch) -> bool:  # noqa: ARG001
    return config.dtype in FP8


# The space from which a profile chooses.
SPACE = "profiles"

PROFILES: Mapping[str, Profile] = {
    "ck_default": Profile(
        "the kernels of CK Tile's own examples: all types except fp32, which is not used for serving",
        _is_for_ck_default,
        SPACE,
        ("0", "1"),
    ),
    "flash": Profile(
        "flash-attention: 16-bit types, LSE always returned, ALiBi as the only bias, dropout, caches, gradients",
        _is_for_flash,
        SPACE,
        ("2", "3"),
    ),
    "pytorch": Profile(
        "PyTorch's scaled_dot_product_attention: 16-bit types, LSE for the gradients, an additive mask with a gradient",
        _is_for_pytorch,
        SPACE,
        ("4",),
    ),
    "aiter": Profile(
        "aiter, for vLLM and SGLang: 16-bit types, fp8 with bf16 results, soft cap, one-token pages, split keys",
        _is_for_aiter,
        SPACE,
        ("100", "200", "300", "400", "600"),
    ),
    "fp32": Profile("only fp32, to check other kernels", _is_fp32, SPACE, ("800", "801")),
    "fp8": Profile("only 8-bit operands, with any result type", _is_fp8, SPACE, ("888",)),
}
