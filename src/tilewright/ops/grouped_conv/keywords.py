"""The keywords of `grouped_conv.space` and `grouped_conv.config`.

Written by `make docs` from the fields of the config. Do not edit it here.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

from tilewright.ops.keyword_types import Several, SeveralTiles, TileValue

DirectionName: TypeAlias = Literal["forward", "backward_data", "backward_weight"] | str
DtypeName: TypeAlias = Literal["fp16", "bf16", "fp32", "fp8", "bf8", "int8"] | str
DtypeAccName: TypeAlias = Literal["fp32", "int32"] | str
DtypeCName: TypeAlias = Literal["fp16", "bf16", "fp32", "fp8", "bf8", "int8", "int32"] | str
PipelineName: TypeAlias = Literal["mem", "compv3", "compv4", "compv5", "compv6", "comp_async"] | str
SchedulerName: TypeAlias = Literal["intrawave", "interwave"] | str
EpilogueName: TypeAlias = Literal["cshuffle", "default"] | str
SpecializationName: TypeAlias = Literal["default", "filter1x1_pad0", "filter1x1_stride1_pad0", "filter3x3"] | str


class GroupedConvConfigKeywords(TypedDict, total=False):
    """One config: a value for each field."""

    direction: DirectionName
    ndim: int
    dtype_a: DtypeName
    dtype_b: DtypeName
    dtype_acc: DtypeAccName
    dtype_c: DtypeCName
    block: TileValue
    waves: TileValue
    mma: TileValue
    pipeline: PipelineName
    scheduler: SchedulerName
    epilogue: EpilogueName
    vector: TileValue
    specialization: SpecializationName
    merge_groups: int
    split_k: bool
    two_stage: bool
    split_image: bool
    explicit_gemm: bool
    wave_groups: int
    blocks_per_cu: int
    dtype: str
    variant: str
    layout: str


class GroupedConvSpaceKeywords(TypedDict, total=False):
    """A space: a value, several or all for each field."""

    direction: Several[DirectionName]
    ndim: Several[int]
    dtype_a: Several[DtypeName]
    dtype_b: Several[DtypeName]
    dtype_acc: Several[DtypeAccName]
    dtype_c: Several[DtypeCName]
    block: SeveralTiles
    waves: SeveralTiles
    mma: SeveralTiles
    pipeline: Several[PipelineName]
    scheduler: Several[SchedulerName]
    epilogue: Several[EpilogueName]
    vector: SeveralTiles
    specialization: Several[SpecializationName]
    merge_groups: Several[int]
    split_k: Several[bool]
    two_stage: Several[bool]
    split_image: Several[bool]
    explicit_gemm: Several[bool]
    wave_groups: Several[int]
    blocks_per_cu: Several[int]
    dtype: Several[str]
    variant: Several[str]
    layout: Several[str]
