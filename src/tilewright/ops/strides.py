"""Strides of tensors that an op accepts in one memory order only."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from tilewright.base.errors import InvalidValueError, choose
from tilewright.ops.execution import Tensor


def packed_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides without gaps, the last dimension contiguous."""
    steps = itertools.accumulate(reversed(shape[1:]), lambda x, y: x * y, initial=1)
    return tuple(reversed(list(steps)))[: len(shape)]  # none without dimensions


def check_strides(tensors: Sequence[Tensor], strides: Mapping[str, tuple[int, ...]], who: str, advice: str) -> None:
    """Raise an error unless strides (in elements), by name, are those of the tensors. `who` requires them.

    The stride of a dimension of extent 1 is never used and may be anything.
    """
    known = {tensor.name: tensor for tensor in tensors}
    for name, given in strides.items():
        tensor = known[choose("tensor of the problem", name, known)]
        if len(given) != len(tensor.shape):
            raise InvalidValueError(f"{name} has {len(tensor.shape)} dimensions, {len(given)} strides were given")
        pairs = zip(tensor.shape, tensor.strides, given, strict=True)
        if any(extent > 1 and wanted != real for extent, wanted, real in pairs):
            raise InvalidValueError(
                f"{name} of shape {tensor.shape} has strides {given}, {who} requires {tensor.strides}: {advice}"
            )
