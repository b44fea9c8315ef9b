"""The gradient of the weights, a sum over the positions of all images. Such long sums can be split."""

from __future__ import annotations

from tilewright.ops.cost_model.block_gemm import AddressCost
from tilewright.ops.execution import import_on_call
from tilewright.ops.grouped_conv.implicit_gemm import lds_bytes, matrix_instructions
from tilewright.ops.grouped_conv.kind import ConvKind, GemmFactors
from tilewright.ops.grouped_conv.source import make_context
from tilewright.ops.grouped_conv.trial_filters import TANGLED

BACKWARD_WEIGHT = ConvKind(
    name="backward_weight",
    doc="gradient of the weights",
    context=make_context,
    fields=("specialization", "merge_groups", "split_k", "two_stage", "explicit_gemm", "blocks_per_cu"),
    lds_bytes=lds_bytes,
    matrix_instructions=matrix_instructions,
    kernel_template="GroupedConvolutionBackwardWeightKernel",
    tensors={"grad_output": "output", "input": "input", "grad_weight": "weight"},
    layout="crr",
    factors=GemmFactors(m=("k",), n=("taps", "c"), k=("outputs",)),
    # CK Tile's 1-D kernel reads the gradient of the output as if it were transposed
    # (grouped_convolution/utils/transform_conv_bwd_weight_to_gemm.hpp), so it is computed as images of one line.
    least_ndim=2,
    # From 33 kernels of all CDNA GPUs.
    address_cost=AddressCost(
        step=16, load=17, transposed=3.2, block=125, address_registers=6, base_registers=24, covers=False
    ),
    reference=import_on_call("tilewright.ops.grouped_conv.reference", "compute_backward_weight"),
    put_wide_numbers=import_on_call("tilewright.ops.grouped_conv.inputs", "put_in_positions"),
    loop_filters=TANGLED,
    long_filters=TANGLED[1:],
)
