"""The keywords of `gemm_quant.space` and `gemm_quant.config`.

Written by `make docs` from the fields of the config. Do not edit it here.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

from tilewright.ops.keyword_types import Several, SeveralTiles, TileValue

QuantName: TypeAlias = Literal["tensor", "rowcol", "b1x128", "b128x128", "a1x128", "a1x128_b128x128"] | str
DtypeName: TypeAlias = Literal["fp8", "bf8"] | str
DtypeAccName: TypeAlias = Literal["fp32"] | str
DtypeCName: TypeAlias = Literal["fp16", "bf16", "fp32"] | str
LayoutName: TypeAlias = Literal["rcr", "rrr", "crr", "ccr"] | str
PipelineName: TypeAlias = Literal["mem", "compv3", "compv6"] | str
SchedulerName: TypeAlias = Literal["intrawave", "interwave"] | str


class GemmQuantConfigKeywords(TypedDict, total=False):
    """One config: a value for each field."""

    quant: QuantName
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
    pad_m: bool
    pad_n: bool
    pad_k: bool
    blocks_per_cu: int
    dtype: str


class GemmQuantSpaceKeywords(TypedDict, total=False):
    """A space: a value, several or all for each field."""

    quant: Several[QuantName]
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
    pad_m: Several[bool]
    pad_n: Several[bool]
    pad_k: Several[bool]
    blocks_per_cu: Several[int]
    dtype: Several[str]
