"""An emulated GPU for Triton: it loads kernels and runs them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from tilewright.arch import load
from tilewright.arch.spec import Arch
from tilewright.base.errors import choose
from tilewright.base.knobs import EMULATOR_MODES
from tilewright.emulator.device import DeviceKernel, EmulatedDevice, Module
from tilewright.emulator.faults import CodeObjectError, Fault, MemoryFault
from tilewright.emulator.hardware import EMULATED
from tilewright.emulator.hip_shim.host_calls import has_host_calls
from tilewright.emulator.launch import Counters, Launch, Mode
from tilewright.emulator.memory import Memory
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

    def __init__(self, gpu: str, mode: str) -> None:
        self.device = _open_device(choose("GPU", gpu, EMULATED))
        self.arch: Arch = self.device.arch
        self.mode = Mode(choose("mode", mode, EMULATOR_MODES))
        self.mapped = TensorMemory(self.device.memory)  # tensors that kernels reach by address, in every launch
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

        If it fails, all tensors are as before the launch.
        """
        self.mapped.upload()
        try:
            counters = self.device.launch(loaded.kernel, launch, self.mode)
        except Fault as fault:
            raise _explain_fault(fault, loaded.kernel) from None
        tensors.download()
        self.mapped.download()
        self.executed_instructions += sum(counters.instructions.values())
        grid = (launch.grid.x, launch.grid.y, launch.grid.z)
        self.last_launch = KernelLaunch(loaded.kernel.name, grid, launch.block.count, counters)

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


def _explain_fault(fault: Fault, kernel: DeviceKernel) -> Fault:
    """Return the same fault with the cause that it may have."""
    if not isinstance(fault, MemoryFault) or not has_host_calls(kernel.metadata):
        return fault
    cause = "The kernel prints or asserts (tl.device_print, tl.device_assert), which is not supported."
    return type(fault)(f"{fault.what}\n  {cause}", fault.place)
