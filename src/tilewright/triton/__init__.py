"""Triton kernels on an emulated AMD GPU: unchanged `@triton.jit` functions run on tensors in host memory.

    import tilewright.triton

    with tilewright.triton.use("gfx942", mode="strict"):
        kernel[grid](x, y, x.numel(), BLOCK=1024)  # tensors of device "cpu"

Triton compiles a kernel for the GPU, and the emulated device runs the code object. Every tensor is an allocation with
guards: an access outside of it is a `tilewright.emulator.MemoryFault` with the tensor's name and the source line.

Triton imports this package itself, because an entry point makes it one of Triton's backends. Therefore nothing is
imported here before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.base.lazy_names import import_on_use

if TYPE_CHECKING:
    from tilewright.triton.activation import ActiveGpu, use
    from tilewright.triton.gpu import KernelLaunch
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "tilewright.triton.activation": ("ActiveGpu", "use"),
            "tilewright.triton.gpu": ("KernelLaunch",),
        },
    )

__all__ = ["ActiveGpu", "KernelLaunch", "use"]
