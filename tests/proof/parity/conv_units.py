"""Convolution kernels of CK's example: its invokers are templates, which this file instantiates with a config."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tests.proof.parity.unit import Unit
from tilewright.arch.dtypes import find_dtype
from tilewright.ops import parse_kernel
from tilewright.ops.grouped_conv.kind import find_kind

if TYPE_CHECKING:
    from tilewright.ops.grouped_conv.config import Config

EXAMPLE = "example/ck_tile/20_grouped_convolution"
# Of each direction: the invoker's struct, its function, its header and the type of its arguments.
INVOKERS = {
    "forward": (
        *("GroupedConvolutionForwardInvoker", "grouped_conv_fwd"),
        *("grouped_convolution_forward_invoker.hpp", "ck_tile::GroupedConvFwdHostArgs<>"),
    ),
    "backward_data": (
        *("GroupedConvolutionBackwardDataInvoker", "grouped_conv_bwd_data"),
        *("grouped_convolution_backward_data_invoker.hpp", "ck_tile::GroupedConvBwdDataHostArgs"),
    ),
    "backward_weight": (
        *("GroupedConvolutionBackwardWeightInvoker", "grouped_conv_bwd_weight"),
        *("grouped_convolution_backward_weight_invoker.hpp", "ck_tile::GroupedConvBwdWeightHostArgs"),
    ),
}
LAYOUTS = {1: ("NWGC", "GKXC", "NWGK"), 2: ("NHWGC", "GKYXC", "NHWGK"), 3: ("NDHWGC", "GKZYXC", "NDHWGK")}
PIPELINES = {"mem": "MEMORY", "compv3": "COMPUTE_V3", "compv4": "COMPUTE_V4"}
KERNELS = (
    "gfx942-forward-nd2-fp16-fp16-fp32-fp16-b64x64x32-w2x2x1-i16x16x32-compv3-intrawave-cshuffle-v8x8x8-8a062b028f3d",
    "gfx942-forward-nd2-fp16-fp16-fp32-fp16-b64x64x32-w2x2x1-i16x16x16-compv3-intrawave-cshuffle-v8x8x4-9df786c49073",
    "gfx942-forward-nd2-fp16-fp16-fp32-fp16-b64x64x32-w2x2x1-i16x16x32-compv3-intrawave-cshuffle-v1x1x8-d8d77e72f411",
    "gfx950-forward-nd2-bf16-bf16-fp32-bf16-b64x64x64-w2x2x1-i32x32x16-compv3-intrawave-cshuffle-v4x8x8-bf3db103cab8",
    "gfx942-backward_weight-nd2-fp16-fp16-fp32-fp16-b32x64x32-w2x2x1-i16x16x16-compv3-intrawave-cshuffle-v4x8x8-splitk-"
    "6c56b6310e03",
    "gfx1100-backward_weight-nd1-fp16-fp16-fp32-fp16-b16x128x16-w1x8x1-i16x16x16-compv3-intrawave-cshuffle-v4x8x4-"
    "4af976817f9b",
    "gfx1100-backward_weight-nd2-bf16-bf16-fp32-bf16-b16x128x16-w1x8x1-i16x16x16-compv4-intrawave-cshuffle-v2x8x8-"
    "splitk-f9de38e99124",
    "gfx942-backward_data-nd2-fp16-fp16-fp32-fp16-b64x64x32-w2x2x1-i16x16x16-compv3-intrawave-cshuffle-v4x8x8-"
    "8287cbf557b4",
)
MORE_DIMENSIONS = "a 1-D problem is computed in two dimensions here, the outer of extent 1"
LOOP_ON_DEVICE = (
    "a work-group finds the form of its loop on the device here, since those of one launch may differ; there the host "
    "chooses one form for all"
)


def list_units(tree: Path, work: Path) -> Iterator[Unit]:
    """List the kernels with a source that instantiates CK's invoker."""
    del work  # the sources are texts
    for slug in KERNELS:
        kernel = parse_kernel(f"grouped_conv-{slug}")
        config = cast("Config", kernel.config)
        reason = _find_reason(config)
        name, header = INVOKERS[config.direction][1:3]
        text = render_unit(config, f"ck_{kernel.digest}")
        yield Unit(kernel, name, ("ck_tile/host.hpp", header), text, (tree / EXAMPLE,), reason=reason)


def _find_reason(config: Config) -> str:
    """Why the code of a config is expected to differ."""
    if config.direction == "backward_data":
        return LOOP_ON_DEVICE
    return MORE_DIMENSIONS if config.ndim < find_kind(config).least_ndim else ""


def render_unit(config: Config, namespace: str) -> str:
    """Render a source with a config as the struct that CK's invokers take."""
    invoker, function, _, arguments = INVOKERS[config.direction]
    numbers = {
        **dict(zip(("M_Tile", "N_Tile", "K_Tile"), config.block, strict=True)),
        **dict(zip(("M_Warp", "N_Warp", "K_Warp"), config.waves, strict=True)),
        **dict(zip(("M_Warp_Tile", "N_Warp_Tile", "K_Warp_Tile"), config.mma, strict=True)),
        **dict(zip(("VectorSizeA", "VectorSizeB", "VectorSizeC"), config.vector, strict=True)),
        "NumGroupsToMerge": config.merge_groups,
        "kBlockPerCu": config.blocks_per_cu,
    }
    layouts = ", ".join(f"ck_tile::tensor_layout::convolution::{name}" for name in LAYOUTS[config.ndim])
    element = find_dtype(config.dtype_a).cpp
    return "\n".join(
        [
            f"namespace {namespace} {{",
            "struct Config : ConvConfigBase",
            "{",
            *(f"    static constexpr ck_tile::index_t {name} = {number};" for name, number in numbers.items()),
            f"    static constexpr bool DoubleSmemBuffer = {str(config.pipeline == 'compv4').lower()};",
            f"    static constexpr auto Pipeline = ck_tile::GemmPipeline::{PIPELINES[config.pipeline]};",
            "};",
            f"float (*instances)(const {arguments}&, const ck_tile::stream_config&) =",
            f"    &{invoker}::{function}<{config.ndim}, Config, {element}, {element}, float, {element}, {layouts}>;",
            "}",
        ]
    )
