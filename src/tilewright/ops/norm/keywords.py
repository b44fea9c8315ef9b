"""The keywords of `norm.space` and `norm.config`.

Written by `make docs` from the fields of the config. Do not edit it here.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

from tilewright.ops.keyword_types import Several

KindName: TypeAlias = Literal["rms", "layer", "smoothquant"] | str
DtypeName: TypeAlias = Literal["fp32", "fp16", "bf16"] | str
DtypeYName: TypeAlias = Literal["fp32", "fp16", "bf16", "int8", "fp8"] | str
ResidualName: TypeAlias = Literal["none", "add", "store"] | str
QuantName: TypeAlias = Literal["none", "dynamic", "smooth"] | str


class NormConfigKeywords(TypedDict, total=False):
    """One config: a value for each field."""

    kind: KindName
    dtype: DtypeName
    dtype_y: DtypeYName
    rows: int
    columns: int
    threads: int
    vector: int
    residual: ResidualName
    quant: QuantName
    save: bool
    pad: bool
    two_pass: bool


class NormSpaceKeywords(TypedDict, total=False):
    """A space: a value, several or all for each field."""

    kind: Several[KindName]
    dtype: Several[DtypeName]
    dtype_y: Several[DtypeYName]
    rows: Several[int]
    columns: Several[int]
    threads: Several[int]
    vector: Several[int]
    residual: Several[ResidualName]
    quant: Several[QuantName]
    save: Several[bool]
    pad: Several[bool]
    two_pass: Several[bool]
