"""How attention kernels are called and checked. NumPy is imported only when a function needs it."""

from __future__ import annotations

from tilewright.ops.execution import Execution, import_on_call
from tilewright.ops.fmha.stages import plan_next_stage
from tilewright.ops.fmha.tensors import apply_strides, list_tensors, make_address_setter, make_arguments
from tilewright.ops.fmha.trials import list_trials

EXECUTION = Execution(
    tensors=list_tensors,
    with_strides=apply_strides,
    arguments=make_arguments,
    point=make_address_setter,
    next_stage=plan_next_stage,
    inputs=import_on_call("tilewright.ops.fmha.inputs", "make_inputs"),
    reference=import_on_call("tilewright.ops.fmha.reference", "compute_reference"),
    tolerance=import_on_call("tilewright.ops.fmha.tolerance", "compute_tolerance"),
    tolerance_basis=import_on_call("tilewright.ops.fmha.tolerance", "tolerance_basis"),
    trials=list_trials,
)
