"""Tensors of any library as a pointer with shape, strides and type.

NumPy arrays, torch tensors and objects with `__dlpack__` are read without importing their library.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import Any, NamedTuple

from tilewright.arch.dtypes import ARRAY_TYPES, find_dtype
from tilewright.arch.spec import Arch
from tilewright.base.errors import TensorError, choose, require
from tilewright.runtime.device_objects import Buffer

# Types of NumPy and torch → names of `ARRAY_TYPES`. The type "fp8" of a problem is an array of "fp8_fnuz" or
# "fp8_ocp", depending on the GPU.
_NAMES = {theirs: ours for ours, theirs in ARRAY_TYPES.items()}
# DLDataTypeCode and bits, from dlpack.h of DLPack 1.1.
_DLPACK = {
    (2, 64): "fp64",
    (2, 32): "fp32",
    (2, 16): "fp16",
    (4, 16): "bf16",
    (10, 8): "fp8_ocp",
    (11, 8): "fp8_fnuz",
    (12, 8): "bf8_ocp",
    (13, 8): "bf8_fnuz",
    (0, 8): "int8",
    (1, 8): "uint8",
    (0, 32): "int32",
}
# Bytes of an element.
SIZES = {name: find_dtype(name.partition("_")[0]).storage_bytes for name in ARRAY_TYPES}
# DLDeviceType of dlpack.h.
CPU, ROCM, ROCM_HOST = 1, 10, 11
_CAPSULE = b"dltensor"
_forms: weakref.WeakValueDictionary[Any, TensorSpec] = weakref.WeakValueDictionary()
_forms_lock = threading.Lock()
_readers: dict[type, Callable[[Any], View]] = {}


class TensorSpec:
    """Everything about a tensor except its address. Equal specs are the same object, so `is` compares them."""

    __slots__ = ("__weakref__", "dtype", "place", "shape", "strides")

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, place: Any) -> None:
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.place = place

    def __repr__(self) -> str:
        return f"{format_shape(self.shape)} of {self.dtype} with strides {self.strides}"


def get_spec(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, place: Any) -> TensorSpec:
    """The one spec with these values."""
    key = (shape, strides, dtype, place)
    with _forms_lock:
        found = _forms.get(key)
        if found is None:
            found = _forms[key] = TensorSpec(shape, strides, dtype, place)
        return found


class View:
    """A tensor: its address and spec. `owner` keeps the memory alive, `library` is the library of the tensor."""

    __slots__ = ("address", "form", "library", "owner")

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: str,
        place: Any,
        owner: Any,
        library: str = "tilewright",
    ) -> None:
        self.address = address
        self.form = get_spec(shape, strides, dtype, place)
        self.owner = owner
        self.library = library

    @property
    def shape(self) -> tuple[int, ...]:
        return self.form.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance between neighbours in each dimension, in elements."""
        return self.form.strides

    @property
    def dtype(self) -> str:
        return self.form.dtype

    @property
    def on_host(self) -> bool:
        return self.form.place is None

    @property
    def read_only(self) -> bool:
        """Whether its library forbids writing to it."""
        return self.library == "numpy" and not self.owner.flags.writeable

    @property
    def tensor(self) -> Any:
        """The tensor object of its library; the view itself if it has none."""
        return self if self.library == "tilewright" else self.owner[0] if self.library == "dlpack" else self.owner

    def __repr__(self) -> str:
        where = "host" if self.on_host else f"device {self.form.place}"
        return f"View({self.form} at {self.address:#x}, {where})"

    def to_array(self) -> Any:
        """A host tensor as a NumPy array on the same memory."""
        if self.library == "numpy":
            return self.owner
        import numpy as np  # noqa: PLC0415  (costs start-up time)

        from tilewright.arch.number_formats import find_array_dtype  # noqa: PLC0415  (NumPy)

        size = SIZES[self.dtype]
        reach = [(extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True)]
        below = -sum(step for step in reach if step < 0)
        bytes_ = (sum(abs(step) for step in reach) + 1) * size
        memory: Any = (ctypes.c_char * bytes_).from_address(self.address - below * size)
        steps = tuple(stride * size for stride in self.strides)
        return np.ndarray(self.shape, find_array_dtype(self.dtype), memory, offset=below * size, strides=steps)


