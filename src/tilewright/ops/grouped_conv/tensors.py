"""The tensors of a convolution problem, packed and channels last.

| tensor | shape                   | CK Tile's name, 2-D |
|--------|-------------------------|---------------------|
| input  | n, *input_size, g, c/g  | NHWGC               |
| weight | g, k/g, *filter, c/g    | GKYXC               |
| output | n, *output_size, g, k/g | NHWGK               |

Groups have a dimension of their own, also a single one. An array (n, *input_size, c) has the same memory: reshaping it
costs nothing. The gradient of a tensor has its shape.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from tilewright.base.errors import InvalidValueError, choose
from tilewright.ops.execution import Tensor
from tilewright.ops.grouped_conv.config import BACKWARD_DATA, BACKWARD_WEIGHT, FORWARD
from tilewright.ops.grouped_conv.problem import Problem

# A, B and C of each direction, and which of the three tensors they are like.
NAMES = {
    FORWARD: {"input": "input", "weight": "weight", "output": "output"},
    BACKWARD_DATA: {"grad_output": "output", "weight": "weight", "grad_input": "input"},
    BACKWARD_WEIGHT: {"grad_output": "output", "input": "input", "grad_weight": "weight"},
}


def tensors(problem: Problem) -> tuple[Tensor, ...]:
    """All tensors in the order of the C struct's pointers: A, B, and C, which is the output."""
    shapes = _shapes(problem)
    types = (problem.dtype_a, problem.dtype_b, problem.dtype_c)
    made = [
        Tensor(name, dtype, shapes[like], _packed(shapes[like]), output=i == 2)
        for i, ((name, like), dtype) in enumerate(zip(NAMES[problem.direction].items(), types, strict=True))
    ]
    return tuple(made)


def _shapes(problem: Problem) -> dict[str, tuple[int, ...]]:
    c, k = problem.group_channels
    return {
        "input": (problem.n, *problem.input_size, problem.g, c),
        "weight": (problem.g, k, *problem.filter_size, c),
        "output": (problem.n, *problem.output_size, problem.g, k),
    }


def _packed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides without gaps, the last dimension contiguous."""
    steps = itertools.accumulate(reversed(shape[1:]), lambda x, y: x * y, initial=1)
    return tuple(reversed(list(steps)))


def with_strides(problem: Problem, strides: Mapping[str, tuple[int, ...]]) -> Problem:
    """The problem itself, if its tensors may have these strides (in elements), by name; else an error.

    Kernels take packed tensors only. The stride of a dimension of extent 1 is never used, so any will do.
    """
    known = {tensor.name: tensor for tensor in tensors(problem)}
    for name, given in strides.items():
        tensor = known[choose("tensor of the problem", name, known)]
        if len(given) != len(tensor.shape):
            raise InvalidValueError(f"{name} has {len(tensor.shape)} dimensions, {len(given)} strides were given")
        pairs = zip(tensor.shape, tensor.strides, given, strict=True)
        if any(extent > 1 and wanted != real for extent, wanted, real in pairs):
            raise InvalidValueError(
                f"{name} of shape {tensor.shape} has strides {given}, a convolution wants {tensor.strides}: channels "
                "last and no gaps. Copy it into that order"
            )
    return problem
