"""Select the kernels that support a problem, from the kernels of a GPU, which are prepared for many problems.

This is for problems of one kernel; `dispatch.select_stages` combines selections for problems that need several.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops import find_op, list_ops
from tilewright.ops.cost_model.cost import Facts, ResourceUse
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op
from tilewright.ops.problem_text import format_problem
from tilewright.ops.rule import Rule, find_violations
from tilewright.select.selection import FIRST_FIT, Candidate, LazySequence, Ranking, RejectedKernel, Selection, Selector


def select_from(pool: CandidatePool, problem: Any, selector: Selector, *, pad: bool = False) -> Selection:
    """Rank the kernels of a pool for a problem."""
    part = pool.get_candidates(problem)
    if part is None:
        return Selection(problem, pool.arch.name, (), _list_rejected(pool, problem, 0, ()))
    able = find_candidates(part, problem, pad)
    ranking = selector.rank(problem, pool.arch, able) if able else Ranking(())
    return Selection(
        problem,
        pool.arch.name,
        ranking.choices,
        _list_rejected(pool, problem, len(able), able),
        steps=ranking.steps,
    )


def select_kernels(
    problem: Any,
    arch: Arch,
    kernels: Sequence[Kernel],
    priorities: Mapping[Kernel, int] | None = None,
    *,
    pad: bool = False,
    selector: Selector = FIRST_FIT,
) -> Selection:
    """Rank the kernels of a GPU for one problem. For several problems, create a pool and use `select_from`."""
    return select_from(CandidatePool.create(arch, kernels, priorities), problem, selector, pad=pad)


def _list_rejected(
    pool: CandidatePool, problem: Any, able: int, choices: Sequence[Candidate]
) -> Sequence[RejectedKernel]:
    """The kernels that are not among the choices; their reasons are computed on access."""

    @functools.cache
    def explain_all() -> list[RejectedKernel]:
        can = {choice.kernel for choice in choices}
        found = [explain_rejection(pool, kernel, problem) for kernel in pool.kernels if kernel not in can]
        # Kernels of other ops come last. Of the others, those that padding helps come first, then those with fewer
        # reasons. Sorting is stable.
        return sorted(
            found,
            key=lambda rejection: (
                not _is_of_op(rejection.kernel, problem),
                not rejection.padding_helps,
                len(rejection.reasons),
            ),
        )

    return LazySequence(len(pool.kernels) - able, lambda place: explain_all()[place])


@dataclass(frozen=True)
class CandidatePool:
    """Kernels of one GPU, higher priority first, then in order of registration.

    `unusable` has kernels that no problem can use, with the reason. `uses` has the resource usage of built kernels.
    """

    arch: Arch
    kernels: tuple[Kernel, ...]
    priorities: Mapping[Kernel, int]
    unusable: Mapping[Kernel, str]
    uses: Mapping[Kernel, ResourceUse]

    @classmethod
    def create(
        cls,
        arch: Arch,
        kernels: Sequence[Kernel],
        priorities: Mapping[Kernel, int] | None = None,
        unusable: Mapping[Kernel, str] | None = None,
        uses: Mapping[Kernel, ResourceUse] | None = None,
    ) -> CandidatePool:
        known = priorities or {}
        ordered = sorted(kernels, key=lambda kernel: -known.get(kernel, 0)) if known else kernels
        return cls(arch, tuple(ordered), known, unusable or {}, uses or {})

    def get_candidates(self, problem: Any) -> OpCandidates | None:
        """The kernels of the problem's op; None if there are none."""
        return self._parts.get(type(problem))

    def get_priority(self, kernel: Kernel) -> int:
        return self.priorities.get(kernel, 0)

    @functools.cached_property
    def _parts(self) -> dict[type, OpCandidates]:
        names = dict.fromkeys(kernel.op for kernel in self.kernels)
        return {(op := find_op(name)).problem_type: OpCandidates(self, op) for name in names}


class OpCandidates:
    """The kernels of one op in a pool."""

    def __init__(self, pool: CandidatePool, op: Op) -> None:
        self.pool = pool
        self.op = op
        self.kernels = tuple(kernel for kernel in pool.kernels if kernel.op == op.name)
        self.fits = SupportIndex(op, self.kernels, pool.arch)
        self._usable = sum(1 << place for place, kernel in enumerate(self.kernels) if kernel not in pool.unusable)

    def find_supporting(self, problem: Any) -> list[int]:
        """Indices of the usable kernels that support a problem."""
        return list_set_bits(self.fits.compute_mask(problem) & self._usable)

    @functools.cached_property
    def rows(self) -> tuple[Facts, ...]:
        """The model inputs of each kernel."""
        cost = self.op.cost
        assert cost is not None
        arch, uses = self.pool.arch, self.pool.uses
        return tuple(Facts(**cost.kernel_numbers(k.config, arch, uses.get(k))) for k in self.kernels)

    def gather_inputs(self, places: Sequence[int]) -> Facts:
        """The model inputs of some kernels in this order, each a NumPy array."""
        chosen = self._matrix if list(places) == list(range(len(self.kernels))) else self._matrix[:, places]
        return Facts(**dict(zip(vars(self.rows[0]), chosen, strict=True)))

    @functools.cached_property
    def _matrix(self) -> Any:
        """A row for each model input, a column for each kernel."""
        import numpy as np  # noqa: PLC0415  (an extra)

        return np.array([tuple(vars(row).values()) for row in self.rows], float).T.copy()


