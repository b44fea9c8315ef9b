"""The config of a grouped convolution kernel: exactly the fields that change the kernel."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arch.spec import Shape
from tilewright.ops.block_gemm import config_fields, resources
from tilewright.ops.fields import ChoiceType, ConfigBase, CountType, DtypeType, FlagType, TileType, config_field
from tilewright.ops.grouped_conv.kinds import KINDS
from tilewright.ops.grouped_conv.source import LAYOUTS, SPECIALIZATION_NAMES

FORWARD, BACKWARD_DATA, BACKWARD_WEIGHT = "forward", "backward_data", "backward_weight"
DIRECTIONS = tuple(kind.name for kind in KINDS)
NDIMS = tuple(LAYOUTS)
PIPELINES = tuple(resources.PIPELINE_TYPES)
SCHEDULERS = tuple(resources.SCHEDULER_NAMES)
SPECIALIZATIONS = tuple(SPECIALIZATION_NAMES)

# Types that CK Tile's convolutions are built with. A sum of 8-bit integers is an int32.
INPUTS = ("fp16", "bf16", "fp32", "fp8", "bf8", "int8")
SUMS = ("fp32", "int32")


@dataclass(frozen=True, kw_only=True)
class Config(ConfigBase):
    """Compile-time values of one kernel: a convolution, or its gradient with respect to the input or the weights."""

    direction: str = config_field(
        ChoiceType(DIRECTIONS),
        "forward: output from input and weights; backward_data: gradient of the input; backward_weight: gradient of"
        " the weights",
    )
    ndim: int = config_field(CountType(1, 3), "spatial dimensions", tag="nd")
    dtype_a: str = config_field(DtypeType(INPUTS), "element type of A: input, or gradient of the output")
    dtype_b: str = config_field(DtypeType(INPUTS), "element type of B: weights, or input (backward_weight)")
    dtype_acc: str = config_field(DtypeType(SUMS), "type that products are summed in")
    dtype_c: str = config_field(DtypeType((*INPUTS, "int32")), "element type of the result")
    block: Shape = config_fields.make_block_field()
    waves: Shape = config_fields.make_waves_field()
    mma: Shape = config_fields.make_mma_field()
    pipeline: str = config_fields.make_pipeline_field(PIPELINES)
    scheduler: str = config_fields.make_scheduler_field(SCHEDULERS)
    epilogue: str = config_fields.make_epilogue_field()
    vector: Shape = config_field(
        TileType(labels=("a", "b", "c"), most=32),
        "elements per global access of A, B and the result: they must divide the contiguous channels",
        tag="v",
    )
    specialization: str = config_field(
        ChoiceType(SPECIALIZATIONS),
        "assumptions of the kernel about its problems: a 1x1 filter without padding, also with stride 1, or a 3x3"
        " filter on groups of one channel",
        tag="for_",
        default="default",
    )
    merge_groups: int = config_field(
        CountType(1, 64), "groups that one work-group computes together", tag="merge", default=1
    )
    split_k: bool = config_fields.make_split_k_field()
    two_stage: bool = config_field(
        FlagType(),
        "sums are stored as fp32 in a workspace, and a second kernel converts them",
        tag="twostage",
        default=False,
    )
    split_image: bool = config_field(
        FlagType(),
        "an image is computed in two pieces, one after the other",
        tag="splitimage",
        default=False,
    )
    explicit_gemm: bool = config_field(
        FlagType(),
        "1x1 filters with stride 1 and no padding as a plain batched GEMM, without a convolution's address arithmetic",
        tag="gemm",
        default=False,
    )
    wave_groups: int = config_fields.make_wave_groups_field()
    blocks_per_cu: int = config_fields.make_blocks_per_cu_field()
