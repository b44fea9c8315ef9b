"""The keywords of `grouped_gemm.space` and `grouped_gemm.config`.

Written by `make docs` from the fields of the config. Do not edit it here.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

from tilewright.ops.keyword_types import Several, SeveralTiles, TileValue

DtypeName: TypeAlias = Literal["fp16", "bf16", "fp8", "bf8"] | str
DtypeAccName: TypeAlias = Literal["fp32"] | str
DtypeCName: TypeAlias = Literal["fp16", "bf16", "fp32"] | str
LayoutName: TypeAlias = Literal["rcr", "rrr", "crr", "ccr"] | str
PipelineName: TypeAlias = Literal["mem", "compv3"] | str
SchedulerName: TypeAlias = Literal["intrawave", "interwave"] | str
EpilogueName: TypeAlias = Literal["cshuffle", "default"] | str


class GroupedGemmConfigKeywords(TypedDict, total=False):
    """One config: a value for each field."""

    dtype_a: DtypeName
    dtype_b: DtypeName
    dtype_acc: DtypeAccName
    dtype_c: DtypeCName
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
    blocks_per_cu: int
    dtype: str


class GroupedGemmSpaceKeywords(TypedDict, total=False):
    """A space: a value, several or all for each field."""

    dtype_a: Several[DtypeName]
    dtype_b: Several[DtypeName]
    dtype_acc: Several[DtypeAccName]
    dtype_c: Several[DtypeCName]
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
    blocks_per_cu: Several[int]
    dtype: Several[str]
