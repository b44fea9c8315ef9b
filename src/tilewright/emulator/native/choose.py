"""Choose the engine of a kernel: the native one if it supports the kernel, else NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tilewright.base.errors import DeviceError, choose
from tilewright.emulator.launch import ENGINES, NATIVE, NUMPY
from tilewright.emulator.native.library import EngineLibrary, load_engine
from tilewright.emulator.native.lower import LoweredKernel, UnsupportedInstruction, lower
from tilewright.emulator.program import Program

if TYPE_CHECKING:
    from tilewright.emulator.device import DeviceKernel

_lowered: WeakKeyDictionary[Program, LoweredKernel | UnsupportedInstruction] = WeakKeyDictionary()


def lower_kernel(kernel: DeviceKernel) -> LoweredKernel | UnsupportedInstruction:
    """Return the kernel's code for the native engine; it is lowered once."""
    found = _lowered.get(kernel.program)
    if found is None:
        descriptor = kernel.descriptor
        found = lower(kernel.program, kernel.code, descriptor.entry, descriptor.vgprs)
        _lowered[kernel.program] = found
    return found


def prepare_native(kernel: DeviceKernel, engine: str) -> tuple[EngineLibrary, LoweredKernel] | None:
    """Return the library and the lowered kernel for the native engine; None if the NumPy engine runs the kernel.

    `engine` is one of `ENGINES`.
    """
    if choose("engine", engine, ENGINES) == NUMPY:
        return None
    compiled = load_engine()
    if compiled is None:
        if engine == NATIVE:
            raise DeviceError("the native engine needs a clang that can compile it: see `tilewright doctor`")
        return None
    lowered = lower_kernel(kernel)
    if isinstance(lowered, UnsupportedInstruction):
        if engine == NATIVE:
            raise DeviceError(
                f"the native engine does not support '{lowered.instruction.text}' of {kernel.name}; NumPy does"
            )
        return None
    return compiled, lowered
