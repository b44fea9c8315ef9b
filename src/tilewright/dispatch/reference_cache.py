"""A cache of expected outputs, computed once for all kernels that compute a problem one after another.

Imports NumPy: import this module only to verify kernels.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.arch.blockwise import compute_blockwise
from tilewright.arch.number_formats import Floats, compute_spacing
from tilewright.arch.spec import Arch
from tilewright.dispatch.plan import get_execution
from tilewright.ops.execution import Tensor
from tilewright.ops.kernel import Kernel
from tilewright.ops.tolerance import Tolerance


@dataclass(frozen=True, slots=True)
class ExpectedOutputs:
    """Inputs and their correct outputs, by name. All are read-only."""

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]


class ReferenceCache:
    """Inputs, reference and tolerances of the last problem, shared by the kernels of a sweep.

    They take the host far longer than a kernel takes a GPU: seconds instead of milliseconds for a GEMM of
    2048 × 2048 × 2048. Only one problem is cached, so memory is that of the largest one. Not thread-safe.
    """

    def __init__(self) -> None:
        self._problem: Hashable = None
        self._expected: dict[int, ExpectedOutputs] = {}
        self._allowed: dict[Hashable, Mapping[str, Tolerance]] = {}
        self._ulps: dict[tuple[int, str], Floats] = {}

    def get_expected(self, op: str, problem: Any, seed: int, arch: Arch) -> ExpectedOutputs:
        """Inputs for a seed, and the outputs of the reference."""
        self._reset_for((op, problem, arch.name))
        found = self._expected.get(seed)
        if found is None:
            execution = get_execution(op)
            inputs = _make_read_only(execution.inputs(problem, seed, arch))
            outputs = _make_read_only(execution.reference(problem, inputs, arch))
            found = self._expected[seed] = ExpectedOutputs(inputs, outputs)
        return found

    def get_tolerances(
        self, kernels: tuple[Kernel, ...], problem: Any, seed: int, arch: Arch
    ) -> Mapping[str, Tolerance]:
        """The tolerances of each output of these kernels."""
        execution = get_execution(kernels[0].op)
        expected = self.get_expected(kernels[0].op, problem, seed, arch)
        configs = tuple(kernel.config for kernel in kernels)
        config = configs if len(configs) > 1 else configs[0]
        key = (seed, configs if len(configs) > 1 else execution.tolerance_basis(config, problem))
        found = self._allowed.get(key)
        if found is None:
            given = execution.tolerance(config, problem, expected.inputs, expected.outputs, arch)
            found = {name: _make_tolerance_read_only(each) for name, each in given.items()}
            self._allowed[key] = found
        return found

    def get_ulps(self, op: str, problem: Any, seed: int, arch: Arch, tensor: Tensor) -> Floats:
        """One ulp of each element of an output.

        For elements below the root mean square, which cancellation of large terms leaves, it is that of the root mean
        square.
        """
        wanted = self.get_expected(op, problem, seed, arch).outputs[tensor.name]
        key = (seed, tensor.name)
        found = self._ulps.get(key)
        if found is None:
            found = self._ulps[key] = _compute_typical_spacing(wanted, tensor.dtype, arch)
        return found

    def _reset_for(self, problem: Hashable) -> None:
        """Drop the last problem before the next is computed: two large ones may not fit in memory."""
        if problem != self._problem:
            self._problem = problem
            self._expected.clear()
            self._allowed.clear()
            self._ulps.clear()


def _compute_typical_spacing(values: Any, name: str, arch: Arch) -> Floats:
    """One ulp of each value, at least that of their root mean square. Those that are not finite count as 0."""
    finite = np.asarray(values, dtype=np.float64)
    squares = _sum_squares(finite)
    if not np.isfinite(squares):
        finite = np.where(np.isfinite(finite), finite, 0.0)
        squares = _sum_squares(finite)
    least = compute_spacing(np.array(np.sqrt(squares / finite.size)), name, arch)

    def compute(values: Floats) -> tuple[Floats]:
        found = compute_spacing(values, name, arch)
        return (np.maximum(found, least, out=found),)

    [found] = compute_blockwise(compute, finite)
    return found


def _sum_squares(values: Floats) -> float:
    """The sum of all squares. No array of squares is made, and no threads of BLAS wait."""
    flat = values.reshape(-1)
    return float(np.einsum("i,i->", flat, flat))


def _make_read_only(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read-only views of arrays: every kernel must get the same values."""
    frozen = {}
    for name, array in arrays.items():
        frozen[name] = np.asarray(array).view()
        frozen[name].setflags(write=False)
    return frozen


def _make_tolerance_read_only(given: Tolerance) -> Tolerance:
    return Tolerance(**_make_read_only({"limit": given.limit, "deviation": given.deviation}))
