"""Tensors of host memory in the memory of an emulated GPU: one allocation for each storage, with guards."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import TensorError
from tilewright.emulator.memory import Memory

# If the address of a tensor is a multiple of 16, Triton compiles code that relies on it. The address on the GPU must
# have the same remainder.
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class _Copy:
    """A storage and its copy on the GPU, at `address` in `allocation`."""

    storage: Any  # kept, so that its memory is not used for another tensor
    dtype: Any  # of the first view that was copied
    host: NDArray[np.uint8]
    allocation: int
    address: int


class TensorMemory:
    """Copies of tensors. Views of one storage share its copy."""

    def __init__(self, memory: Memory, *others: TensorMemory) -> None:
        self._memory = memory
        self._others = others  # searched first
        self.finds_unwritten: bool = any(other.finds_unwritten for other in others)
        self._copies: dict[int, _Copy] = {}

    def find_address(self, tensor: Any, label: str) -> int:
        """Return the tensor's address on the GPU. A storage that has no copy yet is copied, named `label` in faults."""
        if tensor.device.type != "cpu":
            raise TensorError(f"{label} is on {tensor.device}; an emulated GPU takes tensors on cpu")
        storage = tensor.untyped_storage()
        if storage.nbytes() == 0:
            return 0
        found = self.translate(tensor.data_ptr())
        if found is None:
            self._copies[storage.data_ptr()] = self._copy(storage, tensor.dtype, label)
            found = self.translate(tensor.data_ptr())
        if found is None:
            raise TensorError(f"{label} starts outside of its storage of {storage.nbytes()} bytes")
        return found

    def translate(self, host_address: int) -> int | None:
        """Return the address on the GPU of a byte in host memory, or None if no tensor here has it."""
        for other in self._others:
            if (found := other.translate(host_address)) is not None:
                return found
        for start, copy in self._copies.items():
            # The end, too: an empty view may start there.
            if start <= host_address <= start + copy.host.size:
                return copy.address + host_address - start
        return None

    def contains(self, address: int) -> bool:
        """Tell whether an address on the GPU is inside one of these tensors."""
        inside = (copy.address <= address < copy.address + copy.host.size for copy in self._copies.values())
        return any(inside) or any(other.contains(address) for other in self._others)

    def _copy(self, storage: Any, dtype: Any, label: str) -> _Copy:
        size, start = storage.nbytes(), storage.data_ptr()
        skew = start % _ALIGNMENT
        allocation = self._memory.allocate(skew + size, label)
        host = np.frombuffer((ctypes.c_uint8 * size).from_address(start), np.uint8)
        copy = _Copy(storage, dtype, host, allocation, allocation + skew)
        self._write(copy)
        return copy

    def _write(self, copy: _Copy) -> None:
        self._memory.write(copy.address, copy.host.data)
        if self.finds_unwritten:
            from tilewright.triton.uninitialized_tensors import find_unwritten  # noqa: PLC0415 - it needs torch

            self._memory.mark_unwritten(copy.address, find_unwritten(copy.storage, copy.dtype))

    def upload(self) -> None:
        """Copy all tensors to the GPU again."""
        for copy in self._copies.values():
            self._write(copy)

    def download(self) -> None:
        """Copy tensors that changed on the GPU back to host memory. Others are not written: they may be read-only."""
        for copy in self._copies.values():
            new = np.frombuffer(self._memory.view(copy.address, copy.host.size), np.uint8)
            if not np.array_equal(new, copy.host):
                np.copyto(copy.host, new)

    def free(self) -> None:
        """Free all copies."""
        for copy in self._copies.values():
            self._memory.free(copy.allocation)
        self._copies.clear()
