"""The current device of a thread's HIP calls."""

from __future__ import annotations

from types import TracebackType

from tilewright.runtime.hip import Hip


class DeviceGuard:
    """Sets this thread's current device inside the `with` block, and restores the previous one.

    A class instead of a generator for speed: it is entered around every launch.
    """

    __slots__ = ("_before", "_hip", "_index")

    def __init__(self, hip: Hip, index: int) -> None:
        self._hip = hip
        self._index = index
        self._before = index

    def __enter__(self) -> None:
        self._before = self._hip.current_device()
        if self._before != self._index:
            self._set_device(self._index)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before != self._index:
            self._set_device(self._before)

    def _set_device(self, index: int) -> None:
        status = self._hip.set_device(index)
        if status:
            raise self._hip.make_error(status, "hipSetDevice")
