"""Kernels of a GPU, prepared for selection for many problems."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops import op_named
from tilewright.ops.kernel import Kernel
from tilewright.ops.machine.cost import Facts, Use
from tilewright.ops.op import Op
from tilewright.ops.problem_text import problem_text
from tilewright.ops.rule import violations
from tilewright.select.fits import Fits, places_of
from tilewright.select.selection import Choice, Deferred, Rejection


@dataclass(frozen=True)
class Pool:
    """Kernels of one GPU, higher priority first, then in order of registration.

    `unusable` has kernels that no problem can use, with the reason. `uses` has the resource usage of built kernels.
    """

    arch: Arch
    kernels: tuple[Kernel, ...]
    priorities: Mapping[Kernel, int]
    unusable: Mapping[Kernel, str]
    uses: Mapping[Kernel, Use]

    @classmethod
    def of(
        cls,
        arch: Arch,
        kernels: Sequence[Kernel],
        priorities: Mapping[Kernel, int] | None = None,
        unusable: Mapping[Kernel, str] | None = None,
        uses: Mapping[Kernel, Use] | None = None,
    ) -> Pool:
        known = priorities or {}
        ordered = sorted(kernels, key=lambda kernel: -known.get(kernel, 0)) if known else kernels
        return cls(arch, tuple(ordered), known, unusable or {}, uses or {})

    def part_for(self, problem: Any) -> Part | None:
        """The kernels of the problem's op; None if there are none."""
        return self._parts.get(type(problem))

    def priority(self, kernel: Kernel) -> int:
        return self.priorities.get(kernel, 0)

    @functools.cached_property
    def _parts(self) -> dict[type, Part]:
        names = dict.fromkeys(kernel.op for kernel in self.kernels)
        return {(op := op_named(name)).problem_type: Part(self, op) for name in names}


class Part:
    """The kernels of one op in a pool."""

    def __init__(self, pool: Pool, op: Op) -> None:
        self.pool = pool
        self.op = op
        self.kernels = tuple(kernel for kernel in pool.kernels if kernel.op == op.name)
        self.fits = Fits(op, self.kernels, pool.arch)
        self._usable = sum(1 << place for place, kernel in enumerate(self.kernels) if kernel not in pool.unusable)

    def places(self, problem: Any) -> list[int]:
        """Indices of the usable kernels that support a problem."""
        return places_of(self.fits.bits(problem) & self._usable)

    @functools.cached_property
    def rows(self) -> tuple[Facts, ...]:
        """The model inputs of each kernel."""
        cost = self.op.cost
        assert cost is not None
        arch, uses = self.pool.arch, self.pool.uses
        return tuple(Facts(**cost.kernel_numbers(k.config, arch, uses.get(k))) for k in self.kernels)

    def facts_of(self, places: Sequence[int]) -> Facts:
        """The model inputs of some kernels in this order, each a NumPy array."""
        chosen = self._matrix if list(places) == list(range(len(self.kernels))) else self._matrix[:, places]
        return Facts(**dict(zip(vars(self.rows[0]), chosen, strict=True)))

    @functools.cached_property
    def _matrix(self) -> Any:
        """A row for each model input, a column for each kernel."""
        import numpy as np  # noqa: PLC0415  (an extra)

        return np.array([tuple(vars(row).values()) for row in self.rows], float).T.copy()


class Fitting(Deferred[Choice]):
    """The kernels of an op that support a problem: first unpadded, then padded, each in the order of the pool."""

    def __init__(self, part: Part, problem: Any, places: Sequence[int], padded: Sequence[tuple[int, Any, str]]) -> None:
        self.part = part
        self.problem = problem
        self.places = places
        self.padded = padded
        super().__init__(len(places) + len(padded), self._choice)

    def _choice(self, number: int) -> Choice:
        pool = self.part.pool
        if number < len(self.places):
            kernel = self.part.kernels[self.places[number]]
            larger, why = None, "supports the problem unpadded"
        else:
            place, larger, fault = self.padded[number - len(self.places)]
            kernel = self.part.kernels[place]
            why = f"supports only {problem_text(larger, kernel.config)}: {fault}"
        priority = pool.priority(kernel)
        return Choice(kernel, float(priority), f"priority {priority}, {why}" if priority else why, larger)


def fitting(part: Part, problem: Any, pad: bool) -> Fitting:
    """The kernels of an op that support a problem; with `pad`, also those that support only a larger one."""
    places = part.places(problem)
    padded = list(_padded_places(part, problem, set(places))) if pad else []
    return Fitting(part, problem, places, padded)


def _padded_places(part: Part, problem: Any, fit: set[int]) -> Iterator[tuple[int, Any, str]]:
    """Kernels that support only a larger problem: their index, that problem, and the reasons."""
    arch = part.pool.arch
    for place, kernel in enumerate(part.kernels):
        if place not in fit and kernel not in part.pool.unusable:
            larger = padded_for(part.op, kernel, problem, arch)
            if larger is not None:
                yield place, larger, "; ".join(_reasons(part.op, kernel, problem, arch))


def judge(pool: Pool, kernel: Kernel, problem: Any) -> Rejection:
    """All reasons why a kernel does not support an unpadded problem."""
    op = op_named(kernel.op)
    out = (pool.unusable[kernel],) if kernel in pool.unusable else ()
    if type(problem) is not op.problem_type:
        fault = f"it is a kernel of {op.name}, and the problem is a {type(problem).__qualname__}"
        return Rejection(kernel, (*out, fault))
    reasons = _reasons(op, kernel, problem, pool.arch)
    helps = bool(reasons) and not out and padded_for(op, kernel, problem, pool.arch) is not None
    return Rejection(kernel, (*out, *reasons), helps)


def _reasons(op: Op, kernel: Kernel, problem: Any, arch: Arch) -> tuple[str, ...]:
    return tuple(str(fault) for fault in violations(op.fit_rules, kernel.config, problem, arch))


def padded_for(op: Op, kernel: Kernel, problem: Any, arch: Arch) -> Any:
    """The padded problem that the op proposes, if the kernel supports it; else None."""
    larger = op.execution.padded(kernel.config, problem, arch) if op.execution is not None else None
    if larger is None or violations(op.fit_rules, kernel.config, larger, arch):
        return None
    return larger
