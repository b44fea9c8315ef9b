"""The address of the bytes of another object, through Python's buffer protocol, without NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tilewright.base.errors import InvalidValueError

# Python.h: PyBUF_SIMPLE requests contiguous bytes, which types without a format letter also support.
_SIMPLE, _WRITABLE = 0, 1


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
