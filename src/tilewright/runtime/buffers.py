"""Device memory."""

from __future__ import annotations

import ctypes
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import DeviceError, InvalidValueError
from tilewright.runtime.hip import DEVICE_TO_HOST, HOST_TO_DEVICE
from tilewright.runtime.host_bytes import open_host_bytes
from tilewright.runtime.streams import get_stream_handle

if TYPE_CHECKING:
    from tilewright.runtime.device import Device


class Buffer:
    """Bytes on a device, freed with `free`, at the end of a `with` block, or when the buffer is garbage-collected.

    Copies and fills are complete when the call returns. With a `stream` they run after the work in it.
    """

    def __init__(self, device: Device, nbytes: int, label: str = "") -> None:
        if not isinstance(nbytes, int) or isinstance(nbytes, bool) or nbytes < 1:
            raise InvalidValueError(f"the size of a buffer must be an integer of at least 1, got {nbytes!r}")
        made = ctypes.c_void_p()
        with device.label_allocations(label):
            hip = device.call("hipMalloc", ctypes.byref(made), nbytes)
        self.device = device
        self.address = int(made.value or 0)
        self.nbytes = nbytes
        self.label = label
        self._hip = hip
        self._release = weakref.finalize(self, hip.release, "hipFree", self.address)
        self._release.atexit = False  # the system frees everything when the process ends

    @property
    def alive(self) -> bool:
        """Whether it exists: it was not freed, and its process has not ended."""
        return self._release.alive and not self._hip.gone

    def copy_from(self, source: Any, stream: object = None, *, at: int = 0) -> None:
        """Copy the bytes of an array or another contiguous bytes-like object to the buffer, starting at byte `at`."""
        if at < 0:
            raise InvalidValueError(f"byte {at} is before the start of {self!r}")
        with open_host_bytes(source, writable=False) as host:
            self._check_usable("copied into", at + host.nbytes)
            self._copy(self.address + at, host.address, host.nbytes, HOST_TO_DEVICE, stream)

    def copy_to(self, target: Any, stream: object = None) -> None:
        """Fill an array or another writable bytes-like object with bytes from the start of the buffer."""
        with open_host_bytes(target, writable=True) as host:
            self._check_usable("copied from", host.nbytes)
            self._copy(host.address, self.address, host.nbytes, DEVICE_TO_HOST, stream)

    def fill(self, byte: int, stream: object = None, *, wait: bool = True) -> None:
        """Set all bytes to one value. Without `wait`, return when the work is in the stream."""
        if not 0 <= byte <= 255:
            raise InvalidValueError(f"a byte must be 0 to 255, got {byte}")
        self._check_usable("filled in", self.nbytes)
        handle = get_stream_handle(stream)
        self.device.call("hipMemsetAsync", self.address, byte, self.nbytes, handle)
        if wait:
            self.device.call("hipStreamSynchronize", handle)

    def free(self) -> None:
        """Free the memory now. The address must not be used afterwards."""
        if not self._release.alive:
            raise DeviceError(f"{self!r} is freed a second time")
        self._check_there()
        self.device.require_hip("hipFree")
        self._release.detach()
        self.device.call("hipFree", self.address)

    def _copy(self, target: int, source: int, nbytes: int, direction: int, stream: object) -> None:
        handle = get_stream_handle(stream)
        self.device.call("hipMemcpyAsync", target, source, nbytes, direction, handle)
        self.device.call("hipStreamSynchronize", handle)

    def _check_usable(self, done: str, nbytes: int) -> None:
        if not self._release.alive:
            raise DeviceError(f"{self!r} was freed and cannot be used any more")
        self._check_there()
        if nbytes > self.nbytes:
            raise InvalidValueError(f"{nbytes} bytes cannot be {done} {self!r}: it has {self.nbytes}")

    def _check_there(self) -> None:
        if self._hip.gone:
            raise DeviceError(f"{self!r} was lost when the emulator process ended: allocate it again")

    def __enter__(self) -> Buffer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._release.alive:
            self._release()

    def __repr__(self) -> str:
        name = f"'{self.label}', " if self.label else ""
        return f"Buffer({name}{self.nbytes} bytes at {self.address:#x} of {self.device.name})"
