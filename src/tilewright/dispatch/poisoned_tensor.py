"""The poisoned memory of a tensor under test, to find stray reads and writes.

Imports NumPy: import this module only to verify kernels.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.dispatch.tensors import compute_span
from tilewright.ops.execution import Tensor

# Bytes of this value are a NaN in most floating-point types: any product with it is NaN, even with 0.
POISON = 0xFF
# As integers these bytes would be -1, an ordinary result; this value is larger than any summand.
_INTEGER_POISON = 0x7F
# The only NaN of 8-bit floats without infinities (fnuz).
_FNUZ_POISON = 0x80


@cache
def choose_poison(kind: np.dtype[Any]) -> int:
    """The fill byte for gaps, and for outputs before the launch."""
    if np.issubdtype(kind, np.integer):
        return _INTEGER_POISON
    return _FNUZ_POISON if kind.name.endswith("fnuz") else POISON


def count_bytes(tensor: Tensor, kind: np.dtype[Any]) -> int:
    """The size of a tensor's memory, from its first to its last element, gaps included."""
    return compute_span(tensor.shape, tensor.strides) * kind.itemsize


class PoisonedTensor:
    """A tensor's memory before and after a launch, from its first to its last element, gaps included."""

    def __init__(self, tensor: Tensor, kind: np.dtype[Any], values: NDArray[Any] | None) -> None:
        self.tensor = tensor
        self._kind = kind
        self.nbytes = count_bytes(tensor, kind)
        self.memory: NDArray[np.uint8] = np.full(self.nbytes, choose_poison(kind), np.uint8)
        if values is not None:
            self._make_view(self.memory)[...] = values
        self.after = self.memory.copy()

    def _make_view(self, memory: NDArray[np.uint8]) -> NDArray[Any]:
        # as_strided identifies types by letter and size, which are not unique for types of ml_dtypes.
        strides = tuple(stride * self._kind.itemsize for stride in self.tensor.strides)
        return np.ndarray(self.tensor.shape, self._kind, memory, strides=strides)

    def get_values(self) -> NDArray[Any]:
        """The tensor after the launch."""
        return self._make_view(self.after)

    def find_untouched(self) -> NDArray[np.bool_]:
        """Which elements are still poisoned."""
        size = self._kind.itemsize
        same = np.all(self.after.reshape(-1, size) == choose_poison(self._kind), axis=1)
        return np.ndarray(self.tensor.shape, np.bool_, same, strides=self.tensor.strides)

    def describe_stray_writes(self) -> str:
        """Description of stray writes, to an input or to the gaps of an output; empty if there are none."""
        elements = self.nbytes // self._kind.itemsize
        whole = self.tensor.output and elements == math.prod(self.tensor.shape)  # it has no gaps
        if whole or np.array_equal(self.after, self.memory):
            return ""
        # Elements as integers: comparing their bytes takes a hundred times as long.
        whole_element = np.dtype(f"u{self._kind.itemsize}")
        changed = self.after.view(whole_element) != self.memory.view(whole_element)
        if self.tensor.output:
            np.ndarray(self.tensor.shape, np.bool_, changed, strides=self.tensor.strides)[...] = False
        count = int(np.count_nonzero(changed))
        if not count:
            return ""
        first = int(np.argmax(changed))
        where = f"{count:,} elements, the first at offset {first:,}"
        if self.tensor.output:
            return f"gaps between the lines of {self.tensor.name} were written: {where}"
        return f"the input {self.tensor.name} was changed: {where}"
