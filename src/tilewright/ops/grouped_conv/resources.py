"""Resources of a convolution kernel before it is compiled: those of the GEMM inside it, with its stored type."""

from __future__ import annotations

from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.grouped_conv.config import BACKWARD_DATA, BACKWARD_WEIGHT, Config
from tilewright.ops.grouped_conv.implicit_gemm import ImplicitGemm

# Pipelines with an implementation that chooses its loop on the device (operator() with has_hot_loop and tail_number).
RUN_TIME_LOOPS = ("mem", "compv3")


def has_run_time_loop(config: Config) -> bool:
    """Whether the kernel chooses its loop over K on the device. The gradient of the input is several GEMMs with
    different K in one launch (one for each remainder of the position by the stride), so that no loop fits all."""
    return config.direction == BACKWARD_DATA and not config.explicit_gemm and config.pipeline in RUN_TIME_LOOPS


def ck_ndim(config: Config) -> int:
    """The number of spatial dimensions of the CK Tile kernel.

    CK Tile's 1-D weight gradient reads the gradient of the output as if it were transposed
    (grouped_convolution/utils/transform_conv_bwd_weight_to_gemm.hpp), so it is computed as images of one line.
    """
    return 2 if config.direction == BACKWARD_WEIGHT and config.ndim == 1 else config.ndim


def lds_bytes(config: Config, arch: Arch) -> int:
    """Bytes of LDS of one work-group."""
    return resources.lds_bytes(ImplicitGemm(config), arch)


def matrix_instructions(config: Config, arch: Arch) -> tuple[str, ...]:
    """The matrix instruction of the kernel's one GEMM; an empty string if the GPU has none for it."""
    return resources.matrix_instructions(ImplicitGemm(config), arch)
