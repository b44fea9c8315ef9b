"""How convolution kernels are called and checked. NumPy is imported when a function needs it."""

from __future__ import annotations

from tilewright.ops.execution import Execution, import_on_call
from tilewright.ops.grouped_conv.padding import pad_problem
from tilewright.ops.grouped_conv.tensors import apply_strides, list_tensors, make_address_setter, make_arguments
from tilewright.ops.grouped_conv.trials import list_trials

EXECUTION = Execution(
    tensors=list_tensors,
    with_strides=apply_strides,
    arguments=make_arguments,
    point=make_address_setter,
    padded=pad_problem,
    inputs=import_on_call("tilewright.ops.grouped_conv.reference", "make_inputs"),
    reference=import_on_call("tilewright.ops.grouped_conv.reference", "compute_reference"),
    tolerance=import_on_call("tilewright.ops.grouped_conv.tolerance", "compute_tolerance"),
    tolerance_basis=import_on_call("tilewright.ops.grouped_conv.tolerance", "tolerance_basis"),
    trials=list_trials,
)
