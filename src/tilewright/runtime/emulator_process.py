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
from tilewright.emulator.stand_in import pending, settings
from tilewright.emulator.stand_in.opened import running_dry
from tilewright.runtime import loaded
from tilewright.runtime.forwarding import Block, Kind, Place, Reply, Request
from tilewright.runtime.hip import SIGNATURES
from tilewright.runtime.libraries import kernel_library

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
                reply = server.answer(request, payload)
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

    def answer(self, request: Request, payload: bytearray) -> Reply:
        """Handle a request. Errors are returned, and raised in the caller."""
        try:
            self._working = True
            reply = _done(request, payload)
            self._working = False
        except BaseException as error:  # also Ctrl-C
            self._working = False
            reply = Reply(error=_sendable(error))
        return replace(reply, kept=tuple((device, _sendable(error)) for device, error in pending.take_own()))


def _done(request: Request, payload: bytearray) -> Reply:
    hip = loaded.stand_in_here()
    if request.kind is Kind.FACT:
        return Reply(getattr(hip, request.name)(*request.arguments))
    library = None if request.library is None else kernel_library(hip, request.library, emulated=True)
    if request.kind is Kind.LOAD:
        return Reply()
    blocks: list[Any] = []
    types = SIGNATURES[request.name] if library is None else (ctypes.c_void_p,) * len(request.arguments)
    arguments = [_argument(given, kind, payload, blocks) for given, kind in zip(request.arguments, types, strict=True)]
    hip.set_device(request.device)
    asked = request.settings
    with (
        settings.naming(request.label),
        settings.in_force(request.device, asked),
        running_dry(request.device, asked.dry, before=False),
        settings.recording(request.device) as records,
    ):
        status = hip.call(request.name, *arguments) if library is None else library[request.name](*arguments)
    said = b""
    if status:
        hip.forget_error()
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


def _argument(given: Any, kind: Any, payload: bytearray, blocks: list[Any]) -> Any:
    """Convert an argument to its C type. Pointers point to memory of this process."""
    if isinstance(given, Block):
        blocks.append(ctypes.create_string_buffer(given.data, len(given.data)))
        return ctypes.cast(blocks[-1], kind)
    if given is Place.HOST:
        return ctypes.addressof((ctypes.c_char * len(payload)).from_buffer(payload))
    return kind(given)


def _sendable(error: BaseException) -> BaseException:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # classes of other packages may raise anything
        return DeviceError(f"{type(error).__name__}: {error}")
    return error
