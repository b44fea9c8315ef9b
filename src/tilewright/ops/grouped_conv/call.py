"""The C struct of a convolution call."""

from __future__ import annotations

from tilewright.ops.call_struct import WORKSPACE, CallStruct, declare_number, declare_numbers, declare_pointer
from tilewright.ops.grouped_conv.config import NDIMS
from tilewright.ops.grouped_conv.problem import Problem

_EXTENTS = ("input_size", "filter_size", "stride", "dilation", "left_pad", "right_pad")

CALL = CallStruct(
    op="grouped_conv",
    title="grouped convolution",
    doc="""\
Tensors are packed, channels last:
  input   n x input_size... x g x channels_in/g
  weight  g x channels_out/g x filter_size... x channels_in/g
  output  n x output_size... x g x channels_out/g
A forward kernel reads a = input and b = weight and writes c = output. A kernel for the gradient of the input
reads a = output gradient and b = weight and writes c = input gradient. One for the gradient of the weights reads
a = output gradient and b = input and writes c = weight gradient.""",
    problem_type=Problem,
    constants={"MAX_NDIM": max(NDIMS)},
    members=(
        declare_pointer("a"),
        declare_pointer("b"),
        declare_pointer("c", c_type="void"),
        declare_number("ndim", "spatial dimensions: the first ndim numbers of each array below count, outermost first"),
        *declare_numbers("n", "g"),
        declare_number("channels_in", value="c"),
        declare_number("channels_out", value="k"),
        *(declare_number(name, length="MAX_NDIM") for name in _EXTENTS),
        declare_number("k_batch", "parts that a weight gradient's sum is split into, added atomically; 1 = no split"),
        *WORKSPACE,
    ),
    places=lambda _: ("a", "b", "c"),
)
