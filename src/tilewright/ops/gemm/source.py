"""The template variables of a GEMM kernel, with CK Tile's names for field values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tilewright import arch as archs
from tilewright.arch.dtypes import find_dtype, major_name
from tilewright.ops import c_interface, ck_shortcuts
from tilewright.ops.block_gemm import resources
from tilewright.ops.block_gemm.resources import DOUBLE_LDS, add_bytes, least_steps, list_unbounded_adds
from tilewright.ops.c_interface import format_cpp_bool
from tilewright.ops.gemm.kind import find_kind
from tilewright.ops.gemm.own_operations import load_own_operations
from tilewright.ops.kernel import Kernel

if TYPE_CHECKING:
    from tilewright.ops.gemm.config import Config

# Tilewright's files that a rendered source includes, by the name in its include directives.
SUPPORT = {
    **ck_shortcuts.SUPPORT,
    **c_interface.SUPPORT,
    "tilewright_block_gemm.hpp": Path(resources.__file__).parent / "adapters.hpp",
    "tilewright_gemm_launch.hpp": Path(__file__).parent / "launch.hpp",
}

PIPELINE_TYPES = {**resources.PIPELINE_TYPES, "preshufflev2": "WeightPreshufflePipelineAGmemBGmemCRegV2"}
SCHEDULER_NAMES = {**resources.SCHEDULER_NAMES, "default": "Default"}
# Operations that take the D tensors as arguments; CK Tile's others are unary.
TAKES_D = ("PassThrough", "MultiDAdd", "MultiDMultiply")
ELEMENTWISE_TYPES = {"Tanh": "TanH"}
HEADERS = (
    ck_shortcuts.NAME,
    "ck_tile/core.hpp",
    "ck_tile/host/kernel_launch.hpp",
    "ck_tile/ops/gemm.hpp",
    "ck_tile/ops/epilogue/cshuffle_epilogue.hpp",
    "ck_tile/ops/epilogue/default_2d_epilogue.hpp",
    "tilewright_gemm_launch.hpp",
)


def _find_own_code(operation: str) -> str:
    """The C++ code of one of your own operations; empty for CK Tile's."""
    own = load_own_operations().get(operation)
    return "" if own is None else own.cpp


def make_context(kernel: Kernel) -> dict[str, Any]:
    """The variables of kernel.hip.j2."""
    config = cast("Config", kernel.config)
    kind = find_kind(config)
    return {
        "slug": kernel.slug,
        "symbol": kernel.symbol,
        "batched": format_cpp_bool(kind.batched),
        "cpp": {
            "a": find_dtype(config.dtype_a).cpp,
            "b": find_dtype(config.dtype_b).cpp,
            "acc": find_dtype(config.dtype_acc).cpp,
            "c": find_dtype(config.dtype_c).cpp,
        },
        "layout": {matrix: major_name(letter) for matrix, letter in zip("abc", config.layout, strict=True)},
        "block": config.block,
        "waves": config.waves,
        "mma": config.mma,
        "pad": {
            "m": format_cpp_bool(config.pad_m),
            "n": format_cpp_bool(config.pad_n),
            "k": format_cpp_bool(config.pad_k),
        },
        "double_lds": format_cpp_bool(config.pipeline in DOUBLE_LDS),
        "persistent": format_cpp_bool(config.persistent),
        "wave_groups": config.wave_groups,
        "preshuffle": format_cpp_bool(kind.reordered_b),
        "permute_n": format_cpp_bool(config.permute_n),
        "scheduler": SCHEDULER_NAMES[config.scheduler],
        "pipeline": PIPELINE_TYPES[config.pipeline],
        "epilogue": config.epilogue,
        "vector": config.vector,
        "kernel_template": kind.kernel_template,
        "split_k": format_cpp_bool(config.split_k),
        "num_d": config.num_d,
        "elementwise": config.elementwise,
        "elementwise_cpp": ELEMENTWISE_TYPES.get(config.elementwise, config.elementwise),
        "sums_d": config.elementwise not in TAKES_D,
        "own_cpp": _find_own_code(config.elementwise),
        "blocks_per_cu": config.blocks_per_cu,
        "loop_adapter": resources.choose_loop_adapter(config),
        "unlooped": resources.UNLOOPED.get(config.pipeline, 0),
        "least_steps": least_steps(config.pipeline),
        "unbounded_add": {
            form: format_cpp_bool(unbounded)
            for form, unbounded in list_unbounded_adds(config, archs.load(kernel.arch).family).items()
        },
        "add_bytes": add_bytes(config),
    }
