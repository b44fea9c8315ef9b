"""Device streams and events."""

from __future__ import annotations

import ctypes
import operator
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from tilewright.base.errors import InvalidValueError
from tilewright.runtime.hip import NON_BLOCKING, Hip

if TYPE_CHECKING:
    from tilewright.runtime.device import Device


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

        An emulated device has no time: this raises `HipError`, unless a test simulates it (`emulation.simulate_time`).
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
