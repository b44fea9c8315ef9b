"""Choose the kernels of an acceptance run: for each op and kind, the smallest kernel of the op's built-in sets.

If no set has a kernel of a kind for the GPU, the op's built-in spaces are searched.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arch.dtypes import find_dtype
from tilewright.arch.spec import Arch
from tilewright.ops import Op, find_op, list_ops
from tilewright.ops.declaration import STAR
from tilewright.ops.kernel import Kernel
from tilewright.ops.space import Space

# Kernels of a kind with the least LDS whose problems are compared in size: computing these takes longer.
_COMPARED = 6
# Legal kernels of a space among which the smallest is taken: a space has millions.
_SEARCHED = 200


@dataclass(frozen=True)
class MissingKind:
    """A kind that the sample lacks, and why."""

    op: str
    kind: str
    reason: str

    def to_json(self) -> dict[str, str]:
        """Plain values."""
        return {"op": self.op, "kind": self.kind, "reason": self.reason}


@dataclass(frozen=True)
class Sample:
    """The kernels of a run, the simplest first, and the kinds without one."""

    kernels: tuple[Kernel, ...]
    missing: tuple[MissingKind, ...] = ()


def choose_sample(arch: Arch, ops: Iterable[Op] | None = None) -> Sample:
    """The smallest legal kernel of each kind of each op on a GPU, from the op's built-in sets and spaces."""
    kernels: list[Kernel] = []
    missing: list[MissingKind] = []
    for op in list_ops() if ops is None else ops:
        by_kind = _group_by_kind(op, arch)
        for kind in op.kinds:
            if op.execution is None:
                missing.append(MissingKind(op.name, kind.name, f"{op.name} does not define how its kernels are run"))
                continue
            found = by_kind.get(kind.name) or _search_spaces(op, kind.name, arch)
            if not found:
                reason = f"no built-in set or space of {op.name} has a legal kernel of this kind for {arch.name}"
                missing.append(MissingKind(op.name, kind.name, reason))
            else:
                kernels.append(_choose_smallest(op, found, arch))
    return Sample(tuple(kernels), tuple(missing))


def _group_by_kind(op: Op, arch: Arch) -> dict[str, list[Kernel]]:
    """The legal kernels of the op's sets for a GPU, by kind."""
    found: dict[str, list[Kernel]] = {}
    for kernel in _iterate_members(op, arch):
        found.setdefault(op.kind(kernel.config).name, []).append(kernel)
    return found


def _iterate_members(op: Op, arch: Arch) -> Iterator[Kernel]:
    for kernel_set in op.sets().values():
        if arch.name in kernel_set.archs:
            yield from kernel_set.kernels(arch.name)


def _search_spaces(op: Op, kind: str, arch: Arch) -> list[Kernel]:
    """The first legal kernels of a kind in the op's built-in spaces: in those that list the kind, else in others."""
    if not op.kind_field:
        return []
    spaces = [space for named in op.spaces().values() for space in named.spaces]
    listing = [space for space in spaces if kind in (values := space.declared.get(op.kind_field, ())) or values == STAR]
    for space in (*listing, *(each for each in spaces if each not in listing)):
        narrow = Space(op, {**space.declared, op.kind_field: (kind,)})
        found = list(itertools.islice(narrow.iter(arch.name), _SEARCHED))
        if found:
            return found
    return []


def _choose_smallest(op: Op, kernels: Sequence[Kernel], arch: Arch) -> Kernel:
    """The kernel with the least LDS; among several the one with the smallest first trial."""
    by_lds = sorted(kernels, key=lambda kernel: (op.kind(kernel.config).lds_bytes(kernel.config, arch), kernel.slug))
    return min(by_lds[:_COMPARED], key=lambda kernel: (_measure_trial(op, kernel, arch), kernel.slug))


def _measure_trial(op: Op, kernel: Kernel, arch: Arch) -> float:
    """The bytes of the tensors of a kernel's first trial; infinite without a trial."""
    problems = choose_problems(kernel, arch, 1)
    return sum(count_bytes(op, problem) for problem in problems) if problems else math.inf


def count_bytes(op: Op, problem: Any) -> int:
    """The bytes of the tensors of a problem."""
    assert op.execution is not None
    bits = (math.prod(each.shape) * find_dtype(each.dtype).bits for each in op.execution.tensors(problem))
    return sum(bits) // 8


def choose_problems(kernel: Kernel, arch: Arch, most: int | None) -> tuple[Any, ...]:
    """Trials of a kernel: at most so many, evenly spread over the op's list, the first included; None for all.

    An op's list begins with the most sensitive ones, and ends with special cases, such as splits that add with atomics.
    """
    execution = find_op(kernel.op).execution
    assert execution is not None
    trials = execution.trials(kernel.config, arch)
    if most is None or most >= len(trials):
        return tuple(trials)
    return tuple(trials[place * (len(trials) - 1) // max(most - 1, 1)] for place in range(most))


def choose_timed_problem(kernel: Kernel, arch: Arch) -> Any:
    """The trial with the most data: launching takes the smallest part of its time."""
    op = find_op(kernel.op)
    return max(choose_problems(kernel, arch, None), key=lambda problem: count_bytes(op, problem))
