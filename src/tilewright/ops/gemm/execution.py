"""How GEMM kernels are called and checked. NumPy is imported when a function needs it."""

from __future__ import annotations

from tilewright.ops.execution import Execution, imported_when_called
from tilewright.ops.gemm.abi import arguments, point
from tilewright.ops.gemm.padding import padded
from tilewright.ops.gemm.preshuffle import preparations
from tilewright.ops.gemm.tensors import tensors, with_strides
from tilewright.ops.gemm.trials import trials

EXECUTION = Execution(
    tensors=tensors,
    with_strides=with_strides,
    arguments=arguments,
    point=point,
    preparations=preparations,
    padded=padded,
    inputs=imported_when_called("tilewright.ops.gemm.reference", "inputs"),
    reference=imported_when_called("tilewright.ops.gemm.reference", "reference"),
    tolerance=imported_when_called("tilewright.ops.gemm.tolerance", "tolerance"),
    tolerance_basis=imported_when_called("tilewright.ops.gemm.tolerance", "tolerance_basis"),
    trials=trials,
)
