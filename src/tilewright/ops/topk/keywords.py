"""The keywords of `topk.space` and `topk.config`.

Written by `make docs` from the fields of the config. Do not edit it here.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, TypedDict

from tilewright.ops.keyword_types import Several

ActivationName: TypeAlias = Literal["softmax", "sigmoid"] | str
DtypeName: TypeAlias = Literal["fp32", "fp16", "bf16"] | str


class TopkConfigKeywords(TypedDict, total=False):
    """One config: a value for each field."""

    activation: ActivationName
    dtype: DtypeName
    experts: int
    rows: int
    threads: int
    vector: int


class TopkSpaceKeywords(TypedDict, total=False):
    """A space: a value, several or all for each field."""

    activation: Several[ActivationName]
    dtype: Several[DtypeName]
    experts: Several[int]
    rows: Several[int]
    threads: Several[int]
    vector: Several[int]
