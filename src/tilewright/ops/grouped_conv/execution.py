"""How convolution kernels are called and checked. NumPy is imported when a function needs it."""

from __future__ import annotations

from tilewright.ops.execution import Execution, imported_when_called
from tilewright.ops.grouped_conv.abi import arguments, point
from tilewright.ops.grouped_conv.padding import padded
from tilewright.ops.grouped_conv.tensors import tensors, with_strides
from tilewright.ops.grouped_conv.trials import trials

EXECUTION = Execution(
    tensors=tensors,
    with_strides=with_strides,
    arguments=arguments,
    point=point,
    padded=padded,
    inputs=imported_when_called("tilewright.ops.grouped_conv.reference", "inputs"),
    reference=imported_when_called("tilewright.ops.grouped_conv.reference", "reference"),
    tolerance=imported_when_called("tilewright.ops.grouped_conv.tolerance", "tolerance"),
    tolerance_basis=imported_when_called("tilewright.ops.grouped_conv.tolerance", "tolerance_basis"),
    trials=trials,
)
