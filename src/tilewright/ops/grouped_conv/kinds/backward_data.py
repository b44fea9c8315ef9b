"""The gradient of the input. Rules P330, P331, P341 and S514.

Positions with different remainders by the stride use different taps of the filter: one launch computes a GEMM for each
remainder, with sums of different lengths.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilewright.arch.spec import Arch
from tilewright.ops.block_gemm import resources
from tilewright.ops.cost_model.arithmetic import ceil_div, gcd, minimum
from tilewright.ops.cost_model.block_gemm import AddressCost
from tilewright.ops.execution import import_on_call
from tilewright.ops.grouped_conv.implicit_gemm import lds_bytes, matrix_instructions
from tilewright.ops.grouped_conv.kind import ConvKind, GemmFactors, GemmSizes
from tilewright.ops.grouped_conv.source import RUN_TIME_LOOPS, make_context
from tilewright.ops.grouped_conv.trial_filters import COPRIME, ONE_STRIDE, TANGLED, UNSTRIDED
from tilewright.ops.rule import Rejection, rule
from tilewright.ops.rule_forms import one_of

if TYPE_CHECKING:
    from tilewright.ops.grouped_conv.config import Config
    from tilewright.ops.grouped_conv.problem import Problem

# The maximum of GEMMs in one launch (MaxGroupedGemmGroupsNum in
# grouped_convolution/kernel/grouped_convolution_backward_data_kernel.hpp).
MAX_GEMMS = 128
_EXAMPLE = {"direction": "backward_data", "vector": (8, 8, 8)}
_IMPLICIT = {"explicit_gemm": False}


check_buffers = one_of(
    "P330",
    "backward-data-buffers",
    "The gradient of the input needs a pipeline with one LDS buffer.",
    {"pipeline": resources.SINGLE_LDS},
    "{value} does not compile for backward_data",
    nearest="compv3",
    when=_IMPLICIT,
    enforced_by="compiler",
    good=_EXAMPLE,
    bad={**_EXAMPLE, "pipeline": "compv4"},
    why="with two buffers, CK Tile's kernel reads the length of a tile window, which windows do not provide.",
    fix="use mem or compv3.",
).limit_generations(until="2026-06")
check_loop = one_of(
    "P331",
    "backward-data-loop",
    "The gradient of the input needs a pipeline that chooses its loop on the device.",
    {"pipeline": (*RUN_TIME_LOOPS, *resources.DOUBLE_LDS)},  # P330 rejects the latter
    "{value} is compiled for one length of the sum",
    nearest="compv3",
    when=_IMPLICIT,
    enforced_by="tilewright",
    good={**_EXAMPLE, "pipeline": "mem"},
    bad={**_EXAMPLE, "pipeline": "compv6"},
    why="positions with different remainders by the stride use different taps of the filter, so that the work-groups "
    "of one launch have sums of different lengths. mem and compv3 choose the form of their loop at run time; the "
    "others are compiled for one form.",
    fix="use mem or compv3.",
).limit_generations(until="2026-06")


@rule(
    "P341",
    "backward-data-type",
    reads=("dtype_a", "dtype_b", "dtype_c"),
    when=_IMPLICIT,
    enforced_by="compiler",
    good=_EXAMPLE,
    bad={**_EXAMPLE, "dtype_c": "fp32", "vector": (8, 8, 4)},
)
def check_types(config: Config, arch: Arch) -> Rejection | None:
    """The three tensors of an input gradient have the same type.

    Why: CK Tile's kernel assumes that the gradient of the output has the result's type, and its pipeline rejects other
    types.

    Fix: use the same type for all three; 8-bit types, which cannot represent their sums, have no such kernel.
    """
    if config.dtype_a == config.dtype_b == config.dtype_c:
        return None
    return Rejection(
        f"{config.dtype_a}, {config.dtype_b} and {config.dtype_c} are not one type", "dtype_c", config.dtype_a
    )


check_types = check_types.limit_generations(until="2026-06")


@rule(
    "S514",
    "too-many-gemms",
    reads=(),
    when=_IMPLICIT,
    enforced_by="supports",
    good={"direction": "backward_data", "problem": {"direction": "backward_data", "stride": 2}},
    bad={
        "direction": "backward_data",
        "problem": {"direction": "backward_data", "stride": 12, "filter_size": 12, "input_size": "32x32"},
    },
)
def check_gemm_count(config: Config, problem: Problem, arch: Arch) -> Rejection | None:
    """The gradient of the input has at most 128 GEMMs in one launch.

    Why: positions with different remainders by the stride are different GEMMs, and the kernel's arguments can hold 128
    of them.

    Fix: compute the gradient in parts; no kernel supports larger strides.
    """
    count = 1
    for size, stride, dilation in zip(problem.filter_size, problem.stride, problem.dilation, strict=True):
        count *= minimum(size, stride // gcd(stride, dilation))  # remainders that the filter has taps for
    if count <= MAX_GEMMS:
        return None
    return Rejection(f"the strides lead to {count} GEMMs, one launch can have {MAX_GEMMS}", "stride")


def split_gemm(problem: Problem, sizes: GemmSizes) -> tuple[GemmSizes, int]:
    """A GEMM for each remainder that the filter has taps for, each with its share of positions and taps."""
    strides = list(zip(problem.stride, problem.filter_size, problem.input_size, strict=True))
    parts = math.prod(minimum(stride, taps) for stride, taps, _ in strides)
    positions = math.prod(ceil_div(size, stride) for stride, _, size in strides)
    taps = math.prod(ceil_div(taps, stride) for stride, taps, _ in strides)
    return GemmSizes(problem.n * positions, sizes.n, taps * problem.group_channels[1]), parts


BACKWARD_DATA = ConvKind(
    name="backward_data",
    doc="gradient of the input",
    context=make_context,
    fields=("specialization", "explicit_gemm", "blocks_per_cu"),
    rules=(check_buffers, check_loop, check_types),
    fit_rules=(check_gemm_count,),
    lds_bytes=lds_bytes,
    matrix_instructions=matrix_instructions,
    kernel_template="GroupedConvolutionBackwardDataKernel",
    tensors={"grad_output": "output", "weight": "weight", "grad_input": "input"},
    layout="rrr",
    factors=GemmFactors(m=("inputs",), n=("c",), k=("taps", "k")),
    several_gemms=True,
    split_gemm=split_gemm,
    # From 18 kernels of all CDNA GPUs.
    address_cost=AddressCost(
        step=0, load=25, transposed=6, block=600, address_registers=6, base_registers=24, covers=False
    ),
    reference=import_on_call("tilewright.ops.grouped_conv.reference", "compute_backward_data"),
    put_wide_numbers=import_on_call("tilewright.ops.grouped_conv.inputs", "put_in_channels"),
    loop_filters=UNSTRIDED,
    long_filters=UNSTRIDED,
    uneven_filters=(*COPRIME, *TANGLED[:2]),
    one_stride_filters=ONE_STRIDE,
)
