"""The inputs of AMD's published models of grouped convolutions, by their names, computed for our kernels and problems.

The models are LightGBM files of CK Tile's dispatcher, one for each direction. Their inputs are forward quantities in
all directions: gradients are described by the convolution that they belong to. A kernel's name there is
`128x64x32_compv3` for a block m x n x k; the models read its three numbers as `block_size`, `gemm_m_per_block` and
`gemm_n_per_block`, so these names are misleading: the last one is the step along k.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tilewright.arch.dtypes import find_dtype
from tilewright.base.errors import InvalidValueError, choose

if TYPE_CHECKING:
    from tilewright.ops.grouped_conv.config import Config
    from tilewright.ops.grouped_conv.problem import Problem

# AMD's names of the directions, in the names of models and of kernels.
DIRECTION_NAMES = {"forward": "forward", "bwd_data": "backward_data", "bwd_weight": "backward_weight"}
# The numbers that stand for pipelines in the models' training data.
PIPELINE_CODES = {"compv3": 0, "compv4": 1, "compv5": 2, "mem": 3, "basic_v1": 5, "compv6": 6}
# The GPU in the training data, the same in all rows. These are AMD's numbers, right or not: gfx950 has 160 KiB of LDS.
HARDWARE: Mapping[str, Mapping[str, float]] = {
    "gfx950": {
        "hw_num_cus": 256,
        "hw_simds_per_cu": 4,
        "hw_total_simds": 1024,
        "hw_shader_engines": 32,
        "hw_max_clock_mhz": 2400,
        "hw_max_waves_per_cu": 32,
        "hw_wavefront_size": 64,
        "hw_lds_capacity": 65536,
        "hw_l1_cache_kb": 32,
        "hw_l2_cache_kb": 4096,
        "hw_l3_cache_kb": 262144,
        "hw_num_xcd": 8,
    }
}
# The models take this as the LDS of kernels that store two blocks of each operand.
DOUBLE_BUFFER_LDS = 32768
# Below so many channels a group is small; below so many images a batch is.
FEW_CHANNELS, FEW_IMAGES = 16, 8


def compute_features(config: Config, problem: Problem, arch: str) -> dict[str, float]:
    """All inputs by name. Raises `InvalidValueError` if the models have no words for a kernel or problem."""
    hardware = HARDWARE[choose("GPU of AMD's models", arch, HARDWARE)]
    if problem.left_pad != problem.right_pad:
        raise InvalidValueError("AMD's models know equal pads on both sides only")
    of_problem = _describe_problem(problem)
    of_kernel = _describe_kernel(config, hardware)
    return {**of_problem, **of_kernel, **_describe_tiles(config, problem, hardware), **hardware}


def _pad_extents(extents: tuple[int, ...], filler: int) -> tuple[int, ...]:
    """Depth, height and width: problems with fewer dimensions have `filler` in the others."""
    return (*(filler,) * (3 - len(extents)), *extents)


def _describe_problem(problem: Problem) -> dict[str, float]:
    images, groups, c, k = problem.n, problem.g, problem.c, problem.k
    size, taps, out = (_pad_extents(e, 1) for e in (problem.input_size, problem.filter_size, problem.output_size))
    stride, dilation = _pad_extents(problem.stride, 1), _pad_extents(problem.dilation, 1)
    pad = _pad_extents(problem.left_pad, 0)
    volumes = [math.prod(extents) for extents in (size, taps, out)]
    own_c, own_k = c / groups, k / groups
    element = find_dtype(problem.dtype_a).bits / 8
    moved = element * (images * c * volumes[0] + k * own_c * volumes[1] + images * k * volumes[2])
    deep = size[0] > 1 or taps[0] > 1 or pad[0] > 0
    logarithms = {
        **{"N": images, "C": c, "K": k, "G": groups, "Hi": size[1], "Wi": size[2]},
        **{"spatial": volumes[0], "filter": volumes[1], "output": volumes[2]},
        **{"channels_per_group": own_c, "output_channels_per_group": own_k},
    }
    return {
        **{"N": images, "C": c, "K": k, "G": groups},
        **dict(zip(("Di", "Hi", "Wi"), size, strict=True)),
        **dict(zip(("Z", "Y", "X"), taps, strict=True)),
        **dict(zip(("Do", "Ho", "Wo"), out, strict=True)),
        **dict(zip(("stride_d", "stride_h", "stride_w"), stride, strict=True)),
        **dict(zip(("pad_d", "pad_h", "pad_w"), pad, strict=True)),
        **{"dilation_h": dilation[1], "dilation_w": dilation[2], "is_3d": deep},
        **{f"log2_{name}": math.log2(max(value, 1)) for name, value in logarithms.items()},
        "arithmetic_intensity": 2 * images * k * volumes[2] * own_c * volumes[1] / moved,
        "filter_area": volumes[1],
        "is_1x1_conv": volumes[1] == 1,
        "is_3x3_conv": taps == ((3, 3, 3) if deep else (1, 3, 3)),
        "channels_per_group": own_c,
        "aspect_ratio_hw": size[1] / size[2],
        "aspect_ratio_filter": taps[1] / taps[2],
        "is_depthwise": groups == c == k,
        "group_density": groups / c,
        "is_small_group": min(own_c, own_k) < FEW_CHANNELS,
        "channels_product_per_group": own_c * own_k,
        "batch_group_product": images * groups,
        "is_small_batch_grouped": images < FEW_IMAGES and groups > 1,
    }


def _describe_kernel(config: Config, hardware: Mapping[str, float]) -> dict[str, float]:
    m, n, k = config.block
    code = PIPELINE_CODES[choose("pipeline of AMD's models", config.pipeline, PIPELINE_CODES)]
    lds = (n + k) * m * find_dtype(config.dtype_a).bits / 8
    capacity = DOUBLE_BUFFER_LDS if config.pipeline == "compv4" else hardware["hw_lds_capacity"]
    flags = {f"is_{name}": config.pipeline == name for name in ("compv3", "compv4", "compv5", "compv6", "mem")}
    return {
        **{"block_size": m, "gemm_m_per_block": n, "gemm_n_per_block": k},
        **{"pipeline": code, "is_basic": config.pipeline.startswith("basic_v"), **flags},
        "is_intrawave": config.scheduler == "intrawave",
        "has_dsb": config.pipeline == "compv4",
        "has_si": False,
        "num_warps": m / 4,
        "tile_volume": m * n * k,
        "tile_mn": n * k,
        "lds_usage_estimate": lds,
        "lds_usage_ratio": lds / capacity,
        "block_tile_ratio_m": n / m,
        "block_tile_ratio_n": k / m,
        "block_efficiency": min(n, k) / max(n, k),
    }


def _describe_tiles(config: Config, problem: Problem, hardware: Mapping[str, float]) -> dict[str, float]:
    """How the models think that the forward GEMM is divided: by the misnamed numbers of the block."""
    gemm = {
        "m": problem.n * math.prod(problem.output_size),
        "n": problem.k,
        "k": problem.c // problem.g * math.prod(problem.filter_size),
    }
    of_block = dict(zip("kmn", config.block, strict=True))
    made: dict[str, float] = {}
    for name, extent in gemm.items():
        tile = of_block[name]
        made |= {
            f"gemm_{name}_output": extent,
            f"num_tiles_{name}": -(-extent // tile),
            f"tile_eff_{name}": (extent % tile or tile) / tile,
            f"ratio_gemm_{name}_to_tile_{name}": extent / tile,
            f"problem_smaller_than_tile_{name}": extent < tile,
        }
    total = made["num_tiles_m"] * made["num_tiles_n"]
    return {
        **made,
        "total_output_tiles": total,
        "overall_tile_efficiency": made["tile_eff_m"] * made["tile_eff_n"] * made["tile_eff_k"],
        "cu_utilization": total / hardware["hw_num_cus"],
    }
