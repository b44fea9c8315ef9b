"""The convolution itself: the output from the input and the weights."""

from __future__ import annotations

from tilewright.ops.cost_model.block_gemm import AddressCost
from tilewright.ops.execution import import_on_call
from tilewright.ops.grouped_conv.implicit_gemm import lds_bytes, matrix_instructions
from tilewright.ops.grouped_conv.kind import ConvKind, GemmFactors
from tilewright.ops.grouped_conv.source import make_context
from tilewright.ops.grouped_conv.trial_filters import FAR, TANGLED

FORWARD = ConvKind(
    name="forward",
    doc="output from input and weights",
    context=make_context,
    fields=("specialization", "split_image", "explicit_gemm", "wave_groups", "blocks_per_cu"),
    lds_bytes=lds_bytes,
    matrix_instructions=matrix_instructions,
    kernel_template="GroupedConvolutionForwardKernel",
    tensors={"input": "input", "weight": "weight", "output": "output"},
    layout="rcr",
    factors=GemmFactors(m=("outputs",), n=("k",), k=("taps", "c")),
    specialized=True,
    # Ten kernels for gfx950 have 51 instructions in a step + 17.3 for each load, and 126 outside of the loop.
    address_cost=AddressCost(
        step=50, load=17, transposed=0, block=125, address_registers=6, base_registers=24, covers=False
    ),
    reference=import_on_call("tilewright.ops.grouped_conv.reference", "compute_forward"),
    put_wide_numbers=import_on_call("tilewright.ops.grouped_conv.inputs", "put_in_channels"),
    loop_filters=TANGLED,
    long_filters=FAR,
    edges_cover_loops=True,
)
