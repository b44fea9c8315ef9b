"""The keywords of `moe_sorting.space` and `moe_sorting.config`.

Written by `make docs` from the fields of the config. Do not edit it here.
"""

from __future__ import annotations

from typing import TypedDict

from tilewright.ops.keyword_types import Several


class MoeSortingConfigKeywords(TypedDict, total=False):
    """One config: a value for each field."""

    tile: int
    masked: bool
    keep_empty: bool


class MoeSortingSpaceKeywords(TypedDict, total=False):
    """A space: a value, several or all for each field."""

    tile: Several[int]
    masked: Several[bool]
    keep_empty: Several[bool]
