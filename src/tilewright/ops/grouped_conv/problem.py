"""A grouped convolution problem: the run-time values of one convolution or of one of its gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import InitVar, dataclass
from functools import cached_property

from tilewright.arch.dtypes import find_dtype as dtype_named
from tilewright.base.errors import InvalidValueError, choose
from tilewright.ops.block_gemm.types import fill_problem_types
from tilewright.ops.grouped_conv.config import BACKWARD_DATA, DIRECTIONS, FORWARD, LAYOUTS
from tilewright.ops.problem_values import Extents, check_count, read_extents


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Input (n, …, c), weights (k, …, c/g) and output (n, …, k); c and k are the channels of all g groups.

    `direction` selects which of the three is computed; the types of A, B and C are those of its implicit GEMM.
    Extents have one number for each spatial dimension, outermost first: (28, 28), or "28x28". A single number stands
    for all dimensions of the input. `pad` is both pads at once, `dtype` all types at once.
    """

    direction: str
    n: int
    g: int = 1
    c: int
    k: int
    input_size: Extents
    filter_size: Extents
    stride: Extents = (1,)
    dilation: Extents = (1,)
    pad: InitVar[Sequence[int] | str | int | None] = None
    left_pad: Extents = (0,)
    right_pad: Extents = (0,)
    dtype: InitVar[str | None] = None
    dtype_a: str = ""
    dtype_b: str = ""
    dtype_c: str = ""
    k_batch: int = 1

    def __post_init__(self, pad: Sequence[int] | str | int | None, dtype: str | None) -> None:
        choose("direction", self.direction, DIRECTIONS)
        types = fill_problem_types(dtype, dtype_a=self.dtype_a, dtype_b=self.dtype_b, dtype_c=self.dtype_c)
        for name, value in types.items():
            object.__setattr__(self, name, value)
        for name in ("n", "g", "c", "k", "k_batch"):
            check_count(name, getattr(self, name), 1)
        self._read_extents(pad)
        for name in ("c", "k"):
            if getattr(self, name) % self.g:
                raise InvalidValueError(
                    f"{name} = {getattr(self, name)} channels cannot be divided among g = {self.g} groups: it must be "
                    "a multiple"
                )

    def _read_extents(self, pad: Sequence[int] | str | int | None) -> None:
        if pad is not None:
            if self.left_pad != (0,) or self.right_pad != (0,):
                raise InvalidValueError("pad stands for left_pad and right_pad: give either pad or both of those")
            object.__setattr__(self, "left_pad", pad)
            object.__setattr__(self, "right_pad", pad)
        ndim = None
        for name, least in _EXTENTS:
            value = read_extents(name, getattr(self, name), least, ndim)
            object.__setattr__(self, name, value)
            ndim = len(value)
        if self.ndim not in LAYOUTS:
            raise InvalidValueError(
                f"input_size has {self.ndim} dimensions, a convolution has {', '.join(map(str, LAYOUTS))}"
            )
        for i, size in enumerate(self.output_size):
            if size < 1:
                raise InvalidValueError(
                    f"the filter reaches over {self.reach[i]} of the {self.padded_size[i]} padded input elements of "
                    f"dimension {i}: the output would be empty"
                )

    @property
    def ndim(self) -> int:
        """Spatial dimensions."""
        return len(self.input_size)

    @property
    def layout(self) -> str:
        """The layout of input and output: channels last."""
        return LAYOUTS[self.ndim]

    @cached_property
    def reach(self) -> Extents:
        """Input elements from the first to the last that one output reads, in each dimension."""
        return tuple((size - 1) * step + 1 for size, step in zip(self.filter_size, self.dilation, strict=True))

    @cached_property
    def padded_size(self) -> Extents:
        """The size of the input with its pads."""
        return tuple(sum(parts) for parts in zip(self.input_size, self.left_pad, self.right_pad, strict=True))

    @cached_property
    def output_size(self) -> Extents:
        """Spatial sizes of the output."""
        sizes = zip(self.padded_size, self.reach, self.stride, strict=True)
        return tuple((size - reach) // stride + 1 for size, reach, stride in sizes)

    @property
    def group_channels(self) -> tuple[int, int]:
        """Input and output channels of one group."""
        return self.c // self.g, self.k // self.g

    @property
    def flops(self) -> int:
        """Multiplications and additions, including those with padding: the same for all directions."""
        outputs = self.n * self.k * math.prod(self.output_size)
        return 2 * outputs * (self.c // self.g) * math.prod(self.filter_size)

    def count_elements(self, images: int) -> tuple[int, int, int]:
        """The number of elements of A, B and C with this many images."""
        image = images * self.c * math.prod(self.input_size)
        weights = self.k * self.c // self.g * math.prod(self.filter_size)
        output = images * self.k * math.prod(self.output_size)
        if self.direction == FORWARD:
            return image, weights, output
        if self.direction == BACKWARD_DATA:
            return output, weights, image
        return output, image, weights

    @property
    def bytes_moved(self) -> int:
        """The minimum of memory traffic: both operands are read once, the result is written once."""
        sizes = zip(self.count_elements(self.n), (self.dtype_a, self.dtype_b, self.dtype_c), strict=True)
        return sum(count * dtype_named(name).bits for count, name in sizes) // 8


# Extents in reading order, with their minimum. The first determines the number of dimensions.
_EXTENTS = (
    ("input_size", 1),
    ("filter_size", 1),
    ("stride", 1),
    ("dilation", 1),
    ("left_pad", 0),
    ("right_pad", 0),
)