def format_shape(shape: Sequence[int]) -> str:
    """A shape for display: 200×72."""
    return "×".join(str(extent) for extent in shape) or "a single value"


def view_on(buffer: Buffer, shape: Sequence[int], dtype: str, strides: Sequence[int] | None = None) -> View:
    """A tensor in a device buffer; packed unless strides are given. It keeps the buffer alive."""
    require("buffer", buffer, Buffer)
    choose("dtype of a tensor", dtype, SIZES)
    try:
        extents = tuple(map(index, shape))
        steps = compute_packed_strides(extents) if strides is None else tuple(map(index, strides))
    except TypeError as error:
        raise TensorError(f"shape {shape!r} and strides {strides!r} must be sequences of integers: {error}") from error
    needed = compute_span(extents, steps) * SIZES[dtype]
    if len(steps) != len(extents) or min(extents + steps, default=0) < 0 or needed > buffer.nbytes:
        raise TensorError(
            f"a tensor of shape {extents} with strides {steps} of {dtype} needs {needed:,} bytes, and the buffer has "
            f"{buffer.nbytes:,}; there must be one stride per dimension, and no extent or stride may be negative"
        )
    return View(buffer.address, extents, steps, dtype, buffer.device, buffer)


def compute_span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Number of elements from the first to the last, gaps included."""
    return 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=False))


def compute_packed_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor without gaps, with a contiguous last dimension."""
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def to_view(tensor: Any) -> View:
    """A tensor of any library as a view."""
    reader = _readers.get(type(tensor))
    if reader is None:
        reader = _readers[type(tensor)] = _find_reader(tensor)
    return reader(tensor)


def _find_reader(tensor: Any) -> Callable[[Any], View]:
    numpy = sys.modules.get("numpy")
    if isinstance(tensor, View):
        return lambda view: view
    if numpy is not None and isinstance(tensor, numpy.ndarray):
        return _read_numpy
    if hasattr(tensor, "data_ptr") and hasattr(tensor, "stride"):
        _check_torch_type(type(tensor))
        return _read_torch
    if hasattr(tensor, "__dlpack__"):
        return _read_dlpack
    advice = " For a buffer, use tilewright.view_on." if hasattr(tensor, "nbytes") else ""
    raise TensorError(
        f"a {type(tensor).__module__}.{type(tensor).__qualname__} is not a tensor: "
        f"pass a NumPy array, a torch tensor or an object with __dlpack__.{advice}"
    )


