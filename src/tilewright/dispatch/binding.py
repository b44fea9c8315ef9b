"""Binds a selection: its kernels with their problems, and the launch plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilewright.dispatch.call_sequence import CallSequence
from tilewright.dispatch.launch import BoundKernel, Functions
from tilewright.dispatch.plan import Plan, build_stage, get_execution
from tilewright.ops.kernel import Kernel
from tilewright.select.selection import Selection

if TYPE_CHECKING:
    from tilewright.runtime.device import Device


def bind_selection(
    selection: Selection, device: Device, functions: Callable[[Kernel], Functions]
) -> tuple[Plan, BoundKernel | CallSequence]:
    """The best choices as a plan, and the bound call that launches it; `UnsupportedError` if there is no choice."""
    execution = get_execution(selection.best.kernel.op)
    stages, calls = [], []
    for part in selection.stages:
        choice = part.best
        launched = part.problem if choice.padded is None else choice.padded
        calls.append(BoundKernel(device, choice.kernel, functions(choice.kernel), execution, launched))
        stages.append(build_stage(choice, part.problem, calls[-1].workspace_bytes))
    if not selection.parts:
        return Plan(selection.problem, device.name, selection.best.why, tuple(stages)), calls[0]
    tensors = [execution.tensors(stage.problem) for stage in stages]
    whole = CallSequence(calls, execution.tensors(selection.problem), tensors)
    why = ", ".join(f"stage {number} {part.best.why}" for number, part in enumerate(selection.parts, 1))
    return Plan(selection.problem, device.name, why, tuple(stages), whole.intermediates), whole
