"""The HIP functions that are used, with their C types. Only this module binds them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path
from typing import Any

from tilewright.base.errors import DeviceError, DeviceMemoryError

OUT_OF_MEMORY = 2  # hipErrorOutOfMemory
NO_DEVICE = 100  # hipErrorNoDevice

# Advice for a status whose name does not explain it. Numbers are those of hipError_t in hip_runtime_api.h.
_ADVICE = {
    OUT_OF_MEMORY: "Free buffers, or use a device with more memory.",
    35: "The kernel driver is older than this HIP library needs: update amdgpu, or use an older ROCm.",
    NO_DEVICE: (
        "No AMD GPU is visible to this process. Check that /dev/kfd exists, that the user is in the groups render and "
        "video, and HIP_VISIBLE_DEVICES. Without a GPU use Device('emulated:gfx942')."
    ),
    209: "The library has no code for this GPU. Build the kernel for it.",
    700: "A kernel accessed memory outside its buffers. Run it on the emulated device: that names the instruction.",
    719: "A kernel failed. Run it on the emulated device: that names the instruction.",
}


class HipError(DeviceError):
    """A HIP function did not return hipSuccess. `status` is the number of the status, `hip_name` its name."""

    def __init__(self, what: str, status: int, hip_name: str, text: str) -> None:
        self.what = what
        self.status = status
        self.hip_name = hip_name
        # HIP libraries of some versions repeat the name as the text.
        parts = [f"{what}: {hip_name} ({status})" + (f": {text}" if text != hip_name else "")]
        super().__init__(". ".join([*parts, *([_ADVICE[status]] if status in _ADVICE else [])]))


class HipMemoryError(HipError, DeviceMemoryError):
    """hipErrorOutOfMemory."""


# hipMemcpyKind
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3
# Not ordered after work in the default stream (hipStreamNonBlocking).
NON_BLOCKING = 1

_HANDLE = c_void_p
_NEW_HANDLE = POINTER(c_void_p)
SIGNATURES: Mapping[str, tuple[Any, ...]] = {
    "hipInit": (c_uint,),
    "hipDriverGetVersion": (POINTER(c_int),),
    "hipRuntimeGetVersion": (POINTER(c_int),),
    "hipGetDeviceCount": (POINTER(c_int),),
    "hipGetDevice": (POINTER(c_int),),
    "hipSetDevice": (c_int,),
    "hipDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "hipDeviceGetPCIBusId": (c_char_p, c_int, c_int),
    "hipDeviceSynchronize": (),
    "hipMalloc": (POINTER(c_void_p), c_size_t),
    "hipFree": (c_void_p,),
    "hipMemcpy": (c_void_p, c_void_p, c_size_t, c_int),
    "hipMemcpyAsync": (c_void_p, c_void_p, c_size_t, c_int, _HANDLE),
    "hipMemset": (c_void_p, c_int, c_size_t),
    "hipMemsetAsync": (c_void_p, c_int, c_size_t, _HANDLE),
    "hipStreamCreate": (_NEW_HANDLE,),
    "hipStreamCreateWithFlags": (_NEW_HANDLE, c_uint),
    "hipStreamDestroy": (_HANDLE,),
    "hipStreamSynchronize": (_HANDLE,),
    "hipStreamQuery": (_HANDLE,),
    "hipEventCreate": (_NEW_HANDLE,),
    "hipEventDestroy": (_HANDLE,),
    "hipEventRecord": (_HANDLE, _HANDLE),
    "hipEventSynchronize": (_HANDLE,),
    "hipEventQuery": (_HANDLE,),
    "hipEventElapsedTime": (POINTER(c_float), _HANDLE, _HANDLE),
    "hipGetLastError": (),
    "hipPeekAtLastError": (),
    "hipModuleLoadData": (_NEW_HANDLE, c_void_p),
    "hipModuleGetFunction": (_NEW_HANDLE, _HANDLE, c_char_p),
    "hipModuleLaunchKernel": (_HANDLE, *(c_uint,) * 7, _HANDLE, POINTER(c_void_p), POINTER(c_void_p)),
    "hipModuleUnload": (_HANDLE,),
}
# Functions that return a text for a status.
_TEXTS = ("hipGetErrorName", "hipGetErrorString")
# In HIP 6 the function that fills the larger structure has a new name; older versions have only the second.
_PROPERTIES = ("hipGetDevicePropertiesR0600", "hipGetDeviceProperties")
# Larger than hipDeviceProp_t of any version: 792 bytes in 5.2, 1472 in 6.x.
_PROPERTIES_BYTES = 16384
# The first field of hipDeviceProp_t is the product's name, in all versions.
NAME_BYTES = 256
# totalGlobalMem: the second field in HIP 5; in HIP 6 and 7 after uuid (16 bytes), luid (8) and its mask (4, padded).
_MEMORY_AT = {_PROPERTIES[0]: NAME_BYTES + 32, _PROPERTIES[1]: NAME_BYTES}
# hipDeviceAttributeMultiprocessorCount, the same number in HIP 5, 6 and 7.
_UNITS = 63
# "0000:c1:00.0" and its terminator take 13; domains may be longer.
_BUS_ADDRESS_BYTES = 64

FORKED = (
    "HIP was used in the parent of this process, and a GPU cannot be used across a fork. Start processes with "
    "multiprocessing's 'spawn' or 'forkserver', or use the device only after the fork."
)
FORKED_EMULATOR = (
    "the emulated devices of this process's parent run in a separate process, which a forked process cannot share. "
    "Start processes with multiprocessing's 'spawn' or 'forkserver', or use the device only after the fork."
)


class Hip:
    """A HIP library with typed functions."""

    def __init__(self, library: ctypes.CDLL, path: Path) -> None:
        self.library = library
        self.path = path
        self.forked = False
        self._called = False
        self._count: int | None = None
        self._functions: dict[str, Callable[..., int]] = {}
        for name, types in SIGNATURES.items():
            self._functions[name] = _bind_function(library, path, name, types, c_int)
        for name in _TEXTS:
            self._functions[name] = _bind_function(library, path, name, (c_int,), c_char_p)
        # The two that are called around every other call.
        self.set_device = self._functions["hipSetDevice"]
        self._get_device = self._functions["hipGetDevice"]

    @property
    def own_process(self) -> bool:
        """Whether the library and its devices are in a separate process."""
        return False

    @property
    def gone(self) -> bool:
        """Whether that process has ended."""
        return False

    def where(self) -> str:
        """The path of the library."""
        return str(self.path)

    def call(self, name: str, *arguments: Any) -> int:
        """Call a function and return its status."""
        self._called = True
        return self._functions[name](*arguments)

    def get_function(self, name: str) -> Callable[..., int]:
        """The bare function, for frequent calls. The caller sets the device and checks the status."""
        self._called = True
        return self._functions[name]

    def mark_forked(self) -> None:
        """Called in a new child process: a GPU that the parent has used cannot be used there."""
        self.forked = self.forked or self._called

    def is_usable(self) -> bool:
        """Whether it may be called in this process."""
        return not self.forked and not self.gone

    def release(self, name: str, handle: int) -> None:
        """Free or destroy an unused object, if possible. The garbage collector may call this at any moment."""
        if self.is_usable():
            self.check_call(name, handle)

    def check_call(self, name: str, *arguments: Any) -> None:
        """Call a function that must succeed."""
        status = self.call(name, *arguments)
        if status:
            raise self.make_error(status, name)

    def make_error(self, status: int, what: str) -> HipError:
        """The exception for a status of the function `what`."""
        kind = HipMemoryError if status == OUT_OF_MEMORY else HipError
        return kind(what, status, self.text("hipGetErrorName", status), self.text("hipGetErrorString", status))

    def clear_error(self) -> None:
        """Clear the last error after it was raised: kernel libraries read the last error after a launch."""
        self.call("hipGetLastError")

    def text(self, name: str, status: int) -> str:
        """The name or description of a status, from the HIP function `name`."""
        said: Any = self.call(name, status)
        return said.decode(errors="replace") if isinstance(said, bytes) else "hipErrorUnknown"

    def current_device(self) -> int:
        """The index of this thread's current device."""
        if self.forked:
            raise DeviceError(FORKED)
        self._called = True
        index = c_int(-1)
        status = self._get_device(ctypes.byref(index))
        if status:
            raise self.make_error(status, "hipGetDevice")
        return index.value

    def make_device_reader(self) -> Callable[[Any], int]:
        """hipGetDevice with a reference. It never waits, so it keeps the interpreter's lock, which halves its cost."""
        return ctypes.PYFUNCTYPE(c_int)(("hipGetDevice", self.library))

    def count(self) -> int:
        """The number of devices. It is constant within a process."""
        if self._count is None:
            number = c_int(0)
            self.check_call("hipGetDeviceCount", ctypes.byref(number))
            self._count = number.value
        return self._count

    def runtime_version(self) -> int:
        """HIP's version number."""
        number = c_int(0)
        self.check_call("hipRuntimeGetVersion", ctypes.byref(number))
        return number.value

    def bus_address(self, index: int) -> str:
        """The PCI bus address of a device, such as 0000:c1:00.0."""
        room = ctypes.create_string_buffer(_BUS_ADDRESS_BYTES)
        self.check_call("hipDeviceGetPCIBusId", room, len(room), index)
        return room.value.decode()

    def units(self, index: int) -> int:
        """The number of units of a device that run work-groups: compute units, or pairs of them (WGPs) on RDNA."""
        number = c_int(0)
        self.check_call("hipDeviceGetAttribute", ctypes.byref(number), _UNITS, index)
        return number.value

    def product(self, index: int) -> str:
        """The product name of a device, such as AMD Instinct MI300X. Some libraries lack the names of some GPUs."""
        return self.properties(index)[:NAME_BYTES].partition(b"\0")[0].decode(errors="replace").strip()

    def memory_bytes(self, index: int) -> int:
        """The size of a device's memory."""
        at = _MEMORY_AT[self._find_properties_function()]
        return int.from_bytes(self.properties(index)[at : at + 8], "little")

    def _find_properties_function(self) -> str:
        name = next((name for name in _PROPERTIES if hasattr(self.library, name)), None)
        if name is None:
            raise DeviceError(f"{self.path} has neither {' nor '.join(_PROPERTIES)}")
        return name

    def properties(self, index: int) -> bytes:
        """hipDeviceProp_t of a device as bytes: its layout depends on the version of the library."""
        name = self._find_properties_function()
        function = _bind_function(self.library, self.path, name, (c_void_p, c_int), c_int)
        room = ctypes.create_string_buffer(_PROPERTIES_BYTES)
        status = function(room, index)
        if status:
            raise self.make_error(status, name)
        return room.raw


def _bind_function(
    library: ctypes.CDLL, path: Path, name: str, types: tuple[Any, ...], gives: Any
) -> Callable[..., int]:
    try:
        # Not library.name: other code may have bound the same library with other types.
        prototype = ctypes.CFUNCTYPE(gives, *types)
        function: Callable[..., int] = prototype((name, library))
    except AttributeError as error:
        raise DeviceError(f"{path} has no function {name}: it is not a HIP library, or a very old one") from error
    return function
