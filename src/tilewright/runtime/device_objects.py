"""Objects of a device: buffers, streams and events. Each is released with its Python owner."""

from __future__ import annotations

import ctypes
import operator
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import DeviceError, InvalidValueError
from tilewright.runtime.hip import DEVICE_TO_HOST, HOST_TO_DEVICE, NON_BLOCKING, Hip

if TYPE_CHECKING:
    from tilewright.runtime.device import Device

# Python.h: PyBUF_SIMPLE requests contiguous bytes, which types without a format letter also support.
_SIMPLE, _WRITABLE = 0, 1


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


class Stream:
    """A queue of work that runs in order. `handle` is the HIP handle, for other APIs."""

    def __init__(self, device: Device) -> None:
        made = ctypes.c_void_p()
        hip = device.call("hipStreamCreateWithFlags", ctypes.byref(made), NON_BLOCKING)
        self.device = device
        self.handle = int(made.value or 0)
        _release_with_owner(self, hip, "hipStreamDestroy", self.handle)

    def synchronize(self) -> None:
        """Wait until all work in the stream is done."""
        self.device.call("hipStreamSynchronize", self.handle)

    def __int__(self) -> int:
        return self.handle

    def __repr__(self) -> str:
        return f"Stream({self.handle:#x} of {self.device.name})"


class StreamEvent:
    """A point in a stream."""

    def __init__(self, device: Device) -> None:
        made = ctypes.c_void_p()
        hip = device.call("hipEventCreate", ctypes.byref(made))
        self.device = device
        self.handle = int(made.value or 0)
        _release_with_owner(self, hip, "hipEventDestroy", self.handle)

    def record(self, stream: object = None) -> None:
        """Record the current point of the stream."""
        self.device.call("hipEventRecord", self.handle, get_stream_handle(stream))

    def make_recorder(self, stream: object = None) -> Callable[[], None]:
        """A function like `record` with minimal host work, for measuring. Only while the device is current."""
        hip, handle = self.device.require_hip("hipEventRecord"), get_stream_handle(stream)
        function, own = hip.get_function("hipEventRecord"), self.handle

        def record() -> None:
            if status := function(own, handle):
                self.device.check(status, "hipEventRecord")

        return record

    def synchronize(self) -> None:
        """Wait until the point is reached."""
        self.device.call("hipEventSynchronize", self.handle)

    def elapsed_ms(self, earlier: StreamEvent) -> float:
        """Milliseconds between two recorded points. Synchronize with the later event first.

        An emulated device has no time: this raises `HipError`, unless a test simulates it (`device.simulate_time`).
        """
        gone = ctypes.c_float()
        self.device.call("hipEventElapsedTime", ctypes.byref(gone), earlier.handle, self.handle)
        return gone.value

    def __repr__(self) -> str:
        return f"Event({self.handle:#x} of {self.device.name})"


def get_stream_handle(stream: object) -> int:
    """The HIP handle of a Tilewright, torch or hip-python stream, or a number. None is the default stream."""
    if stream is None:
        return 0
    of_torch = getattr(stream, "cuda_stream", None)
    if isinstance(of_torch, int):
        return of_torch
    if isinstance(stream, bool):
        raise _make_stream_error(stream)
    if isinstance(stream, Stream):
        return stream.handle
    try:
        return operator.index(stream)  # type: ignore[arg-type]
    except TypeError:
        pass
    if hasattr(stream, "__int__") and not isinstance(stream, float):
        return int(stream)
    raise _make_stream_error(stream)


def _make_stream_error(stream: object) -> InvalidValueError:
    return InvalidValueError(
        f"{stream!r} is not a stream. Pass a Stream, a number (hipStream_t), a torch stream or a hip-python stream; "
        "None is the default stream."
    )


def _release_with_owner(owner: object, hip: Hip, function: str, handle: int) -> None:
    """Destroy a handle when its owner is garbage-collected, but not at the end of the process."""
    weakref.finalize(owner, hip.release, function, handle).atexit = False


class _PyBuffer(ctypes.Structure):
    """Py_buffer of Python's C interface."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_get = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)(
    ("PyObject_GetBuffer", ctypes.pythonapi)
)


_release = ctypes.PYFUNCTYPE(None, ctypes.POINTER(_PyBuffer))(("PyBuffer_Release", ctypes.pythonapi))


@dataclass(frozen=True, slots=True)
class HostBytes:
    """The address and number of bytes."""

    address: int
    nbytes: int


@contextmanager
def open_host_bytes(holder: object, *, writable: bool) -> Iterator[HostBytes]:
    """The bytes of an array, bytes, bytearray or memoryview, whose address is fixed inside the `with` block."""
    view = _PyBuffer()
    try:
        _get(holder, ctypes.byref(view), _WRITABLE if writable else _SIMPLE)
    except (BufferError, TypeError, ValueError) as error:
        need = "writable contiguous bytes" if writable else "contiguous bytes"
        raise InvalidValueError(
            f"{type(holder).__name__} does not provide {need}: {error}. Make a contiguous copy first."
        ) from error
    try:
        yield HostBytes(int(view.buf or 0), int(view.len))
    finally:
        _release(ctypes.byref(view))
