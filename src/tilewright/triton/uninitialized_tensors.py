"""Tensors that nobody wrote: `torch.empty` and its kind get a pattern, by which they are recognised at a launch.

Whoever writes such a tensor, torch, NumPy or a kernel, replaces the pattern, and copies of it have the pattern, too. So
no write needs to be observed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.overrides import TorchFunctionMode

# A NaN of fp16 and bf16 that no operation returns; twice, one of fp32. As a number of 32 bits it is improbable.
_PATTERN = 0x7FA5
_FACTORIES = frozenset({
    torch.empty, torch.empty_like, torch.empty_strided, torch.empty_permuted, torch.Tensor.new_empty,
    torch.Tensor.new_empty_strided,
})  # fmt: skip
_HALVES = (torch.float16, torch.bfloat16)


class MarkUninitializedTensors(TorchFunctionMode):
    """While it is active in a thread, tensors that torch does not clear are filled with the pattern."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch."""
        result = function(*args, **(kwargs or {}))
        # With `out`, the memory belongs to a tensor that may have been written.
        if function in _FACTORIES and result.device.type == "cpu" and "out" not in (kwargs or {}):
            _fill(result)
        return result


def find_unwritten(storage: Any, dtype: torch.dtype) -> NDArray[np.bool_]:
    """Return for each byte of a storage whether it still has the pattern: nobody wrote it.

    Elements of one byte and of 16-bit integers count in groups of four bytes, because two may have it by chance.
    """
    data = _view(storage)
    group = 2 if dtype in _HALVES else 4
    whole = data.size - data.size % group
    same = data[:whole].view(np.uint16) == _PATTERN
    groups = same.reshape(-1, group // 2).all(axis=1)
    found = np.zeros(data.size, np.bool_)
    found[:whole] = np.repeat(groups, group)
    return found


def _fill(tensor: torch.Tensor) -> None:
    data = _view(tensor.untyped_storage())
    data[: data.size - data.size % 2].view(np.uint16)[:] = _PATTERN


def _view(storage: Any) -> NDArray[np.uint8]:
    size = storage.nbytes()
    if size == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer((ctypes.c_uint8 * size).from_address(storage.data_ptr()), np.uint8)