class Candidates(LazySequence[Candidate]):
    """The kernels of an op that support a problem: first unpadded, then padded, each in the order of the pool."""

    def __init__(
        self, part: OpCandidates, problem: Any, places: Sequence[int], padded: Sequence[tuple[int, Any, str]]
    ) -> None:
        self.part = part
        self.problem = problem
        self.places = places
        self.padded = padded
        super().__init__(len(places) + len(padded), self._make_candidate)

    def _make_candidate(self, number: int) -> Candidate:
        pool = self.part.pool
        if number < len(self.places):
            kernel = self.part.kernels[self.places[number]]
            larger, why = None, "supports the problem unpadded"
        else:
            place, larger, fault = self.padded[number - len(self.places)]
            kernel = self.part.kernels[place]
            why = f"supports only {format_problem(larger, kernel.config)}: {fault}"
        priority = pool.get_priority(kernel)
        return Candidate(kernel, float(priority), f"priority {priority}, {why}" if priority else why, larger)


def find_candidates(part: OpCandidates, problem: Any, pad: bool) -> Candidates:
    """The kernels of an op that support a problem; with `pad`, also those that support only a larger one."""
    places = part.find_supporting(problem)
    padded = list(_find_padded(part, problem, set(places))) if pad else []
    return Candidates(part, problem, places, padded)


def _find_padded(part: OpCandidates, problem: Any, fit: set[int]) -> Iterator[tuple[int, Any, str]]:
    """Kernels that support only a larger problem: their index, that problem, and the reasons."""
    arch = part.pool.arch
    for place, kernel in enumerate(part.kernels):
        if place not in fit and kernel not in part.pool.unusable:
            larger = pad_problem(part.op, kernel, problem, arch)
            if larger is not None:
                yield place, larger, "; ".join(_list_reasons(part.op, kernel, problem, arch))


def explain_rejection(pool: CandidatePool, kernel: Kernel, problem: Any) -> RejectedKernel:
    """All reasons why a kernel does not support an unpadded problem."""
    op = find_op(kernel.op)
    out = (pool.unusable[kernel],) if kernel in pool.unusable else ()
    if not _is_of_op(kernel, problem):
        own = next((f"one of {other.name}" for other in list_ops() if type(problem) is other.problem_type), None)
        fault = f"it is a kernel of {op.name}, and the problem is {own or f'a {type(problem).__qualname__}'}"
        return RejectedKernel(kernel, (*out, fault))
    reasons = _list_reasons(op, kernel, problem, pool.arch)
    helps = bool(reasons) and not out and pad_problem(op, kernel, problem, pool.arch) is not None
    return RejectedKernel(kernel, (*out, *reasons), helps)


def _is_of_op(kernel: Kernel, problem: Any) -> bool:
    return type(problem) is find_op(kernel.op).problem_type


def _list_reasons(op: Op, kernel: Kernel, problem: Any, arch: Arch) -> tuple[str, ...]:
    return tuple(str(fault) for fault in find_violations(op.fit_rules, kernel.config, problem, arch))


def pad_problem(op: Op, kernel: Kernel, problem: Any, arch: Arch) -> Any:
    """The padded problem that the op proposes, if the kernel supports it; else None."""
    larger = op.execution.padded(kernel.config, problem, arch) if op.execution is not None else None
    if larger is None or find_violations(op.fit_rules, kernel.config, larger, arch):
        return None
    return larger


@dataclass(frozen=True, slots=True)
class _RuleGroups:
    """A rule and its groups of kernels: the config of one member, and the members as a bit mask."""

    rule: Rule
    groups: tuple[tuple[Any, int], ...]


class SupportIndex:
    """Index of the fit rules of an op for these kernels on one GPU.

    Kernels with equal fields that a rule reads, or with equal keys (`Rule.group_key`), get the same verdict, so each
    rule is checked once per group. A set of kernels is an integer with one bit per kernel: removing a group is one
    operation.
    """

    def __init__(self, op: Op, kernels: Sequence[Kernel], arch: Arch) -> None:
        self._arch = arch
        self._all = (1 << len(kernels)) - 1
        self._count = len(kernels)
        self._asked = tuple(_RuleGroups(rule, _group_kernels(rule, kernels, arch)) for rule in op.fit_rules)

    def compute_mask(self, problem: Any) -> int:
        """A bit mask: bit i is set if kernel i supports the problem."""
        left = self._all
        for asked in self._asked:
            check = asked.rule.check
            for config, members in asked.groups:
                if members & left and check(config, problem, self._arch) is not None:
                    left &= ~members
            if not left:
                break
        return left

    def find_supporting(self, problem: Any) -> list[int]:
        """Indices of the kernels that support the problem."""
        return list_set_bits(self.compute_mask(problem))

    def check_support(self, problem: Any) -> list[bool]:
        """For each kernel, whether it supports the problem."""
        bits = self.compute_mask(problem)
        return [bool(bits >> place & 1) for place in range(self._count)]


def list_set_bits(bits: int) -> list[int]:
    """Indices of the set bits, lowest first."""
    return [place for place, digit in enumerate(reversed(f"{bits:b}")) if digit == "1"]


def _group_kernels(rule: Rule, kernels: Sequence[Kernel], arch: Arch) -> tuple[tuple[Any, int], ...]:
    read, group_key = operator.attrgetter(*rule.reads), rule.group_key
    found: dict[Any, tuple[Any, int]] = {}
    for place, kernel in enumerate(kernels):
        values = read(kernel.config) if group_key is None else group_key(kernel.config, arch)
        config, members = found.get(values, (kernel.config, 0))
        found[values] = (config, members | 1 << place)
    return tuple(found.values())