def _read_numpy(array: Any) -> View:
    dtype = array.dtype
    name = parse_dtype_name(dtype.name)
    if not dtype.isnative:
        raise TensorError(f"an array of {dtype} does not have the native byte order: use array.astype first")
    size = dtype.itemsize
    strides = tuple(step // size for step in array.strides)
    if tuple(step * size for step in strides) != array.strides:
        raise TensorError(
            f"an array has strides of {array.strides} bytes, which are not multiples of its {size} bytes: copy it"
        )
    return View(array.ctypes.data, array.shape, strides, name, None, array, "numpy")


def _read_torch(tensor: Any) -> View:
    device = tensor.device
    place = {"cpu": None, "cuda": device.index}.get(device.type, device)
    if place is device:
        raise TensorError(f"a torch tensor is on {device}; supported are cpu and cuda (ROCm)")
    if tensor.requires_grad and get_torch().is_grad_enabled():
        raise TensorError(
            "a torch tensor requires a gradient, and kernels do not record one: use tensor.detach(), torch.no_grad(), "
            "or the operators of tilewright.torch, which have gradients"
        )
    shape, dtype = tuple(tensor.shape), parse_dtype_name(str(tensor.dtype))
    try:
        strides, address, stored = tensor.stride(), tensor.data_ptr(), tensor.untyped_storage().nbytes()
    except (RuntimeError, ValueError) as error:  # sparse and nested ones, those of torch.func, uninitialized parameters
        raise TensorError(f"a torch tensor has no memory that kernels can read: {error}") from error
    needed = 0 if 0 in shape else (tensor.storage_offset() + compute_span(shape, strides)) * SIZES[dtype]
    if stored < needed or (needed and not address):
        raise TensorError(
            f"a torch tensor of shape {shape} needs {needed:,} bytes of storage, and has {stored if address else 0:,}: "
            "its storage was freed or never allocated, as of parameters that FSDP has not gathered"
        )
    _check_pending(tensor)
    return View(address, shape, strides, dtype, place, tensor, "torch")


def _check_torch_type(kind: type) -> None:
    """Refuse subclasses of torch's tensor whose values are not those in their memory, such as FakeTensor and DTensor.

    They compute them in `__torch_dispatch__`. Parameters and other subclasses have torch's own.
    """
    plain = get_torch().Tensor
    if issubclass(kind, plain) and kind.__torch_dispatch__ is not plain.__torch_dispatch__:  # type: ignore[attr-defined]
        raise TensorError(
            f"a {kind.__module__}.{kind.__qualname__} is a torch tensor that computes its values itself, and kernels "
            "read memory: pass the plain tensor that it wraps, or use the operators of tilewright.torch"
        )


def _check_pending(tensor: Any) -> None:
    """Refuse what torch has recorded for a tensor, and is not in its memory."""
    if tensor.is_neg():
        raise TensorError(
            "a torch tensor has a pending negation, as the imaginary part of a conjugate has: pass tensor.resolve_neg()"
        )
    try:
        tangent = get_torch().autograd.forward_ad.unpack_dual(tensor).tangent
    except RuntimeError:  # inside an operator, where torch has taken care of tangents
        tangent = None
    if tangent is not None:
        raise TensorError(
            "a torch tensor has a tangent of forward-mode differentiation, and kernels do not compute one: pass "
            "torch.autograd.forward_ad.unpack_dual(tensor).primal"
        )


def _read_dlpack(tensor: Any) -> View:
    found = read_tensor(tensor)
    return View(found.address, found.shape, found.strides, found.dtype, found.gpu, (tensor, found.capsule), "dlpack")


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


def find_array_type(name: str, arch: Arch) -> str:
    """The array type for a problem's type on a GPU."""
    stored = arch.resolve_dtype(name)
    if stored not in ARRAY_TYPES:
        raise TensorError(f"{name} packs two values per byte; NumPy and torch have no such dtype")
    return stored


def parse_dtype_name(name: str) -> str:
    """The type with this name in NumPy or torch."""
    found = _NAMES.get(name.removeprefix("torch."))
    if found is None:
        raise TensorError(f"kernels do not support arrays of {name}. Known: {', '.join(_NAMES)}.")
    return found


def parse_dlpack_type(code: int, bits: int, lanes: int) -> str:
    """The type with this code in DLPack."""
    found = _DLPACK.get((code, bits)) if lanes == 1 else None
    if found is None:
        known = ", ".join(f"{c}/{b}" for c, b in _DLPACK)
        raise TensorError(f"DLPack tensors of type {code}/{bits} with {lanes} lanes are not supported. Known: {known}.")
    return found


def get_torch() -> Any:
    """The module torch, which is loaded if a torch tensor was passed. It is never imported here."""
    return sys.modules["torch"]


def to_torch_dtype(name: str) -> Any:
    """The torch dtype of a type."""
    return getattr(get_torch(), ARRAY_TYPES[name])


def increment_versions(outputs: Iterable[View | None]) -> None:
    """Count up the versions of torch tensors that are written, so that torch notices if it needs the old values."""
    for view in outputs:
        if view is not None and view.library == "torch":
            get_torch().autograd.graph.increment_version(view.owner)


def find_torch_stream(views: Iterable[View | None]) -> int | None:
    """torch's current stream if one of the tensors is a torch tensor on a GPU; None otherwise.

    torch allocates and orders its work in this stream, so kernels must run in it, too.
    """
    for view in views:
        if view is not None and view.library == "torch" and view.form.place is not None:
            handle: int = get_torch().cuda.current_stream(view.form.place).cuda_stream
            return handle
    return None


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
