"""Tilewright: generate, check, build, select and run GPU kernels for AMD GPUs on top of CK Tile.

    import tilewright as tw
    kernels = tw.gemm.space(dtype="fp16", layout="rcr", block=[(128, 128, 32)], pipeline="*")
    print(kernels.report("gfx942"))

Names are imported on first use, so `import tilewright` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.arch import arch_names, load
    from tilewright.building.inspect import inspect_kernel
    from tilewright.codegen.render import render
    from tilewright.dispatch.tensors import view_on
    from tilewright.ops import explain, fits, fmha, gemm, grouped_conv, kernel_of, parse_kernel, suggest
    from tilewright.ops.kernel_set import load_kernel_set
    from tilewright.ops.problem_list import read_problems
    from tilewright.registry.registry import Registry, build
    from tilewright.runtime.device import Device, devices

__version__ = "0.1.0"

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
    "parse_kernel",
    "read_problems",
    "render",
    "suggest",
    "view_on",
]

_HOMES = {
    "arch_names": "tilewright.arch",
    "load": "tilewright.arch",
    "inspect_kernel": "tilewright.building.inspect",
    "render": "tilewright.codegen.render",
    "explain": "tilewright.ops",
    "fits": "tilewright.ops",
    "fmha": "tilewright.ops",
    "gemm": "tilewright.ops",
    "grouped_conv": "tilewright.ops",
    "kernel_of": "tilewright.ops",
    "parse_kernel": "tilewright.ops",
    "suggest": "tilewright.ops",
    "load_kernel_set": "tilewright.ops.kernel_set",
    "read_problems": "tilewright.ops.problem_list",
    "Registry": "tilewright.registry.registry",
    "build": "tilewright.registry.registry",
    "Device": "tilewright.runtime.device",
    "devices": "tilewright.runtime.device",
    "view_on": "tilewright.dispatch.tensors",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
