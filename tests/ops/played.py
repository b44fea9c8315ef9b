"""Results that a kernel might give, judged by the function that judges those of real kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.arch.number_formats import numpy_dtype
from tilewright.arch.spec import Arch
from tilewright.dispatch.guarded import Guarded
from tilewright.dispatch.plan import execution_of
from tilewright.dispatch.remembered import Remembered
from tilewright.dispatch.verify import SPECIAL_SEED, Difference, compared
from tilewright.ops.kernel import Kernel

# The outputs by name, from inputs by name and a seed.
Compute = Callable[[Mapping[str, Any], int], Mapping[str, Any]]


class Played:
    """A problem with all that kernels of it are held against, for the two inputs that `verify` takes."""

    def __init__(self, kernel: Kernel, problem: Any, arch: Arch, seeds: tuple[int, ...] = (SPECIAL_SEED, 1)) -> None:
        self.kernel, self.problem, self.arch, self.seeds = kernel, problem, arch, seeds
        self._remembered = Remembered()

    def judge(self, compute: Compute) -> list[Difference]:
        """What `verify` says of a kernel that computes so: one for each output and input."""
        return [found for seed in self.seeds for found in self._judge(compute, seed)]

    def _judge(self, compute: Compute, seed: int) -> list[Difference]:
        op, kept = self.kernel.op, self._remembered
        expected = kept.expected(op, self.problem, seed, self.arch)
        allowed = kept.allowed((self.kernel,), self.problem, seed, self.arch)
        outputs = compute(expected.inputs, seed)
        found = []
        for tensor in execution_of(op).tensors(self.problem):
            if tensor.output:
                placed = Guarded(tensor, numpy_dtype(tensor.dtype, self.arch), None)
                placed.values()[...] = outputs[tensor.name]
                ulps = kept.ulps(op, self.problem, seed, self.arch, tensor)
                found.append(compared(placed, expected.outputs, allowed, ulps, seed))
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
