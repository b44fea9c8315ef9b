"""Tilewright: generate, check, build, select and run GPU kernels for AMD GPUs on top of CK Tile.

    import tilewright as tw
    kernels = tw.gemm.space(dtype="fp16", layout="rcr", block=[(128, 128, 32)], pipeline="*")
    print(kernels.report("gfx942"))

Names are imported on first use, so `import tilewright` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright import errors as errors  # `tw.errors.CompileError`; it is loaded in any case
from tilewright.base.lazy_names import import_on_use

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tilewright.arch import arch_names, load
    from tilewright.base.errors import TilewrightError
    from tilewright.bench.calls import measure, sweep, tune
    from tilewright.bench.plan_time import time_plan
    from tilewright.building.inspect import inspect_kernel
    from tilewright.codegen.render import render
    from tilewright.dispatch.tensors import view_on
    from tilewright.dispatch.verify import verify
    from tilewright.functions.compute import list_used_kernels
    from tilewright.functions.options import options, set_options
    from tilewright.functions.warm import warm
    from tilewright.ops import (
        explain,
        fits,
        fmha,
        gemm,
        gemm_quant,
        grouped_conv,
        grouped_gemm,
        kernel_of,
        moe_sorting,
        norm,
        parse_kernel,
        suggest,
        topk,
    )
    from tilewright.ops.fmha.functions import append_to_cache, attention, attention_gradient
    from tilewright.ops.gemm.functions import matmul
    from tilewright.ops.gemm_quant.functions import scaled_matmul
    from tilewright.ops.grouped_conv.functions import conv, conv_input_gradient, conv_weight_gradient
    from tilewright.ops.grouped_gemm.functions import grouped_matmul
    from tilewright.ops.kernel_set import load_kernel_set
    from tilewright.ops.moe_sorting.functions import sort_by_expert
    from tilewright.ops.norm.functions import layer_norm, rms_norm, smooth_quantize
    from tilewright.ops.problem_list import read_problems
    from tilewright.ops.topk.functions import topk_sigmoid, topk_softmax
    from tilewright.registry.catalog import kernels, select_kernel, sets
    from tilewright.registry.packing import pack
    from tilewright.registry.registry import Registry, build
    from tilewright.registry.source_folders import generate, wrap
    from tilewright.runtime.device import Device, devices
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "tilewright.arch": ("arch_names", "load"),
            "tilewright.base.errors": ("TilewrightError",),
            "tilewright.bench.calls": ("measure", "sweep", "tune"),
            "tilewright.bench.plan_time": ("time_plan",),
            "tilewright.building.inspect": ("inspect_kernel",),
            "tilewright.codegen.render": ("render",),
            "tilewright.dispatch.tensors": ("view_on",),
            "tilewright.dispatch.verify": ("verify",),
            "tilewright.functions.compute": ("list_used_kernels",),
            "tilewright.functions.options": ("options", "set_options"),
            "tilewright.functions.warm": ("warm",),
            "tilewright.ops": (
                "explain",
                "fits",
                "fmha",
                "gemm",
                "gemm_quant",
                "grouped_conv",
                "grouped_gemm",
                "kernel_of",
                "moe_sorting",
                "norm",
                "parse_kernel",
                "suggest",
                "topk",
            ),
            "tilewright.ops.fmha.functions": ("append_to_cache", "attention", "attention_gradient"),
            "tilewright.ops.gemm.functions": ("matmul",),
            "tilewright.ops.gemm_quant.functions": ("scaled_matmul",),
            "tilewright.ops.grouped_conv.functions": ("conv", "conv_input_gradient", "conv_weight_gradient"),
            "tilewright.ops.grouped_gemm.functions": ("grouped_matmul",),
            "tilewright.ops.kernel_set": ("load_kernel_set",),
            "tilewright.ops.moe_sorting.functions": ("sort_by_expert",),
            "tilewright.ops.norm.functions": ("layer_norm", "rms_norm", "smooth_quantize"),
            "tilewright.ops.problem_list": ("read_problems",),
            "tilewright.ops.topk.functions": ("topk_sigmoid", "topk_softmax"),
            "tilewright.registry.catalog": ("kernels", "select_kernel", "sets"),
            "tilewright.registry.packing": ("pack",),
            "tilewright.registry.registry": ("Registry", "build"),
            "tilewright.registry.source_folders": ("generate", "wrap"),
            "tilewright.runtime.device": ("Device", "devices"),
        },
        own=("__version__",),
    )

__all__ = [
    "Device",
    "Registry",
    "TilewrightError",
    "__version__",
    "append_to_cache",
    "arch_names",
    "attention",
    "attention_gradient",
    "build",
    "conv",
    "conv_input_gradient",
    "conv_weight_gradient",
    "devices",
    "explain",
    "fits",
    "fmha",
    "gemm",
    "gemm_quant",
    "generate",
    "grouped_conv",
    "grouped_gemm",
    "grouped_matmul",
    "inspect_kernel",
    "kernel_of",
    "kernels",
    "layer_norm",
    "list_used_kernels",
    "load",
    "load_kernel_set",
    "matmul",
    "measure",
    "moe_sorting",
    "norm",
    "options",
    "pack",
    "parse_kernel",
    "read_problems",
    "render",
    "rms_norm",
    "scaled_matmul",
    "select_kernel",
    "set_options",
    "sets",
    "smooth_quantize",
    "sort_by_expert",
    "suggest",
    "sweep",
    "time_plan",
    "topk",
    "topk_sigmoid",
    "topk_softmax",
    "tune",
    "verify",
    "view_on",
    "warm",
    "wrap",
]
