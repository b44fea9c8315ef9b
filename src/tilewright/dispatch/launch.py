"""Calls of a built kernel: its C functions, arguments, workspace and status."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from tilewright.base.errors import DeviceError, InvalidValueError, UnsupportedError
from tilewright.ops.execution import Execution
from tilewright.ops.kernel import Kernel
from tilewright.runtime.streams import get_stream_handle

if TYPE_CHECKING:
    from tilewright.runtime.buffers import Buffer
    from tilewright.runtime.device import Device

# enum tw_status of every op's abi.h.
OK, BAD_ARGS, UNSUPPORTED, WORKSPACE, HIP_ERROR = range(5)


class Functions(NamedTuple):
    """The C functions of one kernel, with their types. Structs are passed by reference or as bytes, never as addresses:
    the library may be in another process."""

    run: Callable[[Any, int | None], int]
    workspace_size: Callable[[Any, Any], int]
    message: Callable[[], bytes]


def bind_functions(device: Device, library: Path, kernel: Kernel) -> Functions:
    """Load a kernel's library for a device, and bind its functions."""
    loaded = device.library(library)
    types: tuple[tuple[str, Any, list[Any]], ...] = (
        ("run", ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p]),
        ("workspace_size", ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64)]),
        ("message", ctypes.c_char_p, []),
    )
    found = []
    for name, result, arguments in types:
        function = loaded[f"{kernel.symbol}_{name}"]
        function.restype = result
        function.argtypes = arguments
        found.append(function)
    return Functions(*found)


class BoundKernel:
    """A kernel bound to a problem on a device: call it with addresses and a stream.

    Each launch has its own arguments, so any number of threads may call it at once.
    """

    __slots__ = ("_workspaces", "device", "functions", "kernel", "point", "prototype", "workspace_bytes")

    def __init__(
        self, device: Device, kernel: Kernel, functions: Functions, execution: Execution, problem: Any
    ) -> None:
        self.device = device
        self.kernel = kernel
        self.functions = functions
        self.point = execution.point(problem)
        self.prototype = execution.arguments(problem)
        self._workspaces: dict[tuple[int, int], Buffer] = {}
        self.workspace_bytes = self._read_workspace_size()

    def __call__(self, addresses: Sequence[int], stream: Any) -> None:
        """Launch in a stream; None is the default one. Returns when the kernel is launched, not when it is finished."""
        handle = get_stream_handle(stream)
        args = self._make_arguments(addresses, handle)
        with self.device.make_current():
            status = self.functions.run(ctypes.byref(args), handle)
        if status:
            self.fail(status)

    def prepare_launch(self, addresses: Sequence[int], stream: Any) -> Callable[[], None]:
        """A function that repeats the same launch with minimal host work, for measuring.

        Only for this thread, and only while the device is current.
        """
        handle = get_stream_handle(stream)
        args = self._make_arguments(addresses, handle)
        run, place = self.functions.run, ctypes.byref(args)

        def launch() -> None:
            if status := run(place, handle):
                self.fail(status)

        return launch

    def _make_arguments(self, addresses: Sequence[int], stream: int) -> Any:
        args = type(self.prototype).from_buffer_copy(self.prototype)
        self.point(args, addresses)
        if self.workspace_bytes:
            self._set_workspace(args, stream)
        return args

    def fail(self, status: int) -> NoReturn:
        """Raise the error for a status, with the library's message for this thread."""
        said = (self.functions.message() or b"").decode(errors="replace") or "it returned no message"
        message = f"{self.kernel.slug} on {self.device.name}: {said}"
        if status == BAD_ARGS:
            raise InvalidValueError(message)
        if status == UNSUPPORTED:
            raise UnsupportedError(message)
        if status == HIP_ERROR:
            self.device.raise_pending(message)
        what = "status 3, the workspace" if status == WORKSPACE else f"status {status}, which abi.h does not define"
        raise DeviceError(f"{message} ({what})")

    def _read_workspace_size(self) -> int:
        bytes_ = ctypes.c_uint64()
        status = self.functions.workspace_size(ctypes.byref(self.prototype), ctypes.byref(bytes_))
        if status:
            self.fail(status)
        if bytes_.value and not hasattr(self.prototype, "workspace"):
            raise InvalidValueError(
                f"{self.kernel.slug} needs {bytes_.value:,} bytes of workspace, and the arguments of {self.kernel.op} "
                "have no fields `workspace` and `workspace_size`"
            )
        return bytes_.value

    def _set_workspace(self, args: Any, stream: int) -> None:
        """Set the workspace. Launches on one stream run one after another and share it; other threads and streams have
        their own."""
        key = (threading.get_ident(), stream)
        workspace = self._workspaces.get(key)
        if workspace is None or not workspace.alive:
            label = f"workspace of {self.kernel.symbol}"
            workspace = self._workspaces[key] = self.device.allocate(self.workspace_bytes, label)
        args.workspace, args.workspace_size = workspace.address, self.workspace_bytes
