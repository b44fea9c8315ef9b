"""The template variables of an attention kernel: CK Tile's names for the fields of a config."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tilewright.arch.dtypes import find_dtype
from tilewright.ops import c_interface, ck_shortcuts
from tilewright.ops.c_interface import format_cpp_bool
from tilewright.ops.fmha.element_types import DTYPES
from tilewright.ops.fmha.kind import AttentionKind, find_kind, split_triples
from tilewright.ops.kernel import Kernel

if TYPE_CHECKING:
    from tilewright.ops.fmha.config import Config

_HERE = Path(__file__).parent
# Our own files that every rendered source includes, by their include names.
SUPPORT = {
    **ck_shortcuts.SUPPORT,
    **c_interface.SUPPORT,
    "tilewright_fmha_settings.hpp": _HERE / "launch" / "settings.hpp",
    "tilewright_fmha_mask.hpp": _HERE / "launch" / "mask.hpp",
    "tilewright_fmha_kernel.hpp": _HERE / "launch" / "kernel.hpp",
}
HEADERS = (
    "tilewright_fmha_settings.hpp",
    ck_shortcuts.NAME,
    "ck_tile/core.hpp",
    "ck_tile/host/kernel_launch.hpp",
    "ck_tile/ops/fmha.hpp",
    "ck_tile/ops/epilogue/default_2d_epilogue.hpp",
    "tilewright_fmha_kernel.hpp",
)
_BIASES = {"none": "NO_BIAS", "elementwise": "ELEMENTWISE_BIAS", "alibi": "ALIBI"}
_ROTARIES = {"none": "NONE", "interleaved": "INTERLEAVED", "half": "HALF_ROTATED"}
_NUMBERS = ("pad_hdim_q", "pad_hdim_v", "sink", "log_max_splits", "max_seqlen_q", "blocks_per_cu")
# Fields that only some kinds have in their sources.
_NUMBERS_OF_KINDS = ("page_size",)
_FLAGS_OF_KINDS = {"vectorised": ("kv_layout", "vectorised"), "by_table": ("page_lookup", "table")}
_FLAGS = (
    *("pad_q", "pad_k", "lse", "soft_cap", "dropout", "store_randval", "static_quant", "paged", "uneven_splits"),
    *("merge_heads", "bias_gradient", "deterministic", "skip_min_seqlen_q"),
)


def find_launchers(kinds: Iterable[AttentionKind]) -> dict[str, Path]:
    """Return the files that sources of some kinds include, by their include names."""
    names = dict.fromkeys(name for kind in kinds for name in kind.launchers)
    return {name: _HERE / "launch" / name.removeprefix("tilewright_fmha_") for name in names}


def make_context(kernel: Kernel) -> dict[str, Any]:
    """Return the variables of kernel.hip.j2."""
    config = cast("Config", kernel.config)
    kind, types = find_kind(config), DTYPES[config.dtype]
    return {
        "slug": kernel.slug,
        "symbol": kernel.symbol,
        "launcher": kind.launcher,
        "cpp": {name: find_dtype(getattr(types, name)).cpp for name in ("qkv", "p", "o", "bias")},
        "tile": config.tile,
        "waves": split_triples(config.waves),
        "mma": split_triples(config.mma),
        "pipeline": config.pipeline,
        "mask_form": config.mask_form,
        "bias": _BIASES[config.bias],
        "rotary": _ROTARIES[config.rotary],
        "numbers": {
            **{name: getattr(config, name) for name in _NUMBERS},
            **{name: getattr(config, name) for name in _NUMBERS_OF_KINDS if kind.has_field(name)},
        },
        "flags": {
            "group_mode": format_cpp_bool(config.mode == "group"),
            "v_row_major": format_cpp_bool(config.v_layout == "row"),
            **{name: format_cpp_bool(getattr(config, name)) for name in _FLAGS},
            **{
                flag: format_cpp_bool(getattr(config, name) == value)
                for flag, (name, value) in _FLAGS_OF_KINDS.items()
                if kind.has_field(name)
            },
        },
    }
