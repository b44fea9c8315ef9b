"""Filters of convolution trials: taps, strides, dilations and pads of each dimension."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tilewright.ops.grouped_conv.config import Config


@dataclass(frozen=True, slots=True)
class FilterShape:
    """Filter, stride, dilation and pads of one dimension.

    `rest` are input elements at the far edge that no filter reaches, because the stride skips them.
    """

    filter: int
    stride: int = 1
    dilation: int = 1
    left: int = 0
    right: int = 0
    rest: int = 0

    def compute_input_size(self, outputs: int) -> int:
        """The size of the input that gives this many outputs."""
        reach = (self.filter - 1) * self.dilation + 1
        return (outputs - 1) * self.stride + reach - self.left - self.right + self.rest

    @property
    def keeps_size(self) -> bool:
        """Whether there are as many outputs as inputs."""
        return self.stride == 1 and self.compute_input_size(1) == 1

    @property
    def least_outputs(self) -> int:
        """The number of outputs of an input of one element: pads alone may give several."""
        return next(outputs for outputs in itertools.count(1) if self.compute_input_size(outputs) >= 1)


# Shapes of three dimensions, outermost first. Problems with fewer dimensions use the last ones.
Forms: TypeAlias = tuple[FilterShape, FilterShape, FilterShape]


def _repeat_shape(form: FilterShape) -> Forms:
    return (form, form, form)


POINT = _repeat_shape(FilterShape(1))
POINT_STRIDED = (FilterShape(1), FilterShape(1, stride=3, rest=2), FilterShape(1, stride=2, rest=1))
PLAIN = _repeat_shape(FilterShape(3))
SAME = _repeat_shape(FilterShape(3, left=1, right=1))
STRIDED = _repeat_shape(FilterShape(3, stride=2, left=1, right=1, rest=1))
DILATED = _repeat_shape(FilterShape(3, dilation=2, left=2, right=2))
ONE_SIDED = _repeat_shape(FilterShape(3, right=2))
# Seven taps in two dimensions at most: 343 would make the GEMM far larger than a block.
WIDE = (FilterShape(1, stride=2), FilterShape(7, stride=2, left=3, right=2), FilterShape(7, stride=2, left=3, right=2))
# Different in every dimension, so that mixed-up dimensions show.
MIXED = (
    FilterShape(2, stride=3, dilation=2, right=1),
    FilterShape(3, stride=2, left=1, rest=1),
    FilterShape(4, dilation=3, left=2, right=3),
)
FORMS = (SAME, POINT, WIDE, DILATED, STRIDED, MIXED, POINT_STRIDED)
# Even filters, pads on one side, strides wider than the filter, pads wider than the filter.
ODD_ONES = (
    ONE_SIDED,
    _repeat_shape(FilterShape(2, stride=3, rest=2)),
    _repeat_shape(FilterShape(3, stride=2, dilation=2, left=1, right=3)),
    _repeat_shape(FilterShape(1, left=1, right=1)),
    _repeat_shape(FilterShape(3, left=3, right=3)),
)
# Strides and dilations without a common divisor, and pads, all together. Filters with many and with few taps, so that
# every number of steps along K is possible with some number of channels. Pads on the right are wider than the rest:
# only then does the last filter reach into them.
TANGLED = (
    (
        FilterShape(2, stride=2, dilation=3, left=1, right=2),
        FilterShape(3, stride=2, dilation=3, left=2, right=2, rest=1),
        FilterShape(3, stride=3, dilation=2, left=1, right=3, rest=2),
    ),
    (
        FilterShape(1, stride=2, rest=1),
        FilterShape(2, stride=3, dilation=2, left=1, right=3, rest=2),
        FilterShape(2, stride=2, dilation=3, right=2, rest=1),
    ),
    (
        FilterShape(1),
        FilterShape(1, stride=2, left=1, right=2, rest=1),
        FilterShape(2, stride=1, dilation=3, left=1, right=2),
    ),
)


def _make_far_filter(depth: int, rows: int, columns: int) -> Forms:
    """A filter like the first above. Its first outputs are entirely in the padding: any value except 0 is an error."""
    deep, along, across = TANGLED[0]
    return (
        replace(deep, filter=depth),
        replace(along, filter=rows),
        replace(across, filter=columns, left=(columns - 1) * across.dilation + 1),
    )


# For many steps, the most sensitive first. Three or more rows show an error in advancing to the row after the next.
FAR = tuple(
    _make_far_filter(depth, rows, columns)
    for depth in (2, 1)
    for rows, columns in ((3, 3), (4, 3), (3, 4), (5, 3), (3, 5), (2, 3), (2, 2), (1, 2))
)
# The gradient of the input has a GEMM for each remainder by the stride, each with its own number of steps. Without a
# stride there is one, with a known number of steps.
UNSTRIDED = (
    (
        FilterShape(2, dilation=2, left=1, right=1),
        FilterShape(3, dilation=2, left=1, right=3),
        FilterShape(3, dilation=3, left=2, right=4),
    ),
    (FilterShape(1), FilterShape(2, left=1), FilterShape(2, dilation=3, left=1, right=2)),
    (FilterShape(1), FilterShape(1), FilterShape(2, dilation=2, right=2)),
)
# Strides and dilations without a common divisor, and no pad on the left: no tap reads some inputs there.
COPRIME = (
    (
        FilterShape(2, stride=3, dilation=4),
        FilterShape(3, stride=2, dilation=3),
        FilterShape(3, stride=3, dilation=2, right=1),
    ),
    (
        FilterShape(3, stride=3, dilation=2),
        FilterShape(3, stride=3, dilation=4, right=2),
        FilterShape(4, stride=2, dilation=3, rest=1),
    ),
)
# A stride in one dimension only, wider than the filter: one GEMM for each remainder, some without a tap, and each
# processes all rows or columns of the other dimension.
ONE_STRIDE = (
    (FilterShape(1), FilterShape(3, right=4), FilterShape(3, stride=4, left=1, right=1)),
    (FilterShape(1), FilterShape(3), FilterShape(3, stride=4, dilation=2)),
    (FilterShape(1), FilterShape(3, stride=4, left=1, right=1, rest=1), FilterShape(3, dilation=2, left=1, right=2)),
)
# Columns of a tall filter. The number of taps per step is a power of two: each step starts in a different column.
WIDTH = 5


def make_tall_filter(config: Config, steps: int, unit: int, *, strided: bool) -> Forms:
    """A filter with enough taps that one vector of `unit` channels gives this many steps.

    Each step then advances to other columns and rows of the filter. With more channels only few steps do, and each
    prefetched step has separate code for that.
    """
    taps = max((config.block.k * steps - config.block.k // 4) // unit, 1)
    if config.ndim == 1:
        return _repeat_shape(_make_tall_shape(taps, strided))
    width = min(WIDTH, max(taps // 2, 1))
    # With a stride, the first outputs are entirely in the padding.
    across = (
        FilterShape(width, stride=3, dilation=2, left=2 * width - 1, right=3, rest=2)
        if strided
        else FilterShape(width, dilation=2, left=width // 2, right=2 * (width - 1) - width // 2)
    )
    return (FilterShape(1), _make_tall_shape(max(taps // width, 1), strided), across)


def _make_tall_shape(taps: int, strided: bool) -> FilterShape:
    above = taps // 2
    if not strided:
        return FilterShape(taps, left=above, right=taps - 1 - above)
    # Small pads: with pads as wide as the filter, most taps of an image with few rows are in the padding.
    return FilterShape(taps, stride=2, left=min(above, 2), right=1)
