"""The template variables of a grouped GEMM kernel, with CK Tile's names for field values."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from tilewright import arch as archs
from tilewright.arch.dtypes import find_dtype, major_name
from tilewright.ops import c_interface, ck_shortcuts
from tilewright.ops.block_gemm import resources
from tilewright.ops.c_interface import format_cpp_bool
from tilewright.ops.call_header import format_header
from tilewright.ops.grouped_gemm.config import SCALED, Config, view_gemm
from tilewright.ops.grouped_gemm.problem import CALL
from tilewright.ops.kernel import Kernel

# Tilewright's files that a rendered source includes, by the name in its include directives.
SUPPORT: dict[str, Path | str] = {
    **ck_shortcuts.SUPPORT,
    **c_interface.SUPPORT,
    **format_header(CALL),
    "tilewright_block_gemm.hpp": Path(resources.__file__).parent / "adapters.hpp",
    "tilewright_scaled_gemm.hpp": Path(resources.__file__).parent / "scaled_adapters.hpp",
    "tilewright_grouped_gemm_launch.hpp": Path(__file__).parent / "launch.hpp",
    "tilewright_grouped_gemm_scales.hpp": Path(__file__).parent / "scales.hpp",
}
HEADERS = (
    ck_shortcuts.NAME,
    "ck_tile/core.hpp",
    "ck_tile/host/kernel_launch.hpp",
    "ck_tile/ops/gemm.hpp",
    "ck_tile/ops/epilogue/cshuffle_epilogue.hpp",
    "ck_tile/ops/epilogue/default_2d_epilogue.hpp",
    "tilewright_grouped_gemm_launch.hpp",
)


def make_context(kernel: Kernel) -> dict[str, Any]:
    """The variables of kernel.hip.j2."""
    config = cast("Config", kernel.config)
    gemm, arch = view_gemm(config), archs.load(kernel.arch)
    return {
        "slug": kernel.slug,
        "symbol": kernel.symbol,
        "cpp": {name: find_dtype(getattr(config, f"dtype_{name}")).cpp for name in ("a", "b", "c", "acc")},
        "layout": {matrix: major_name(letter) for matrix, letter in zip("abc", config.layout, strict=True)},
        **{name: getattr(config, name) for name in ("block", "waves", "mma", "epilogue", "blocks_per_cu")},
        "pad": {name: format_cpp_bool(getattr(config, f"pad_{name}")) for name in "mnk"},
        "threads": resources.block_threads(gemm, arch),
        "vector_a": resources.vector_a(gemm, arch),
        "vector_b": resources.vector_b(gemm, arch),
        "vector_c": resources.vector_c(gemm),
        "scheduler": resources.SCHEDULER_NAMES[config.scheduler],
        "pipeline": resources.PIPELINE_TYPES[config.pipeline],
        "scaled": config.dtype_a in SCALED,
        "loop_adapter": resources.choose_loop_adapter(gemm),
    }
