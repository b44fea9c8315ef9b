"""Packets in device memory through which kernels call the host; the HIP shim answers them (host_calls.cpp)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tilewright.emulator.kernel_metadata import KernelMetadata
from tilewright.emulator.memory import Memory
from tilewright.emulator.native.native_engine import BATCH_WAVES

_ARGUMENT = "hidden_hostcall_buffer"
_HEAP_ARGUMENT = "hidden_heap_v1"
_HEAP_STATE_BYTES = 256 << 10  # `heap_t` of AMD's device libraries has 100 KiB; HIP gives it 128
DEFAULT_HEAP_BYTES = 512 << 20


def has_host_calls(kernel: KernelMetadata) -> bool:
    """Whether a kernel may call the host."""
    return any(argument.kind == _ARGUMENT for argument in kernel.arguments)


def has_heap(kernel: KernelMetadata) -> bool:
    """Whether a kernel may allocate memory."""
    return any(argument.kind == _HEAP_ARGUMENT for argument in kernel.arguments)


@dataclass(frozen=True, slots=True)
class KernelHeap:
    """The memory of `malloc` in kernels: the address of the libraries' state, and the host's handle."""

    state: int
    handle: int


class HostCalls:
    """The functions of the HIP shim that write packets and answer calls."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.tilewright_host_calls_bytes.argtypes = [ctypes.c_uint64]
        library.tilewright_host_calls_bytes.restype = ctypes.c_uint64
        library.tilewright_host_calls_write.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
        library.tilewright_host_calls_begin.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        library.tilewright_host_calls_begin.restype = ctypes.c_void_p
        library.tilewright_host_calls_end.argtypes = [ctypes.c_void_p]
        library.tilewright_heap_make.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
        library.tilewright_heap_make.restype = ctypes.c_void_p

    def make_heap(self, memory: Memory, size: int) -> KernelHeap:
        """Make a heap of `size` bytes. Its pages cost nothing until a kernel uses them."""
        state = memory.allocate(_HEAP_STATE_BYTES, "state of the kernels' heap")
        memory.fill(state, 0, _HEAP_STATE_BYTES)
        start = memory.allocate(size, "heap of the kernels")
        return KernelHeap(state, int(self._library.tilewright_heap_make(start, size)))

    @contextmanager
    def serve(self, memory: Memory, waves: int, heap: KernelHeap | None) -> Iterator[int]:
        """Answer the calls of a launch of `waves` waves inside the `with` block, which gets the packets' address."""
        # Each wave that runs may hold a packet, and never more of them run than a batch has.
        packets = 1 << (min(max(waves, 1), BATCH_WAVES) - 1).bit_length()
        address = memory.allocate(
            int(self._library.tilewright_host_calls_bytes(packets)), "calls to the host", internal=True
        )
        try:
            self._library.tilewright_host_calls_write(address, packets)
            handle = self._library.tilewright_host_calls_begin(address, None if heap is None else heap.handle)
            try:
                yield address
            finally:
                self._library.tilewright_host_calls_end(handle)
        finally:
            memory.free(address)
