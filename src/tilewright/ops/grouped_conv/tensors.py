"""The tensors of a convolution problem, packed and channels last.

| tensor | shape                   | CK Tile's name, 2-D |
|--------|-------------------------|---------------------|
| input  | n, *input_size, g, c/g  | NHWGC               |
| weight | g, k/g, *filter, c/g    | GKYXC               |
| output | n, *output_size, g, k/g | NHWGK               |

Groups always have a separate dimension, even a single group. An array (n, *input_size, c) has the same memory layout:
reshaping it costs nothing. The gradient of a tensor has the shape of the tensor.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ops.execution import Tensor
from tilewright.ops.grouped_conv.kind import find_kind
from tilewright.ops.grouped_conv.problem import Problem
from tilewright.ops.strides import check_strides, packed_strides


def list_tensors(problem: Problem) -> tuple[Tensor, ...]:
    """All tensors in the order of the C struct's pointers: A, B, and C, which is the output."""
    shapes = _compute_shapes(problem)
    types = (problem.dtype_a, problem.dtype_b, problem.dtype_c)
    made = [
        Tensor(name, dtype, shapes[like], packed_strides(shapes[like]), output=i == 2)
        for i, ((name, like), dtype) in enumerate(zip(find_kind(problem).tensors.items(), types, strict=True))
    ]
    return tuple(made)


def _compute_shapes(problem: Problem) -> dict[str, tuple[int, ...]]:
    c, k = problem.group_channels
    return {
        "input": (problem.n, *problem.input_size, problem.g, c),
        "weight": (problem.g, k, *problem.filter_size, c),
        "output": (problem.n, *problem.output_size, problem.g, k),
    }


def apply_strides(problem: Problem, strides: Mapping[str, tuple[int, ...]]) -> Problem:
    """The problem itself if its tensors may have these strides (in elements), by name; else an error.

    Kernels support packed tensors only.
    """
    advice = "channels last and without gaps. Copy it into that order"
    check_strides(list_tensors(problem), strides, "a convolution", advice)
    return problem
