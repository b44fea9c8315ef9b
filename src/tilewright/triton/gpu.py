"""An emulated GPU for Triton: it loads kernels and runs them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tilewright.arch import load
from tilewright.arch.spec import Arch
from tilewright.base.errors import choose
from tilewright.base.knobs import EMULATOR_MODES
from tilewright.emulator.device import DeviceKernel, EmulatedDevice, Module
from tilewright.emulator.faults import CodeObjectError, TrapFault
from tilewright.emulator.hardware import EMULATED
from tilewright.emulator.hip_shim.host_calls import has_host_calls
from tilewright.emulator.kernel_messages import receive_messages
from tilewright.emulator.launch import NATIVE, Counters, Launch, Mode
from tilewright.emulator.memory import Memory
from tilewright.emulator.sanitizer.checks import UNINITIALIZED, parse_checks
from tilewright.triton.tensor_memory import TensorMemory


@dataclass(frozen=True, eq=False)
class LoadedKernel:
    """A kernel in the memory of an emulated device."""

    device: EmulatedDevice
    module: Module
    kernel: DeviceKernel

    def unload(self) -> None:
        """Free its memory."""
        self.device.unload(self.module)


@dataclass(frozen=True)
class KernelLaunch:
    """A launch that ended: `grid` in programs, the `threads` of each program, and its counters."""

    kernel: str
    grid: tuple[int, int, int]
    threads: int
    counters: Counters


class TritonGpu:
    """An emulated GPU in one mode. All objects for the same GPU share its memory and loaded kernels."""

    def __init__(self, gpu: str, mode: str, checks: str | Iterable[str] = ()) -> None:
        self.device = _open_device(choose("GPU", gpu, EMULATED))
        self.arch: Arch = self.device.arch
        self.mode = Mode(choose("mode", mode, EMULATOR_MODES))
        self.checks = parse_checks(checks)
        self.mapped = TensorMemory(self.device.memory)  # tensors that kernels reach by address, in every launch
        if UNINITIALIZED in self.checks:
            self.device.memory.track_writes()
            self.mapped.finds_unwritten = True
        self.last_launch: KernelLaunch | None = None
        self.executed_instructions = 0  # of all waves, in all launches

    def load_kernel(self, name: str, code_object: bytes) -> LoadedKernel:
        """Load a code object and return its kernel `name`."""
        module = self.device.load(code_object)
        if name not in module.kernels:
            raise CodeObjectError(f"it has no kernel {name}; its kernels are: {', '.join(module.kernels) or 'none'}")
        return LoadedKernel(self.device, module, module.kernels[name])

    def run_kernel(self, loaded: LoadedKernel, launch: Launch, tensors: TensorMemory) -> None:
        """Run a kernel to its end, then copy the tensors that it changed back to host memory.

        If it fails, or a check finds something, all tensors are as before the launch.
        """
        self.mapped.upload()
        counters = self._launch(loaded.kernel, launch)
        tensors.download()
        self.mapped.download()
        self.executed_instructions += sum(counters.instructions.values())
        grid = (launch.grid.x, launch.grid.y, launch.grid.z)
        self.last_launch = KernelLaunch(loaded.kernel.name, grid, launch.block.count, counters)

    def _launch(self, kernel: DeviceKernel, launch: Launch) -> Counters:
        if not has_host_calls(kernel.metadata):
            return self.device.launch(kernel, launch, self.mode, checks=self.checks)
        errors: list[str] = []
        waves = launch.grid.count * -(-launch.block.count // self.arch.wave_size)
        try:
            with receive_messages(self.device.memory, waves, _make_printer(errors)) as packets:
                # The native engine runs next to the thread that answers; NumPy's atomics would not be atomic for it.
                calling = replace(launch, host_calls=packets)
                return self.device.launch(kernel, calling, self.mode, engine=NATIVE, checks=self.checks)
        except TrapFault as fault:
            raise _explain_trap(fault, errors) from None

    def map_tensor(self, tensor: Any) -> int:
        """Give kernels access to a tensor by its address, which is returned, until `unmap_tensors`."""
        return self.mapped.find_address(tensor, f"mapped {describe_tensor(tensor)}")

    def unmap_tensors(self) -> None:
        """Free the memory of all mapped tensors."""
        self.mapped.free()


@cache
def _open_device(gpu: str) -> EmulatedDevice:
    """Open the emulated device of a GPU. Triton keeps kernels as long as their functions live, so it stays open."""
    return EmulatedDevice(load(gpu), Memory())


def describe_tensor(tensor: Any) -> str:
    """Describe a tensor by type and shape, for faults: float32[4, 16]."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _make_printer(errors: list[str]) -> Callable[[str, bool], None]:
    """Return the function that prints a kernel's messages as they arrive, and keeps those for stderr."""

    def show(text: str, is_error: bool) -> None:
        if is_error:
            errors.append(text.strip())
        target = sys.stderr if is_error else sys.stdout
        target.write(text)
        target.flush()

    return show


def _explain_trap(fault: TrapFault, errors: list[str]) -> TrapFault:
    """Return the fault of an assertion with its message."""
    if not errors:
        return fault
    others = f", and {len(errors) - 1} more messages" if len(errors) > 1 else ""
    return TrapFault(f"{fault.what}: {errors[0]}{others}", fault.place)
