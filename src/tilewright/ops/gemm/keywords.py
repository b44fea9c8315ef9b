"""The keywords of `gemm.space` and `gemm.config`.

Written by `make docs` from the fields of the config. Do not edit it here.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

from tilewright.ops.keyword_types import Several, SeveralTiles, TileValue

VariantName: TypeAlias = Literal["standard", "preshuffle", "multi_d", "batched"] | str
DtypeName: TypeAlias = (
    Literal[
        "fp64",
        "fp32",
        "fp16",
        "bf16",
        "fp8",
        "bf8",
        "int8",
        "uint8",
        "int32",
        "int4",
        "pk_fp4",
    ]
    | str
)
LayoutName: TypeAlias = Literal["rcr", "rrr", "crr", "ccr"] | str
PipelineName: TypeAlias = Literal["mem", "compv3", "compv4", "compv5", "compv6", "comp_async", "preshufflev2"] | str
SchedulerName: TypeAlias = Literal["intrawave", "interwave", "default"] | str
EpilogueName: TypeAlias = Literal["cshuffle", "default"] | str
ElementwiseName: TypeAlias = (
    Literal[
        "PassThrough",
        "MultiDAdd",
        "MultiDMultiply",
        "Relu",
        "Gelu",
        "FastGelu",
        "Silu",
        "Sigmoid",
        "Tanh",
    ]
    | str
)


class GemmConfigKeywords(TypedDict, total=False):
    """One config: a value for each field."""

    variant: VariantName
    dtype_a: DtypeName
    dtype_b: DtypeName
    dtype_acc: DtypeName
    dtype_c: DtypeName
    layout: LayoutName
    block: TileValue
    waves: TileValue
    mma: TileValue
    pipeline: PipelineName
    scheduler: SchedulerName
    epilogue: EpilogueName
    pad_m: bool
    pad_n: bool
    pad_k: bool
    persistent: bool
    split_k: bool
    elementwise: ElementwiseName
    num_d: int
    vector: TileValue | None
    permute_n: bool
    wave_groups: int
    blocks_per_cu: int
    dtype: str


class GemmSpaceKeywords(TypedDict, total=False):
    """A space: a value, several or all for each field."""

    variant: Several[VariantName]
    dtype_a: Several[DtypeName]
    dtype_b: Several[DtypeName]
    dtype_acc: Several[DtypeName]
    dtype_c: Several[DtypeName]
    layout: Several[LayoutName]
    block: SeveralTiles
    waves: SeveralTiles
    mma: SeveralTiles
    pipeline: Several[PipelineName]
    scheduler: Several[SchedulerName]
    epilogue: Several[EpilogueName]
    pad_m: Several[bool]
    pad_n: Several[bool]
    pad_k: Several[bool]
    persistent: Several[bool]
    split_k: Several[bool]
    elementwise: Several[ElementwiseName]
    num_d: Several[int]
    vector: Several[TileValue | None]
    permute_n: Several[bool]
    wave_groups: Several[int]
    blocks_per_cu: Several[int]
    dtype: Several[str]
