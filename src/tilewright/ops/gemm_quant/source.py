"""The template variables of a GEMM kernel with scales, with CK Tile's names for field values."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from tilewright import arch as archs
from tilewright.arch.dtypes import find_dtype, major_name
from tilewright.arch.spec import Arch
from tilewright.ops import c_interface, ck_shortcuts
from tilewright.ops.block_gemm import resources
from tilewright.ops.c_interface import format_cpp_bool
from tilewright.ops.call_header import format_header
from tilewright.ops.gemm_quant.config import (
    GROUP_COLUMNS,
    GROUP_K,
    GROUP_ROWS,
    GROUPED,
    Config,
    count_scale_vector,
    view_gemm,
)
from tilewright.ops.gemm_quant.problem import CALL
from tilewright.ops.kernel import Kernel

QUANT_TYPES = {
    **{"tensor": "TensorQuant", "rowcol": "RowColQuant"},
    **dict.fromkeys(GROUP_COLUMNS, "BQuantGrouped"),
    **dict.fromkeys(GROUP_ROWS, "AQuantGrouped"),
    **dict.fromkeys(GROUP_ROWS.keys() & GROUP_COLUMNS.keys(), "ABQuantGrouped"),
}
# Tilewright's files that a rendered source includes, by the name in its include directives.
SUPPORT: dict[str, Path | str] = {
    **ck_shortcuts.SUPPORT,
    **c_interface.SUPPORT,
    **format_header(CALL),
    "tilewright_block_gemm.hpp": Path(resources.__file__).parent / "adapters.hpp",
    "tilewright_scaled_gemm.hpp": Path(resources.__file__).parent / "scaled_adapters.hpp",
}
# The launchers of kinds: scales of groups have their own, so that a change of one does not rebuild the other kernels.
LAUNCHER = "tilewright_gemm_quant_launch.hpp"
GROUP_LAUNCHER = "tilewright_gemm_quant_group_launch.hpp"
ROW_GROUP_LAUNCHER = "tilewright_gemm_quant_row_group_launch.hpp"
LAUNCHERS = {
    LAUNCHER: Path(__file__).parent / "launch.hpp",
    GROUP_LAUNCHER: Path(__file__).parent / "group_launch.hpp",
    ROW_GROUP_LAUNCHER: Path(__file__).parent / "row_group_launch.hpp",
}
HEADERS = (
    ck_shortcuts.NAME,
    "ck_tile/core.hpp",
    "ck_tile/host/kernel_launch.hpp",
    "ck_tile/ops/gemm.hpp",
    "ck_tile/ops/gemm_quant/kernel/gemm_quant_kernel.hpp",
    "ck_tile/ops/epilogue/cshuffle_epilogue.hpp",
)


def list_launchers(quant: str) -> tuple[str, ...]:
    """The launchers of a kind of scales: each includes the ones before it."""
    if quant in GROUP_ROWS:
        return LAUNCHER, GROUP_LAUNCHER, ROW_GROUP_LAUNCHER
    return (LAUNCHER, GROUP_LAUNCHER) if quant in GROUPED else (LAUNCHER,)


def make_context(kernel: Kernel) -> dict[str, Any]:
    """The variables of kernel.hip.j2."""
    config = cast("Config", kernel.config)
    gemm, arch = view_gemm(config), archs.load(kernel.arch)
    return {
        "slug": kernel.slug,
        "symbol": kernel.symbol,
        "cpp": {name: find_dtype(getattr(config, f"dtype_{name}")).cpp for name in ("a", "b", "c", "acc")},
        "layout": {matrix: major_name(letter) for matrix, letter in zip("abc", config.layout, strict=True)},
        **{name: getattr(config, name) for name in ("block", "waves", "mma", "blocks_per_cu")},
        "pad": {name: format_cpp_bool(getattr(config, f"pad_{name}")) for name in "mnk"},
        "threads": resources.block_threads(gemm, arch),
        "vector_a": resources.vector_a(gemm, arch),
        "vector_b": resources.vector_b(gemm, arch),
        "scheduler": resources.SCHEDULER_NAMES[config.scheduler],
        "pipeline": resources.PIPELINE_TYPES[config.pipeline],
        "loop_adapter": resources.choose_loop_adapter(gemm),
        "least_steps": resources.least_steps(config.pipeline),
        "quant": QUANT_TYPES[config.quant],
        "group": _make_group(config, arch),
    }


def _make_group(config: Config, arch: Arch) -> dict[str, Any] | None:
    """Values of a kernel with scales of groups; None without groups."""
    if config.quant not in GROUPED:
        return None
    return {
        "rows": GROUP_ROWS.get(config.quant, 0),
        "columns": GROUP_COLUMNS.get(config.quant, 0),
        "k": GROUP_K,
        "vector": count_scale_vector(config, arch),
    }
