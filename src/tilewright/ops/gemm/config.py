"""The config of a GEMM kernel: exactly the fields that change the kernel."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arch.dtypes import DTYPES
from tilewright.arch.spec import Shape
from tilewright.ops.block_gemm import config_fields, resources
from tilewright.ops.fields import (
    ChoiceType,
    ConfigBase,
    CountType,
    DtypeType,
    FlagType,
    OptionalTileType,
    TileType,
    config_field,
)
from tilewright.ops.gemm.kinds import KINDS, preshuffle
from tilewright.ops.gemm.own_operations import OperationType

VARIANTS = tuple(kind.name for kind in KINDS)
LAYOUTS = ("rcr", "rrr", "crr", "ccr")
PIPELINES = (*resources.PIPELINE_TYPES, preshuffle.PIPELINE)
SCHEDULERS = ("intrawave", "interwave", "default")
# CK Tile's element-wise operations. The first three take the D tensors themselves; the others are applied to
# A·B + D0 + D1 + …
ELEMENTWISE = (
    "PassThrough",
    "MultiDAdd",
    "MultiDMultiply",
    "Relu",
    "Gelu",
    "FastGelu",
    "Silu",
    "Sigmoid",
    "Tanh",
)
MAX_D = 8  # length of arrays in the C struct


@dataclass(frozen=True, kw_only=True)
class Config(ConfigBase):
    """Compile-time values of one GEMM kernel, C = elementwise(A·B, D…)."""

    variant: str = config_field(
        ChoiceType(VARIANTS),
        "standard; preshuffle: B is reordered for direct register loads; multi_d: element-wise operation"
        " with D tensors; batched: many products of one size",
    )
    dtype_a: str = config_field(DtypeType(tuple(DTYPES)), "element type of A")
    dtype_b: str = config_field(DtypeType(tuple(DTYPES)), "element type of B")
    dtype_acc: str = config_field(DtypeType(tuple(DTYPES)), "type that products are summed in")
    dtype_c: str = config_field(DtypeType(tuple(DTYPES)), "element type of C and of every D")
    layout: str = config_field(ChoiceType(LAYOUTS), "layouts of A, B and C: r = row-major, c = column-major")
    block: Shape = config_fields.make_block_field()
    waves: Shape = config_fields.make_waves_field()
    mma: Shape = config_fields.make_mma_field()
    pipeline: str = config_fields.make_pipeline_field(PIPELINES)
    scheduler: str = config_fields.make_scheduler_field(SCHEDULERS)
    epilogue: str = config_fields.make_epilogue_field()
    pad_m: bool = config_field(FlagType(), "M need not be a multiple of the block", tag="padm", default=False)
    pad_n: bool = config_field(FlagType(), "N need not be a multiple of the block", tag="padn", default=False)
    pad_k: bool = config_field(FlagType(), "K need not be a multiple of the block", tag="padk", default=False)
    persistent: bool = config_field(
        FlagType(),
        "as many work-groups as fit on the GPU, which process tiles until none is left",
        tag="persistent",
        default=False,
    )
    split_k: bool = config_fields.make_split_k_field()
    elementwise: str = config_field(
        OperationType(ELEMENTWISE),
        "operation applied to the product and the D tensors",
        tag="op",
        default="PassThrough",
    )
    num_d: int = config_field(CountType(0, MAX_D), "number of D tensors", tag="d", default=0)
    vector: Shape | None = config_field(
        OptionalTileType(TileType(labels=("a", "b", "c"), most=32)),
        "elements per global access of A, B and C; native = as wide as the tile allows",
        tag="v",
        default=None,
    )
    permute_n: bool = config_field(
        FlagType(),
        "preshuffle only: B is also permuted along n, so that C is stored from registers",
        tag="permn",
        default=False,
    )
    wave_groups: int = config_fields.make_wave_groups_field()
    blocks_per_cu: int = config_fields.make_blocks_per_cu_field()
