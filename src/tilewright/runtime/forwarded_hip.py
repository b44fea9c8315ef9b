"""HIP and kernel libraries of emulated devices in another process: calls are forwarded to it."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tilewright.base.errors import DeviceError
from tilewright.emulator.hip_shim import deferred_errors, settings
from tilewright.runtime.emulator_client import EmulatorClient
from tilewright.runtime.hip import DEVICE_TO_DEVICE, DEVICE_TO_HOST, FORKED_EMULATOR, HOST_TO_DEVICE, Hip
from tilewright.runtime.messages import AddressArgument, ArgumentBytes, Request, RequestKind

# The functions of a kernel library that take a struct and return a status; SYMBOL_message describes a status.
_WITH_STRUCT = ("_run", "_workspace_size")
_MESSAGE = "_message"
# The type of the object that ctypes.byref returns, which has no name in ctypes.
_Reference: Any = type(ctypes.byref(ctypes.c_int()))


class _ThreadState(threading.local):
    """Per-thread state of HIP and kernel libraries: the current device, and the last message of each kernel."""

    def __init__(self) -> None:
        self.device = 0
        self.messages: dict[tuple[Path, str], bytes] = {}


_thread = _ThreadState()


class ForwardedHip(Hip):
    """The HIP shim of emulated devices in a separate process, which is started here."""

    def __init__(self) -> None:  # binds no library: calls are forwarded
        self.forked = False
        self._called = True
        self._count = None
        self._line = EmulatorClient()
        os.register_at_fork(after_in_child=self.mark_forked)
        try:
            self.path = Path(self._fetch_fact("where"))
        except BaseException:
            self._line.stop()
            raise

    @property
    def own_process(self) -> bool:
        return True

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._line.pid

    @property
    def gone(self) -> bool:
        return bool(self._line.gone)

    def call(self, name: str, *arguments: Any) -> int:
        if name in ("hipMemcpy", "hipMemcpyAsync"):
            return self._copy(name, *arguments)
        return self._send_call(Request(RequestKind.CALL, name), arguments)[0]

    def get_function(self, name: str) -> Callable[..., int]:
        return partial(self.call, name)

    def release(self, name: str, handle: int) -> None:
        if self.is_usable():
            self._line.send(Request(RequestKind.CALL, name, (handle,), device=_thread.device))

    def load(self, path: Path) -> None:
        """Load a kernel library in the other process."""
        self._line.ask(Request(RequestKind.LOAD, "", library=path))

    def call_library(self, path: Path, name: str, message: str, arguments: tuple[Any, ...]) -> tuple[int, bytes]:
        """Call a function of a kernel library. Returns the status, and the library's message if it is not 0."""
        return self._send_call(Request(RequestKind.CALL, name, library=path, message=message), arguments)

    def clear_error(self) -> None:
        """Does nothing: each call returns its own error."""

    def text(self, name: str, status: int) -> str:
        return str(self._fetch_fact("text", name, status))

    def set_device(self, index: int) -> int:
        _thread.device = index
        return 0

    def current_device(self) -> int:
        if self.forked:
            raise DeviceError(FORKED_EMULATOR)
        return _thread.device

    def make_device_reader(self) -> Callable[[Any], int]:
        def read(place: Any) -> int:
            place._obj.value = _thread.device
            return 0

        return read

    def count(self) -> int:
        if self._count is None:
            self._count = int(self._fetch_fact("count"))
        return self._count

    def runtime_version(self) -> int:
        return int(self._fetch_fact("runtime_version"))

    def bus_address(self, index: int) -> str:
        return str(self._fetch_fact("bus_address", index))

    def units(self, index: int) -> int:
        return int(self._fetch_fact("units", index))

    def memory_bytes(self, index: int) -> int:
        return int(self._fetch_fact("memory_bytes", index))

    def properties(self, index: int) -> bytes:
        return bytes(self._fetch_fact("properties", index))

    def _fetch_fact(self, name: str, *arguments: Any) -> Any:
        return self._line.ask(Request(RequestKind.FACT, name, arguments)).result

    def _copy(self, name: str, target: Any, source: Any, nbytes: int, direction: int, *stream: Any) -> int:
        """Copy memory. For copies from and to this process, the bytes are sent."""
        request, host = Request(RequestKind.CALL, name), None
        if direction == HOST_TO_DEVICE:
            request, host, source = replace(request, upload=nbytes), source, AddressArgument.HOST
        elif direction == DEVICE_TO_HOST:
            request, host, target = replace(request, download=nbytes), target, AddressArgument.HOST
        elif direction != DEVICE_TO_DEVICE:
            raise DeviceError(
                f"{name} does not support direction {direction}: an emulator in a separate process copies from host to "
                f"device ({HOST_TO_DEVICE}), back ({DEVICE_TO_HOST}), and on the device ({DEVICE_TO_DEVICE}) only"
            )
        if not nbytes:
            return 0
        memory = None if host is None else memoryview((ctypes.c_char * nbytes).from_address(host)).cast("B")
        return self._send_call(request, (target, source, nbytes, direction, *stream), memory)[0]

    def _send_call(
        self, request: Request, arguments: tuple[Any, ...], host: memoryview | None = None
    ) -> tuple[int, bytes]:
        """Send a call with the state of the calling thread, and apply the reply to it.

        Returns the status and the message of the kernel library.
        """
        device = _thread.device
        sent = tuple(_to_message(each) for each in arguments)
        asked, label = settings.get_settings(device), settings.get_label()
        whole = replace(request, arguments=sent, device=device, settings=asked, label=label)
        reply = self._line.ask(whole, host)
        pointers = [given for given, each in zip(arguments, sent, strict=True) if isinstance(each, ArgumentBytes)]
        for given, block in zip(pointers, reply.blocks, strict=True):
            if isinstance(given, _Reference):
                ctypes.memmove(given, block, len(block))
        for record in reply.records:
            settings.record_launch(device, record)
        for where, error in reply.kept:
            deferred_errors.keep_error(where, error)
        return int(reply.result), reply.message


