"""Results that a kernel might give, judged by the function that judges those of real kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.arch.number_formats import to_numpy_dtype
from tilewright.arch.spec import Arch
from tilewright.dispatch.comparison import Difference, compare_output
from tilewright.dispatch.plan import get_execution
from tilewright.dispatch.poisoned_tensor import PoisonedTensor
from tilewright.dispatch.reference_cache import ReferenceCache
from tilewright.dispatch.verify import SPECIAL_SEED
from tilewright.ops.kernel import Kernel

# The outputs by name, from inputs by name and a seed.
Compute = Callable[[Mapping[str, Any], int], Mapping[str, Any]]


class Played:
    """A problem with all that kernels of it are held against, for the two inputs that `verify` takes."""

    def __init__(self, kernel: Kernel, problem: Any, arch: Arch, seeds: tuple[int, ...] = (SPECIAL_SEED, 1)) -> None:
        self.kernel, self.problem, self.arch, self.seeds = kernel, problem, arch, seeds
        self._remembered = ReferenceCache()

    def judge(self, compute: Compute) -> list[Difference]:
        """What `verify` says of a kernel that computes so: one for each output and input."""
        return [found for seed in self.seeds for found in self._judge(compute, seed)]

    def _judge(self, compute: Compute, seed: int) -> list[Difference]:
        op, kept = self.kernel.op, self._remembered
        expected = kept.get_expected(op, self.problem, seed, self.arch)
        allowed = kept.get_tolerances((self.kernel,), self.problem, seed, self.arch)
        outputs = compute(expected.inputs, seed)
        found = []
        for tensor in get_execution(op).tensors(self.problem):
            if tensor.output:
                placed = PoisonedTensor(tensor, to_numpy_dtype(tensor.dtype, self.arch), None)
                placed.get_values()[...] = outputs[tensor.name]
                ulps = kept.get_ulps(op, self.problem, seed, self.arch, tensor)
                found.append(compare_output(placed, expected.outputs, allowed, ulps, seed))
        return found

    def refuses(self, compute: Compute) -> bool:
        """Whether `verify` calls such a kernel wrong."""
        return any(found.message for found in self.judge(compute))

    def share(self, compute: Compute) -> float:
        """The largest share of a limit that a kernel has which is right."""
        judged = self.judge(compute)
        assert not any(found.message for found in judged), [found.message for found in judged]
        return max(max(found.element_share, found.rms_share) for found in judged)


def with_bits(values: Any, bits: int) -> Any:
    """Values rounded to so many bits of the significand, as a smaller type would hold them; in float64."""
    fraction, exponent = np.frexp(np.asarray(values).astype(np.float64))
    return np.ldexp(np.rint(fraction * 2.0**bits) / 2.0**bits, exponent)
