"""Reads DLPack capsules: tensors of other libraries, without importing these libraries."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from tilewright.base.errors import TensorError
from tilewright.dispatch.element_types import parse_dlpack_type

# DLDeviceType of dlpack.h.
CPU, ROCM, ROCM_HOST = 1, 10, 11
_CAPSULE = b"dltensor"


class _DLDevice(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("index", ctypes.c_int32))


class _DLDataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _DLTensor(ctypes.Structure):
    """DLTensor, the first member of DLManagedTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class DlpackTensor(NamedTuple):
    """The contents of a capsule. The tensor lives as long as the capsule: its destructor returns it to its library."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    gpu: int | None  # None = in host memory
    capsule: object


def read_tensor(tensor: Any) -> DlpackTensor:
    """Read an object with `__dlpack__`. Its producer synchronizes it with the default stream of its device."""
    kind, _ = tensor.__dlpack_device__()
    if kind not in (CPU, ROCM, ROCM_HOST):
        raise TensorError(
            f"a {type(tensor).__name__} is on a DLPack device of type {kind}; supported are host memory ({CPU}, "
            f"{ROCM_HOST}) and ROCm devices ({ROCM})"
        )
    return _read_capsule(tensor.__dlpack__())


def _read_capsule(capsule: object) -> DlpackTensor:
    api = ctypes.pythonapi
    valid = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", api))
    pointer = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
    if not valid(capsule, _CAPSULE):
        raise TensorError(
            f"__dlpack__ returned {capsule!r}, which is not an unused capsule named {_CAPSULE.decode()!r}"
        )
    found = _DLTensor.from_address(pointer(capsule, _CAPSULE))
    shape = tuple(found.shape[i] for i in range(found.ndim))
    strides = tuple(found.strides[i] for i in range(found.ndim)) if found.strides else compute_packed_strides(shape)
    dtype = parse_dlpack_type(found.dtype.code, found.dtype.bits, found.dtype.lanes)
    gpu = found.device.index if found.device.kind == ROCM else None
    return DlpackTensor((found.data or 0) + found.byte_offset, shape, strides, dtype, gpu, capsule)


def compute_packed_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor without gaps, with a contiguous last dimension."""
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))
