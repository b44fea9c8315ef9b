"""Selects kernels of a pool for a problem.

`select_kernels` is for problems of one kernel; `dispatch.select_stages` combines selections for problems that need
several.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.kernel import Kernel
from tilewright.select.first_fit import FIRST_FIT
from tilewright.select.pool import Pool, fitting, judge
from tilewright.select.selection import Choice, Deferred, Ranking, Rejection, Selection, Selector


def select_from(pool: Pool, problem: Any, selector: Selector, *, pad: bool = False) -> Selection:
    """Rank the kernels of a pool for a problem."""
    part = pool.part_for(problem)
    if part is None:
        return Selection(problem, pool.arch.name, (), _rejected(pool, problem, 0, ()))
    able = fitting(part, problem, pad)
    ranking = selector.rank(problem, pool.arch, able) if able else Ranking(())
    return Selection(
        problem,
        pool.arch.name,
        ranking.choices,
        _rejected(pool, problem, len(able), able),
        steps=ranking.steps,
    )


def select(
    problem: Any,
    arch: Arch,
    kernels: Sequence[Kernel],
    priorities: Mapping[Kernel, int] | None = None,
    *,
    pad: bool = False,
    selector: Selector = FIRST_FIT,
) -> Selection:
    """Rank the kernels of a GPU for one problem. For several problems, create a pool and use `select_from`."""
    return select_from(Pool.of(arch, kernels, priorities), problem, selector, pad=pad)


def _rejected(pool: Pool, problem: Any, able: int, choices: Sequence[Choice]) -> Sequence[Rejection]:
    """The kernels that are not among the choices; their reasons are computed on access."""

    @functools.cache
    def judged() -> list[Rejection]:
        can = {choice.kernel for choice in choices}
        found = [judge(pool, kernel, problem) for kernel in pool.kernels if kernel not in can]
        # Kernels that padding helps come first, then those with fewer reasons. Sorting is stable.
        return sorted(found, key=lambda rejection: (not rejection.padding_helps, len(rejection.reasons)))

    return Deferred(len(pool.kernels) - able, lambda place: judged()[place])
