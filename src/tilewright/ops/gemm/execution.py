"""How GEMM kernels are called and checked: the parts joined. NumPy is imported when a function needs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.execution import Execution
from tilewright.ops.gemm.abi import arguments, point
from tilewright.ops.gemm.config import Config
from tilewright.ops.gemm.padding import padded
from tilewright.ops.gemm.preshuffle import preparations
from tilewright.ops.gemm.problem import Problem
from tilewright.ops.gemm.tensors import tensors, with_strides
from tilewright.ops.gemm.trials import trials


def _inputs(problem: Problem, seed: int, arch: Arch) -> Mapping[str, Any]:
    from tilewright.ops.gemm.reference import inputs  # noqa: PLC0415  (NumPy)

    return inputs(problem, seed, arch)


def _reference(problem: Problem, inputs: Mapping[str, Any], arch: Arch) -> Mapping[str, Any]:
    from tilewright.ops.gemm.reference import reference  # noqa: PLC0415  (NumPy)

    return reference(problem, inputs, arch)


def _tolerance(
    config: Config, problem: Problem, inputs: Mapping[str, Any], outputs: Mapping[str, Any], arch: Arch
) -> Mapping[str, Any]:
    from tilewright.ops.gemm.tolerance import tolerance  # noqa: PLC0415  (NumPy)

    return tolerance(config, problem, inputs, outputs, arch)


EXECUTION = Execution(
    tensors=tensors,
    with_strides=with_strides,
    arguments=arguments,
    point=point,
    preparations=preparations,
    padded=padded,
    inputs=_inputs,
    reference=_reference,
    tolerance=_tolerance,
    trials=trials,
)
