"""The gradients of attention: three kernels compute them, dot_do_o, dq_dk_dv and convert_dq."""

from __future__ import annotations

from tilewright.ops.fmha.kind import Computation
from tilewright.ops.fmha.kinds import parts

BACKWARD = Computation(
    name="backward",
    doc="all gradients: dot_do_o, dq_dk_dv and convert_dq",
    number=9,
    inputs=(*parts.ATTENTION_INPUTS, "o", "lse", "d_o", "seqstart_q", "seqstart_k"),
    outputs=("dq", "dk", "dv", "dbias", "randval"),
    is_gradient=True,
    wide_inputs=(),
    integer_inputs=True,
    computed_inputs=parts.FORWARD_RESULTS,
    finish_inputs=parts.from_inputs("add_forward_results"),
    reference=parts.from_reference_backward("compute_backward"),
    tolerance=parts.from_tolerance("bound_backward"),
)
