"""The memory of a tensor under test: poisoned where nothing may be read or written.

Imports NumPy: import this module only where kernels are to be verified.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.dispatch.tensors import span
from tilewright.ops.execution import Tensor

# Bytes of this value are a NaN in every floating-point type that has one there: it spoils what it is multiplied with,
# be it by 0.
POISON = 0xFF
# As integers they would be -1, an ordinary result; these are a number larger than any that is summed.
_INTEGER_POISON = 0x7F
# The only NaN of 8-bit floats without infinities (fnuz).
_FNUZ_POISON = 0x80


def poison_of(kind: np.dtype[Any]) -> int:
    """The byte that memory of a type is filled with where nothing may be read, and before results are written."""
    if np.issubdtype(kind, np.integer):
        return _INTEGER_POISON
    return _FNUZ_POISON if kind.name.endswith("fnuz") else POISON


class Guarded:
    """A tensor's memory before and after a launch, from its first to its last element, gaps included."""

    def __init__(self, tensor: Tensor, kind: np.dtype[Any], values: NDArray[Any] | None) -> None:
        self.tensor = tensor
        self._kind = kind
        elements = span(tensor.shape, tensor.strides)
        self.nbytes = elements * kind.itemsize
        self.memory: NDArray[np.uint8] = np.full(self.nbytes, poison_of(kind), np.uint8)
        if values is not None:
            self._logical(self.memory)[...] = values
        self.after = self.memory.copy()
        self._elements = elements

    def _logical(self, memory: NDArray[np.uint8]) -> NDArray[Any]:
        # as_strided goes through a type's letter and size, which those of ml_dtypes do not all have to themselves.
        strides = tuple(stride * self._kind.itemsize for stride in self.tensor.strides)
        return np.ndarray(self.tensor.shape, self._kind, memory, strides=strides)

    def values(self) -> NDArray[Any]:
        """The tensor as the launch left it."""
        return self._logical(self.after)

    def untouched(self) -> NDArray[np.bool_]:
        """Which elements are still poison."""
        size = self._kind.itemsize
        same = np.all(self.after.reshape(-1, size) == poison_of(self._kind), axis=1)
        return np.ndarray(self.tensor.shape, np.bool_, same, strides=self.tensor.strides)

    def damage(self) -> str:
        """What was written where nothing may be: into an input, or between the lines of an output; empty if nothing."""
        whole = self.tensor.output and self._elements == math.prod(self.tensor.shape)  # it has no gaps
        if whole or np.array_equal(self.after, self.memory):
            return ""
        changed = np.any((self.after != self.memory).reshape(self._elements, -1), axis=1)
        if self.tensor.output:
            np.ndarray(self.tensor.shape, np.bool_, changed, strides=self.tensor.strides)[...] = False
        count = int(np.count_nonzero(changed))
        if not count:
            return ""
        first = int(np.argmax(changed))
        where = f"{count:,} elements, the first {first:,} from its start"
        if self.tensor.output:
            return f"gaps between the lines of {self.tensor.name} were written: {where}"
        return f"the input {self.tensor.name} was changed: {where}"
