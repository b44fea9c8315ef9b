"""The emulator process, for programs that have another HIP library loaded.

It handles one request after another and ends with the process that started it.
"""

from __future__ import annotations

import ctypes
import pickle
import signal
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from tilewright.base.errors import DeviceError
from tilewright.emulator.hip_shim import deferred_errors, settings
from tilewright.emulator.hip_shim.shim import use_dry_run
from tilewright.runtime import hip_library
from tilewright.runtime.hip import SIGNATURES
from tilewright.runtime.hip_library import load_kernel_library
from tilewright.runtime.messages import AddressArgument, ArgumentBytes, Reply, Request, RequestKind

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(descriptor: int) -> None:
    """Handle the requests from a socket until its other end is closed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    server = _Server()
    signal.signal(signal.SIGINT, server.interrupt)
    with Connection(descriptor) as line:
        while True:
            try:
                request: Request = line.recv()
                payload = bytearray(request.upload or request.download)
                if request.upload:
                    line.recv_bytes_into(payload)
                reply = server.handle(request, payload)
                line.send(reply)
                if reply.downloaded:
                    line.send_bytes(payload)
            except (EOFError, ConnectionError):
                return


class _Server:
    def __init__(self) -> None:
        self._working = False

    def interrupt(self, *_: Any) -> None:
        """Interrupt the running request, because its caller was interrupted. A late interrupt is ignored."""
        if self._working:
            raise KeyboardInterrupt

    def handle(self, request: Request, payload: bytearray) -> Reply:
        """Handle a request. Errors are returned, and raised in the caller."""
        try:
            self._working = True
            reply = _handle_request(request, payload)
            self._working = False
        except BaseException as error:  # also Ctrl-C
            self._working = False
            reply = Reply(error=_make_sendable(error))
        return replace(
            reply, kept=tuple((device, _make_sendable(error)) for device, error in deferred_errors.take_errors())
        )


def _handle_request(request: Request, payload: bytearray) -> Reply:
    hip = hip_library.load_shim_here()
    if request.kind is RequestKind.FACT:
        return Reply(getattr(hip, request.name)(*request.arguments))
    library = None if request.library is None else load_kernel_library(hip, request.library, emulated=True)
    if request.kind is RequestKind.LOAD:
        return Reply()
    blocks: list[Any] = []
    types = SIGNATURES[request.name] if library is None else (ctypes.c_void_p,) * len(request.arguments)
    arguments = [
        _convert_argument(given, kind, payload, blocks) for given, kind in zip(request.arguments, types, strict=True)
    ]
    hip.set_device(request.device)
    asked = request.settings
    with (
        settings.use_label(request.label),
        settings.use_settings(request.device, asked),
        use_dry_run(request.device, asked.dry, before=False),
        settings.record_launches(request.device) as records,
    ):
        status = hip.call(request.name, *arguments) if library is None else library[request.name](*arguments)
    said = b""
    if status:
        hip.clear_error()
        if library is not None:
            message = library[request.message]
            message.restype = ctypes.c_char_p
            said = message() or b""
    return Reply(
        status,
        blocks=tuple(block.raw for block in blocks),
        message=said,
        records=tuple(records),
        downloaded=0 if status else request.download,
    )


def _convert_argument(given: Any, kind: Any, payload: bytearray, blocks: list[Any]) -> Any:
    """Convert an argument to its C type. Pointers point to memory of this process."""
    if isinstance(given, ArgumentBytes):
        blocks.append(ctypes.create_string_buffer(given.data, len(given.data)))
        return ctypes.cast(blocks[-1], kind)
    if given is AddressArgument.HOST:
        return ctypes.addressof((ctypes.c_char * len(payload)).from_buffer(payload))
    return kind(given)


def _make_sendable(error: BaseException) -> BaseException:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # classes of other packages may raise anything
        return DeviceError(f"{type(error).__name__}: {error}")
    return error
