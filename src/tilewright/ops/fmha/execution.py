"""How attention kernels are called and checked. NumPy is imported only when a function needs it."""

from __future__ import annotations

from tilewright.ops.execution import Execution, imported_when_called
from tilewright.ops.fmha.abi import arguments, point
from tilewright.ops.fmha.stages import next_stage
from tilewright.ops.fmha.tensors import tensors, with_strides
from tilewright.ops.fmha.trials import trials

EXECUTION = Execution(
    tensors=tensors,
    with_strides=with_strides,
    arguments=arguments,
    point=point,
    next_stage=next_stage,
    inputs=imported_when_called("tilewright.ops.fmha.inputs", "inputs"),
    reference=imported_when_called("tilewright.ops.fmha.reference", "reference"),
    tolerance=imported_when_called("tilewright.ops.fmha.tolerance", "tolerance"),
    tolerance_basis=imported_when_called("tilewright.ops.fmha.tolerance", "tolerance_basis"),
    trials=trials,
)
