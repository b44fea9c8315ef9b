"""The template variables of a convolution kernel, with CK Tile's names for field values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tilewright import arch as archs
from tilewright.arch.dtypes import find_dtype, major_name
from tilewright.ops import block_gemm, c_interface, ck_shortcuts
from tilewright.ops.block_gemm.resources import (
    DOUBLE_LDS,
    PIPELINE_TYPES,
    SCHEDULER_NAMES,
    UNLOOPED,
    add_bytes,
    choose_loop_adapter,
    least_steps,
    list_unbounded_adds,
)
from tilewright.ops.c_interface import format_cpp_bool
from tilewright.ops.grouped_conv.implicit_gemm import ImplicitGemm
from tilewright.ops.grouped_conv.kind import find_kind
from tilewright.ops.kernel import Kernel

if TYPE_CHECKING:
    from tilewright.ops.grouped_conv.config import Config

_HERE = Path(__file__).parent
# Tilewright's files that a rendered source includes, by the name in its include directives.
SUPPORT = {
    **ck_shortcuts.SUPPORT,
    **c_interface.SUPPORT,
    "tilewright_grouped_conv_input_gaps.hpp": _HERE / "input_gaps.hpp",
    "tilewright_grouped_conv_args.hpp": _HERE / "launch_args.hpp",
    "tilewright_grouped_conv_implicit.hpp": _HERE / "implicit_gemm.hpp",
    "tilewright_grouped_conv_plain.hpp": _HERE / "plain_gemm.hpp",
    "tilewright_block_gemm.hpp": Path(block_gemm.__file__).parent / "adapters.hpp",
    "tilewright_grouped_conv_one_instance.hpp": _HERE / "one_instance.hpp",
    "tilewright_grouped_conv_launch.hpp": _HERE / "launch.hpp",
}
# Pipelines with an implementation that chooses its loop on the device (operator() with has_hot_loop and tail_number).
RUN_TIME_LOOPS = ("mem", "compv3")
SPECIALIZATION_NAMES = {
    "default": "Default",
    "filter1x1_pad0": "Filter1x1Pad0",
    "filter1x1_stride1_pad0": "Filter1x1Stride1Pad0",
    "filter3x3": "Filter3x3",
}
# The layouts of CK Tile's convolutions by the number of spatial dimensions: channels last, grouped by group.
LAYOUTS = {1: "nwgc", 2: "nhwgc", 3: "ndhwgc"}
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
    config = cast("Config", kernel.config)
    kind = find_kind(config)
    ck_ndim = max(config.ndim, kind.least_ndim)
    return {
        "slug": kernel.slug,
        "symbol": kernel.symbol,
        "direction": kind.name,
        "ndim": config.ndim,
        "ck_ndim": ck_ndim,
        "cpp": {
            "a": find_dtype(config.dtype_a).cpp,
            "b": find_dtype(config.dtype_b).cpp,
            "acc": find_dtype(config.dtype_acc).cpp,
            "c": find_dtype(config.dtype_c).cpp,
            "stored": find_dtype(ImplicitGemm(config).dtype_c).cpp,
        },
        "layout": {matrix: major_name(letter) for matrix, letter in zip("abc", kind.layout, strict=True)},
        "tensors": _tensor_layouts(ck_ndim),
        "block": config.block,
        "waves": config.waves,
        "mma": config.mma,
        "vector": config.vector,
        "double_lds": format_cpp_bool(config.pipeline in DOUBLE_LDS),
        "wave_groups": config.wave_groups,
        "scheduler": SCHEDULER_NAMES[config.scheduler],
        "pipeline": PIPELINE_TYPES[config.pipeline],
        "pipeline_adapter": _choose_pipeline_adapter(config),
        "loop_adapters": _list_loop_adapters(config),
        # The first of compv5's two waves has the result.
        "first_wave": config.pipeline == "compv5",
        "epilogue": config.epilogue,
        "epilogue_adapter": _choose_epilogue_adapter(config),
        "specialization": SPECIALIZATION_NAMES[config.specialization],
        "merge_groups": config.merge_groups,
        "split_k": format_cpp_bool(config.split_k),
        "two_stage": format_cpp_bool(config.two_stage),
        "split_image": format_cpp_bool(config.split_image),
        "explicit_gemm": config.explicit_gemm,
        "kernel_template": "BatchedGemmKernel" if config.explicit_gemm else kind.kernel_template,
        "blocks_per_cu": config.blocks_per_cu,
        "unlooped": UNLOOPED.get(config.pipeline, 0),
        "least_steps": least_steps(config.pipeline),
        "add_bytes": add_bytes(ImplicitGemm(config)),
        "unbounded_add": {
            form: format_cpp_bool(config.explicit_gemm and unbounded)
            for form, unbounded in list_unbounded_adds(ImplicitGemm(config), archs.load(kernel.arch).family).items()
        },
    }


def _choose_pipeline_adapter(config: Config) -> str:
    """The adapter of the pipeline that CK Tile's convolution kernels need (implicit_gemm.hpp)."""
    # No compiled loop fits all GEMMs of one launch.
    if find_kind(config).several_gemms and not config.explicit_gemm and config.pipeline in RUN_TIME_LOOPS:
        return "AnyLoop"
    # They only support operands in tuples, as batched GEMMs pass them.
    return "OfTuples" if config.pipeline in ("compv6", "comp_async") and not config.explicit_gemm else ""


def _list_loop_adapters(config: Config) -> list[str]:
    """The adapters of the pipeline for CK Tile of 2026, outermost first."""
    adapter = choose_loop_adapter(ImplicitGemm(config))
    if not adapter:
        return []
    return ["tilewright_grouped_conv::OfTuples"] * (not config.explicit_gemm) + [f"tilewright_block_gemm::{adapter}"]


def _choose_epilogue_adapter(config: Config) -> str:
    """The adapter of the epilogue for CK Tile of 2026 (one_instance.hpp and block_gemm/adapters.hpp)."""
    if find_kind(config).specialized and not config.explicit_gemm:  # never adds
        return "" if config.epilogue == "cshuffle" else "tilewright_grouped_conv::WithoutFunction"
    if not config.split_k:
        return "tilewright_block_gemm::StoreOnly"
    return "" if config.epilogue == "cshuffle" else "tilewright_block_gemm::StoreOrAdd"


def _tensor_layouts(ndim: int) -> dict[str, str]:
    input_layout = LAYOUTS[ndim].upper()
    return {
        "input": input_layout,
        "weight": f"GK{_FILTER_LETTERS[ndim]}C",
        "output": input_layout.removesuffix("C") + "K",
    }
