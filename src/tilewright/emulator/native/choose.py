"""Choose the engine of a kernel: the native one if it supports the kernel, else NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tilewright.base.errors import DeviceError, choose
from tilewright.emulator.launch import ENGINES, NATIVE, NUMPY
from tilewright.emulator.native.library import Library, library
from tilewright.emulator.native.lower import Lowered, Refusal, lower
from tilewright.emulator.program import Program

if TYPE_CHECKING:
    from tilewright.emulator.device import Kernel

_lowered: WeakKeyDictionary[Program, Lowered | Refusal] = WeakKeyDictionary()


def lowered_of(kernel: Kernel) -> Lowered | Refusal:
    """Return the kernel's code for the native engine; it is lowered once."""
    found = _lowered.get(kernel.program)
    if found is None:
        descriptor = kernel.descriptor
        found = lower(kernel.program, kernel.code, descriptor.entry, descriptor.vgprs)
        _lowered[kernel.program] = found
    return found


def native_parts(kernel: Kernel, engine: str) -> tuple[Library, Lowered] | None:
    """Return the library and the lowered kernel for the native engine; None if the NumPy engine runs the kernel.

    `engine` is one of `ENGINES`.
    """
    if choose("engine", engine, ENGINES) == NUMPY:
        return None
    compiled = library()
    if compiled is None:
        if engine == NATIVE:
            raise DeviceError("the native engine needs a clang that can compile it: see `tilewright doctor`")
        return None
    lowered = lowered_of(kernel)
    if isinstance(lowered, Refusal):
        if engine == NATIVE:
            raise DeviceError(
                f"the native engine does not support '{lowered.instruction.text}' of {kernel.name}; NumPy does"
            )
        return None
    return compiled, lowered
