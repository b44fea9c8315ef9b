"""Selects kernels for a problem that may need several: one stage after another, each for the remaining computation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.base.errors import InvalidValueError, UnsupportedError
from tilewright.ops.execution import Execution
from tilewright.ops.kernel import Kernel
from tilewright.ops.problem_text import format_short_problem
from tilewright.select.selection import Candidate, RejectedKernel, Selection


def select_stages(
    problem: Any, execution: Execution, select_one: Callable[[Any], Selection], wanted: Sequence[Kernel] = ()
) -> Selection:
    """The selection for a problem; `select_one` ranks the kernels for one stage.

    The best choice of each stage is used. A choice that leaves a later stage without a kernel is skipped for the next
    best, and added to the rejected ones. For a problem of one stage the result is that of `select_one`.

    `wanted` kernels are the only choices of the stages that they support; each must be used for one stage.
    """
    way = _Search(problem, execution, functools.cache(select_one), tuple(wanted)).find_path(())
    if not way.parts:
        raise InvalidValueError(
            f"next_stage returns no stage for {format_short_problem(problem)}: there must be at least one"
        )
    first, last = way.parts[0], way.parts[-1]
    if way.fault and last.choices:
        raise UnsupportedError(_describe_unused(problem, way.parts, wanted))
    if len(way.parts) == 1 and first.problem == problem:
        return first
    if not way.fault:
        return Selection(problem, first.arch, first.choices, first.rejected, way.parts)
    stuck = tuple(RejectedKernel(choice.kernel, (way.fault,)) for choice in first.choices)
    return Selection(problem, first.arch, (), (*stuck, *first.rejected), way.parts)


@dataclass(frozen=True, slots=True)
class _StagePath:
    """A selection for each remaining stage.

    With a `fault` it is incomplete: the last stage has no choices, or a wanted kernel is unused.
    """

    parts: tuple[Selection, ...]
    fault: str = ""


@dataclass(frozen=True, slots=True)
class _Search:
    problem: Any
    execution: Execution
    select_one: Callable[[Any], Selection]
    wanted: tuple[Kernel, ...]

    def find_path(self, taken: tuple[Candidate, ...]) -> _StagePath:
        """The remaining stages after these choices; without a complete path, that of the best choices, with its
        fault."""
        problem = self._get_next_problem(taken)
        if problem is None:
            left = set(self.wanted) - {choice.kernel for choice in taken}
            return _StagePath((), "with it, no stage uses a kernel that is wanted" if left else "")
        found = _keep_wanted(self.select_one(problem), self.wanted)
        stuck: _StagePath | None = None
        passed: list[RejectedKernel] = []
        for choice in found.choices:
            fault = self._explain_unfit(problem, (*taken, choice))
            if not fault:
                rest = self.find_path((*taken, choice))
                if not rest.fault:
                    return _StagePath((_move_to_rejected(found, passed), *rest.parts))
                stuck = stuck or _StagePath((found, *rest.parts), rest.fault)
                fault = rest.fault
            passed.append(RejectedKernel(choice.kernel, (fault,)))
        missing = f"no kernel supports the following stage {len(taken) + 1}, {format_short_problem(problem)}"
        return stuck or _StagePath((_move_to_rejected(found, passed),), missing)

    def _get_next_problem(self, taken: tuple[Candidate, ...]) -> Any | None:
        return self.execution.next_stage(self.problem, tuple(choice.kernel.config for choice in taken))

    def _explain_unfit(self, problem: Any, taken: tuple[Candidate, ...]) -> str:
        """Why the last choice cannot be one of several kernels: they pass tensors on unchanged."""
        choice = taken[-1]
        if len(taken) == 1 and self._get_next_problem(taken) is None:
            return ""
        if choice.padded is not None:
            return "it would compute a padded problem, which is not possible in a problem of several kernels"
        wanted = self.execution.preparations(choice.kernel.config, problem)
        where = "which is not possible in a problem of several kernels"
        return f"it needs {wanted[0].tensor} prepared, {where}" if wanted else ""


def _move_to_rejected(found: Selection, passed: Sequence[RejectedKernel]) -> Selection:
    """Move skipped kernels to the rejected ones, before those that do not support the problem."""
    if not passed:
        return found
    gone = {rejection.kernel for rejection in passed}
    kept = tuple(choice for choice in found.choices if choice.kernel not in gone)
    return replace(found, choices=kept, rejected=(*passed, *found.rejected))


def _keep_wanted(found: Selection, wanted: Sequence[Kernel]) -> Selection:
    """Keep only the choices that are wanted kernels, if there are any."""
    kept = tuple(choice for choice in found.choices if choice.kernel in wanted)
    return replace(found, choices=kept) if kept else found


def _describe_unused(problem: Any, parts: Sequence[Selection], wanted: Sequence[Kernel]) -> str:
    """The wanted kernel that no stage uses, and the reason for each stage."""
    kernel = next(kernel for kernel in wanted if kernel not in [part.best.kernel for part in parts])
    lines = [f"{kernel.slug} is not used for any stage of {format_short_problem(problem)}"]
    for number, part in enumerate(parts, 1):
        reasons = [rejection.reasons for rejection in part.rejected if rejection.kernel == kernel]
        why = "; ".join(reasons[0]) if reasons else f"{part.best.kernel.slug} is used"
        lines.append(f"  stage {number}, {format_short_problem(part.problem)}: {why}")
    return "\n".join(lines)
