"""Structures and callbacks that the C++ sources and Python share, in the same order as in interface.hpp."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.emulator.hip_shim import deferred_errors


class DeviceFacts(Structure):
    """The properties of a device that the HIP shim reports."""

    _fields_ = (
        ("name", c_char * 64),
        ("arch", c_char * 64),
        ("memory_bytes", c_uint64),
        ("lds_bytes", c_uint64),
        ("lds_unit_bytes", c_uint64),
        ("wave_size", c_int32),
        ("units", c_int32),
        ("max_block_threads", c_int32),
        ("max_unit_threads", c_int32),
        ("block_registers", c_int32),
        ("clock_khz", c_int32),
        ("l2_bytes", c_int32),
        ("major", c_int32),
        ("minor", c_int32),
    )


class LaunchRequest(Structure):
    """A launch as requested by the host."""

    _fields_ = (
        ("device", c_int32),
        ("cooperative", c_int32),
        ("image", c_uint64),
        ("data", c_void_p),
        ("kernel", c_char_p),
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("dynamic_lds", c_uint64),
        ("arguments", POINTER(c_void_p)),
        ("packed", c_void_p),
        ("packed_bytes", c_uint64),
    )


class KernelFacts(Structure):
    """The needs of a kernel, from its code object."""

    _fields_ = (
        ("registers", c_int32),
        ("max_threads", c_int32),
        ("lds_bytes", c_uint64),
        ("private_bytes", c_uint64),
    )


class AllocationRange(Structure):
    """The allocation around an address; `bytes` is 0 if there is none."""

    _fields_ = (("start", c_uint64), ("bytes", c_uint64), ("device", c_int32))


RESULT_LOG, RESULT_CODE, RESULT_NAME = 0, 1, 2


class CompileRequest(Structure):
    """A source to compile; the results are passed to `keep`."""

    _fields_ = (
        ("device", c_int32),
        ("source", c_char_p),
        ("name", c_char_p),
        ("header_count", c_int32),
        ("headers", POINTER(c_char_p)),
        ("header_names", POINTER(c_char_p)),
        ("option_count", c_int32),
        ("options", POINTER(c_char_p)),
        ("expression_count", c_int32),
        ("expressions", POINTER(c_char_p)),
        ("keep", CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_uint64)),
        ("program", c_void_p),
    )


# The members of Callbacks: name and types of the arguments before the status.
CALLBACKS: dict[str, tuple[Any, ...]] = {
    "launch": (POINTER(LaunchRequest),),
    "occupancy": (POINTER(LaunchRequest), POINTER(c_int)),
    "load": (c_int, c_uint64, c_void_p),
    "find": (c_int, c_uint64, c_char_p),
    "unload": (c_uint64,),
    "allocate": (c_int, c_uint64, POINTER(c_void_p)),
    "release": (c_int, c_void_p),
    "copy": (c_int, c_void_p, c_void_p, c_uint64, c_int),
    "fill": (c_int, c_void_p, c_uint64, c_int, c_uint64, c_uint64),
    "pack": (POINTER(LaunchRequest), c_void_p, c_uint64, POINTER(c_uint64)),
    "facts": (POINTER(LaunchRequest), POINTER(KernelFacts)),
    "variable": (c_int, c_uint64, c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_uint64)),
    "range": (c_int, c_void_p, POINTER(AllocationRange)),
    "room": (c_int, POINTER(c_uint64)),
    "heap": (c_int, POINTER(c_uint64), c_int),
    "compile": (POINTER(CompileRequest),),
    "missing": (c_char_p,),
    "finish": (),
}
_TYPES = {name: CFUNCTYPE(None, *types, POINTER(c_int)) for name, types in CALLBACKS.items()}


class Callbacks(Structure):
    """The Python functions that the HIP shim calls."""

    _fields_ = tuple(_TYPES.items())


def make_callbacks(functions: object) -> tuple[Callbacks, tuple[Callable[..., None], ...]]:
    """Return the C callbacks for the methods of an object named in `CALLBACKS`, and the Python functions behind them.

    The structure must live as long as it may be called.
    """
    entries = {name: _make_entry(getattr(functions, name)) for name in CALLBACKS}
    return Callbacks(**{name: _TYPES[name](entry) for name, entry in entries.items()}), tuple(entries.values())


def _make_entry(function: Callable[..., int]) -> Callable[..., None]:
    """Wrap a function: its status is written to the last argument, and exceptions are kept."""

    def handle_call(*arguments: Any) -> None:
        try:
            arguments[-1][0] = function(*arguments[:-1])
        except BaseException as error:  # the caller is C code, which cannot propagate it; the status stays an error
            deferred_errors.keep_error(None, error)

    return handle_call


def describe_device(arch: Arch, memory_bytes: int) -> DeviceFacts:
    """Return the properties of a GPU that the HIP shim reports."""
    digits = arch.name.removeprefix("gfx")  # the last two are minor version and stepping
    compute, registers = arch.compute, arch.registers
    return DeviceFacts(
        name=f"{arch.product} (emulated)".encode()[:63],
        arch=arch.name.encode(),
        memory_bytes=memory_bytes,
        lds_bytes=arch.lds.bytes,
        lds_unit_bytes=arch.lds.unit_bytes,
        wave_size=arch.wave_size,
        units=compute.units,
        max_block_threads=compute.max_block_threads,
        max_unit_threads=compute.simds_per_unit * compute.max_waves_per_simd * arch.wave_size,
        # 32-bit vector registers of one compute unit: HIP counts those of a multiprocessor.
        block_registers=registers.vgprs * arch.wave_size * compute.simds_per_unit,
        clock_khz=compute.clock_mhz * 1000,
        l2_bytes=arch.memory.l2_bytes,
        major=int(digits[:-2]),
        minor=int(digits[-2]),
    )
