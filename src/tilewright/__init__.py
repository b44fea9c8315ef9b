"""Tilewright: generate, check, build, select and run GPU kernels for AMD GPUs on top of CK Tile.

    import tilewright as tw
    kernels = tw.gemm.space(dtype="fp16", layout="rcr", block=[(128, 128, 32)], pipeline="*")
    print(kernels.report("gfx942"))

Names are imported on first use, so `import tilewright` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.base.lazy_names import import_on_use

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tilewright.arch import arch_names, load
    from tilewright.bench.measure import measure
    from tilewright.bench.sweep import sweep
    from tilewright.building.inspect import inspect_kernel
    from tilewright.codegen.render import render
    from tilewright.dispatch.tensors import view_on
    from tilewright.dispatch.verify import verify
    from tilewright.ops import explain, fits, fmha, gemm, grouped_conv, kernel_of, parse_kernel, suggest
    from tilewright.ops.kernel_set import load_kernel_set
    from tilewright.ops.problem_list import read_problems
    from tilewright.registry.registry import Registry, build
    from tilewright.runtime.device import Device, devices
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "tilewright.arch": ("arch_names", "load"),
            "tilewright.bench.measure": ("measure",),
            "tilewright.bench.sweep": ("sweep",),
            "tilewright.building.inspect": ("inspect_kernel",),
            "tilewright.codegen.render": ("render",),
            "tilewright.dispatch.tensors": ("view_on",),
            "tilewright.dispatch.verify": ("verify",),
            "tilewright.ops": (
                "explain",
                "fits",
                "fmha",
                "gemm",
                "grouped_conv",
                "kernel_of",
                "parse_kernel",
                "suggest",
            ),
            "tilewright.ops.kernel_set": ("load_kernel_set",),
            "tilewright.ops.problem_list": ("read_problems",),
            "tilewright.registry.registry": ("Registry", "build"),
            "tilewright.runtime.device": ("Device", "devices"),
        },
        own=("__version__",),
    )

__all__ = [
    "Device",
    "Registry",
    "__version__",
    "arch_names",
    "build",
    "devices",
    "explain",
    "fits",
    "fmha",
    "gemm",
    "grouped_conv",
    "inspect_kernel",
    "kernel_of",
    "load",
    "load_kernel_set",
    "measure",
    "parse_kernel",
    "read_problems",
    "render",
    "suggest",
    "sweep",
    "verify",
    "view_on",
]
