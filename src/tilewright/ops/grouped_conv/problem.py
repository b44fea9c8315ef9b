"""A grouped convolution problem: the run-time values of one convolution or of one of its gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import InitVar
from functools import cached_property

from tilewright.arch.dtypes import find_dtype as dtype_named
from tilewright.base.errors import InvalidValueError
from tilewright.ops.block_gemm.types import declare_type, declare_types, set_problem_types
from tilewright.ops.fields import ChoiceType
from tilewright.ops.grouped_conv.config import DIRECTIONS
from tilewright.ops.grouped_conv.kind import find_kind
from tilewright.ops.grouped_conv.source import LAYOUTS
from tilewright.ops.problem_field import (
    ExtentsType,
    IntegerType,
    ProblemBase,
    problem_field,
    problem_shorthand,
)
from tilewright.ops.problem_values import Extents, repeat_extent

_SIZE = IntegerType()
_EXTENTS = ExtentsType()
_PADS = ExtentsType(0)


class Problem(ProblemBase):
    """Input (n, …, c), weights (k, …, c/g) and output (n, …, k); c and k are the channels of all g groups.

    `direction` selects which of the three is computed; the types of A, B and C are those of its implicit GEMM.
    Extents have one number for each spatial dimension, outermost first: (28, 28), or "28x28". A single number stands
    for all dimensions of the input. `pad` is both pads at once, `dtype` all types at once.
    """

    direction: str = problem_field(ChoiceType(DIRECTIONS), "the convolution, or the gradient of an operand")
    n: int = problem_field(_SIZE, "images")
    g: int = problem_field(_SIZE, "groups of channels", default=1)
    c: int = problem_field(_SIZE, "input channels of all groups")
    k: int = problem_field(_SIZE, "output channels of all groups")
    input_size: Extents = problem_field(_EXTENTS, "spatial size of the input; its dimensions are those of the problem")
    filter_size: Extents = problem_field(_EXTENTS, "spatial size of the filter")
    stride: Extents = problem_field(_EXTENTS, "input elements between neighbouring outputs", default=(1,))
    dilation: Extents = problem_field(_EXTENTS, "input elements between neighbouring taps", default=(1,))
    pad: InitVar[Sequence[int] | str | int | None] = problem_shorthand(
        "as left_pad", "left_pad and right_pad at once", default=None, copies=("left_pad", "right_pad")
    )
    left_pad: Extents = problem_field(_PADS, "zeros before the input", default=(0,))
    right_pad: Extents = problem_field(_PADS, "zeros after the input", default=(0,))
    dtype: InitVar[str | None] = declare_types()
    dtype_a: str = declare_type("A of the implicit GEMM")
    dtype_b: str = declare_type("B")
    dtype_c: str = declare_type("C")
    k_batch: int = problem_field(_SIZE, "parts that a weight gradient's sum is split into", default=1)

    def __post_init__(self, pad: Sequence[int] | str | int | None, dtype: str | None) -> None:
        set_problem_types(self, dtype)
        if pad is not None:
            if self.left_pad != (0,) or self.right_pad != (0,):
                raise InvalidValueError("pad stands for left_pad and right_pad: give either pad or both of those")
            self.__dict__.update(left_pad=pad, right_pad=pad)
        super().__post_init__()

    def check_values(self) -> None:
        for name in ("c", "k"):
            if getattr(self, name) % self.g:
                raise InvalidValueError(
                    f"{name} = {getattr(self, name)} channels cannot be divided among g = {self.g} groups: it must be "
                    "a multiple"
                )
        if self.ndim not in LAYOUTS:
            raise InvalidValueError(
                f"input_size has {self.ndim} dimensions, a convolution has {', '.join(map(str, LAYOUTS))}"
            )
        for name in ("filter_size", "stride", "dilation", "left_pad", "right_pad"):
            self.__dict__[name] = repeat_extent(name, getattr(self, name), self.ndim)
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
        counts = {
            "input": images * self.c * math.prod(self.input_size),
            "weight": self.k * self.c // self.g * math.prod(self.filter_size),
            "output": images * self.k * math.prod(self.output_size),
        }
        a, b, c = (counts[like] for like in find_kind(self).tensors.values())
        return a, b, c

    @property
    def bytes_moved(self) -> int:
        """The minimum of memory traffic: both operands are read once, the result is written once."""
        sizes = zip(self.count_elements(self.n), (self.dtype_a, self.dtype_b, self.dtype_c), strict=True)
        return sum(count * dtype_named(name).bits for count, name in sizes) // 8
