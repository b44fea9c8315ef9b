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
from tilewright.select.pool import CandidatePool, explain_rejection, find_candidates
from tilewright.select.rank import FIRST_FIT
from tilewright.select.selection import Candidate, LazySequence, Ranking, RejectedKernel, Selection, Selector


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
        # Kernels that padding helps come first, then those with fewer reasons. Sorting is stable.
        return sorted(found, key=lambda rejection: (not rejection.padding_helps, len(rejection.reasons)))

    return LazySequence(len(pool.kernels) - able, lambda place: explain_all()[place])
