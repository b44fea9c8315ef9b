"""The config of a GEMM kernel: every field that changes the kernel, and none that does not."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.arch.dtypes import DTYPES, accumulator
from tilewright.arch.spec import Shape
from tilewright.ops.fields import Choice, ConfigBase, Count, Flag, OptionalTile, Tile, config_field

VARIANTS = ("standard", "preshuffle", "multi_d", "batched")
LAYOUTS = ("rcr", "rrr", "crr", "ccr")
PIPELINES = ("mem", "compv3", "compv4", "compv5", "compv6", "comp_async", "preshufflev2")
SCHEDULERS = ("intrawave", "interwave", "default")
EPILOGUES = ("cshuffle", "default")
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
MAX_D = 8  # TW_GEMM_MAX_D in abi.h

# What C is when only the inputs are named. 8- and 4-bit floats have too little range for a sum.
OUTPUTS = {"fp8": "fp16", "bf8": "fp16", "pk_fp4": "fp16", "int8": "int32"}


@dataclass(frozen=True, kw_only=True)
class Config(ConfigBase):
    """Compile-time facts of one GEMM kernel, C = elementwise(A·B, D…)."""

    variant: str = config_field(
        Choice(VARIANTS),
        "standard; preshuffle: B comes reordered for direct register loads; multi_d: element-wise operation"
        " with D tensors; batched: many products of one size",
    )
    dtype_a: str = config_field(Choice(tuple(DTYPES)), "element type of A")
    dtype_b: str = config_field(Choice(tuple(DTYPES)), "element type of B")
    dtype_acc: str = config_field(Choice(tuple(DTYPES)), "type that products are summed in")
    dtype_c: str = config_field(Choice(tuple(DTYPES)), "element type of C and of every D")
    layout: str = config_field(Choice(LAYOUTS), "layouts of A, B and C: r = row-major, c = column-major")
    block: Shape = config_field(Tile(), "tile of C (m, n) and step along k of one work-group", tag="b")
    waves: Shape = config_field(Tile(most=64), "waves of a work-group along m, n, k", tag="w")
    mma: Shape = config_field(Tile(most=256), "tile of one wave-level matrix operation", tag="i")
    pipeline: str = config_field(Choice(PIPELINES), "how global loads, LDS and matrix operations overlap")
    scheduler: str = config_field(
        Choice(SCHEDULERS), "whether instructions are interleaved within a wave or between waves"
    )
    epilogue: str = config_field(
        Choice(EPILOGUES), "how C is stored: cshuffle goes through LDS for wide stores, default does not"
    )
    pad_m: bool = config_field(Flag(), "M need not be a multiple of the block", tag="padm", default=False)
    pad_n: bool = config_field(Flag(), "N need not be a multiple of the block", tag="padn", default=False)
    pad_k: bool = config_field(Flag(), "K need not be a multiple of the block", tag="padk", default=False)
    persistent: bool = config_field(
        Flag(),
        "as many work-groups as fit the GPU, each taking tiles until none is left",
        tag="persistent",
        default=False,
    )
    split_k: bool = config_field(
        Flag(),
        "also built with atomic adds, so that K can be split over work-groups",
        tag="splitk",
        default=False,
    )
    elementwise: str = config_field(
        Choice(ELEMENTWISE),
        "operation applied to the product and the D tensors",
        tag="op",
        default="PassThrough",
    )
    num_d: int = config_field(Count(0, MAX_D), "number of D tensors", tag="d", default=0)
    vector: Shape | None = config_field(
        OptionalTile(Tile(labels=("a", "b", "c"), most=32)),
        "elements per global access of A, B and C; native = as wide as the tile allows",
        tag="v",
        default=None,
    )
    permute_n: bool = config_field(
        Flag(),
        "preshuffle only: B is also permuted along n, so that C is stored from registers",
        tag="permn",
        default=False,
    )
    wave_groups: int = config_field(
        Count(1, 2), "groups of waves that take turns in loading and computing", tag="wg", default=1
    )
    blocks_per_cu: int = config_field(
        Count(1, 8), "work-groups per compute unit that registers are limited for", tag="bpc", default=1
    )


DTYPE_FIELDS = ("dtype_a", "dtype_b", "dtype_acc", "dtype_c")


def dtype_fields(dtype: str) -> dict[str, str]:
    """`fp16` or `fp8*bf8` → the four type fields, with the usual accumulator and output."""
    a, _, b = dtype.partition("*")
    b = b or a
    return dict(zip(DTYPE_FIELDS, (a, b, accumulator(a, b), OUTPUTS.get(a, a)), strict=True))