class ForwardedLibrary:
    """A kernel library in the emulator process. `library[name]` are its C functions.

    It outlives that process: the next one loads it when a function is called.
    """

    def __init__(self, path: Path, opened: Callable[[], Hip]) -> None:
        self.path = path
        self._opened = opened
        self.get_hip().load(path)

    def get_hip(self) -> ForwardedHip:
        """The HIP shim in the current emulator process."""
        hip = self._opened()
        assert isinstance(hip, ForwardedHip)  # a HIP library that was loaded here is never unloaded
        return hip

    def __getitem__(self, name: str) -> ForwardedFunction:
        return ForwardedFunction(self, name)

    def __getattr__(self, name: str) -> ForwardedFunction:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]


class ForwardedFunction:
    """A function of a kernel library, with settable types like ctypes functions."""

    restype: Any = None
    argtypes: Any = None

    def __init__(self, library: ForwardedLibrary, name: str) -> None:
        suffix = next((each for each in (*_WITH_STRUCT, _MESSAGE) if name.endswith(each)), None)
        if suffix is None:
            raise DeviceError(
                f"{name} of {library.path} cannot be called: the emulator runs in a separate process, and only "
                f"functions whose names end with {', '.join((*_WITH_STRUCT, _MESSAGE))} can be called there"
            )
        self._library = library
        self._name = name
        self._message = name.removesuffix(suffix) + _MESSAGE

    def __call__(self, *arguments: Any) -> Any:
        key = (self._library.path, self._message)
        if self._name == self._message:
            return _thread.messages.get(key, b"")
        if not isinstance(arguments[0], bytes | _Reference):
            raise DeviceError(
                f"{self._name} was called with the struct {arguments[0]!r}: the emulator runs in a separate process, "
                "where addresses of this process are invalid. Pass ctypes.byref(struct) or its bytes."
            )
        hip = self._library.get_hip()
        status, said = hip.call_library(self._library.path, self._name, self._message, arguments)
        if status:
            _thread.messages[key] = said
        return status


def _to_message(argument: Any) -> Any:
    """Convert an argument for sending: bytes and referenced structs are sent by value."""
    if isinstance(argument, bytes):
        return ArgumentBytes(argument)
    if isinstance(argument, _Reference):
        return ArgumentBytes(bytes(argument._obj))
    return argument.value if isinstance(argument, ctypes.c_void_p) else argument
