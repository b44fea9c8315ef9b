"""The template variables of a convolution kernel, with CK Tile's names for field values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright.arch.dtypes import find_dtype, major_name
from tilewright.ops import c_interface, ck_shortcuts
from tilewright.ops.block_gemm.resources import (
    DOUBLE_LDS,
    PIPELINE_TYPES,
    SCHEDULER_NAMES,
    UNLOOPED,
    add_bytes,
    has_unbounded_add,
    least_steps,
)
from tilewright.ops.c_interface import format_cpp_bool
from tilewright.ops.grouped_conv.config import BACKWARD_DATA, BACKWARD_WEIGHT, FORWARD, LAYOUTS, Config
from tilewright.ops.grouped_conv.implicit_gemm import LAYOUTS as GEMM_LAYOUTS
from tilewright.ops.grouped_conv.implicit_gemm import ImplicitGemm
from tilewright.ops.grouped_conv.resources import ck_ndim, has_run_time_loop
from tilewright.ops.kernel import Kernel

_HERE = Path(__file__).parent
# Tilewright's files that a rendered source includes, by the name in its include directives.
SUPPORT = {
    **ck_shortcuts.SUPPORT,
    **c_interface.SUPPORT,
    "tilewright_grouped_conv_input_gaps.hpp": _HERE / "input_gaps.hpp",
    "tilewright_grouped_conv_args.hpp": _HERE / "launch_args.hpp",
    "tilewright_grouped_conv_implicit.hpp": _HERE / "implicit_gemm.hpp",
    "tilewright_grouped_conv_plain.hpp": _HERE / "plain_gemm.hpp",
    "tilewright_grouped_conv_launch.hpp": _HERE / "launch.hpp",
}
KERNEL_TYPES = {
    FORWARD: "GroupedConvolutionForwardKernel",
    BACKWARD_DATA: "GroupedConvolutionBackwardDataKernel",
    BACKWARD_WEIGHT: "GroupedConvolutionBackwardWeightKernel",
}
SPECIALIZATION_NAMES = {
    "default": "Default",
    "filter1x1_pad0": "Filter1x1Pad0",
    "filter1x1_stride1_pad0": "Filter1x1Stride1Pad0",
    "filter3x3": "Filter3x3",
}
_FILTER_LETTERS = {1: "X", 2: "YX", 3: "ZYX"}
HEADERS = (
    ck_shortcuts.NAME,
    "ck_tile/core.hpp",
    "ck_tile/host/kernel_launch.hpp",
    "ck_tile/ops/gemm.hpp",
    "ck_tile/ops/grouped_convolution.hpp",
    "ck_tile/ops/epilogue/cshuffle_epilogue.hpp",
    "ck_tile/ops/epilogue/default_2d_epilogue.hpp",
    "tilewright_grouped_conv_launch.hpp",
)


def make_context(kernel: Kernel) -> dict[str, Any]:
    """The variables of kernel.hip.j2."""
    config = kernel.config
    assert isinstance(config, Config)
    matrices = zip("abc", GEMM_LAYOUTS[config.direction], strict=True)
    return {
        "slug": kernel.slug,
        "symbol": kernel.symbol,
        "direction": config.direction,
        "ndim": config.ndim,
        "ck_ndim": ck_ndim(config),
        "cpp": {
            "a": find_dtype(config.dtype_a).cpp,
            "b": find_dtype(config.dtype_b).cpp,
            "acc": find_dtype(config.dtype_acc).cpp,
            "c": find_dtype(config.dtype_c).cpp,
            "stored": find_dtype(ImplicitGemm(config).dtype_c).cpp,
        },
        "layout": {matrix: major_name(letter) for matrix, letter in matrices},
        "tensors": _tensor_layouts(ck_ndim(config)),
        "block": config.block,
        "waves": config.waves,
        "mma": config.mma,
        "vector": config.vector,
        "double_lds": format_cpp_bool(config.pipeline in DOUBLE_LDS),
        "wave_groups": config.wave_groups,
        "scheduler": SCHEDULER_NAMES[config.scheduler],
        "pipeline": PIPELINE_TYPES[config.pipeline],
        "pipeline_adapter": _choose_pipeline_adapter(config),
        # The first of compv5's two waves has the result.
        "first_wave": config.pipeline == "compv5",
        "epilogue": config.epilogue,
        "specialization": SPECIALIZATION_NAMES[config.specialization],
        "merge_groups": config.merge_groups,
        "split_k": format_cpp_bool(config.split_k),
        "two_stage": format_cpp_bool(config.two_stage),
        "split_image": format_cpp_bool(config.split_image),
        "explicit_gemm": config.explicit_gemm,
        "kernel_template": "BatchedGemmKernel" if config.explicit_gemm else KERNEL_TYPES[config.direction],
        "blocks_per_cu": config.blocks_per_cu,
        "unlooped": UNLOOPED.get(config.pipeline, 0),
        "least_steps": least_steps(config.pipeline),
        "add_bytes": add_bytes(ImplicitGemm(config)),
        "unbounded_add": format_cpp_bool(config.explicit_gemm and has_unbounded_add(ImplicitGemm(config))),
    }


def _choose_pipeline_adapter(config: Config) -> str:
    """The adapter of the pipeline that CK Tile's convolution kernels need (implicit_gemm.hpp)."""
    if has_run_time_loop(config):
        return "AnyLoop"
    # They only support operands in tuples, as batched GEMMs pass them.
    return "OfTuples" if config.pipeline in ("compv6", "comp_async") and not config.explicit_gemm else ""


def _tensor_layouts(ndim: int) -> dict[str, str]:
    input_layout = LAYOUTS[ndim].upper()
    return {
        "input": input_layout,
        "weight": f"GK{_FILTER_LETTERS[ndim]}C",
        "output": input_layout.removesuffix("C") + "K",
    }
