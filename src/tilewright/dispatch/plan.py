"""Launch plans: the kernels for a problem, the launched problems, and the changes to tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import InvalidValueError
from tilewright.dispatch.tensors import format_shape
from tilewright.ops import find_op
from tilewright.ops.execution import Execution, Preparation, Tensor
from tilewright.ops.kernel import Kernel
from tilewright.ops.problem_text import format_problem
from tilewright.select.selection import Candidate


@dataclass(frozen=True, slots=True)
class ResizedTensor:
    """A tensor that is larger in the launch than in the requested problem."""

    tensor: str
    asked: tuple[int, ...]
    launched: tuple[int, ...]
    output: bool

    def __str__(self) -> str:
        if self.output:
            return f"{self.tensor} cut from {format_shape(self.launched)} to {format_shape(self.asked)}"
        return f"{self.tensor} padded from {format_shape(self.asked)} to {format_shape(self.launched)} with zeros"


@dataclass(frozen=True, slots=True)
class Padding:
    """A larger problem is computed instead of the requested one; the result is cut."""

    asked: Any
    tensors: tuple[ResizedTensor, ...]

    def __str__(self) -> str:
        return ", ".join(str(tensor) for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class Stage:
    """One launch: a kernel, its problem, preparations, padding and workspace."""

    kernel: Kernel
    problem: Any  # as launched
    preparations: tuple[Preparation, ...]
    padding: Padding | None
    workspace_bytes: int

    def describe(self) -> str:
        lines = [self.kernel.slug, f"  problem      {format_problem(self.problem, self.kernel.config)}"]
        if self.padding is not None:
            lines.append(f"  padding      {self.padding}")
        lines += [f"  preparation  {preparation.what}" for preparation in self.preparations]
        if self.workspace_bytes:
            lines.append(f"  workspace    {self.workspace_bytes:,} bytes")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Intermediate:
    """A tensor that one stage writes for a later one, in memory of the plan."""

    tensor: Tensor
    nbytes: int

    def __str__(self) -> str:
        shape = format_shape(self.tensor.shape)
        return f"{self.tensor.name}, {shape} of {self.tensor.dtype}, {self.nbytes:,} bytes"


@dataclass(frozen=True, slots=True)
class Plan:
    """All launches for a problem on a device, in order, and the tensors between them."""

    problem: Any  # as requested
    device: str
    why: str
    stages: tuple[Stage, ...]
    intermediates: tuple[Intermediate, ...] = ()

    @property
    def launched(self) -> Any:
        """The problem whose tensors the launches use: the padded one if padding is needed."""
        first = self.stages[0]
        return self.problem if first.padding is None else first.problem

    @property
    def preparations(self) -> tuple[Preparation, ...]:
        return tuple(preparation for stage in self.stages for preparation in stage.preparations)

    def describe(self) -> str:
        """The plan as text: kernels with reasons, padding, preparations, workspaces and intermediate tensors."""
        first = self.stages[0]
        alone = len(self.stages) == 1 and self.launched == first.problem
        asked = format_problem(self.problem, first.kernel.config if alone else None)
        lines = [f"{asked} on {self.device}: {self.why}"]
        lines += [f"{number}. {stage.describe()}" for number, stage in enumerate(self.stages, 1)]
        lines += [f"between  {intermediate}" for intermediate in self.intermediates]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.describe()


def get_execution(op: str) -> Execution:
    """The call interface of an op; an error for an op that can only be built."""
    found = find_op(op).execution
    if found is None:
        raise InvalidValueError(f"kernels of {op} can be built but not run: the op has no `execution`")
    return found


def build_stage(choice: Candidate, problem: Any, workspace_bytes: int) -> Stage:
    """The launch of a selected kernel."""
    execution = get_execution(choice.kernel.op)
    launched = problem if choice.padded is None else choice.padded
    padding = None if choice.padded is None else _build_padding(execution, problem, launched)
    preparations = execution.preparations(choice.kernel.config, launched)
    return Stage(choice.kernel, launched, preparations, padding, workspace_bytes)


def _build_padding(execution: Execution, asked: Any, launched: Any) -> Padding:
    pairs = zip(execution.tensors(asked), execution.tensors(launched), strict=True)
    resized = [ResizedTensor(a.name, a.shape, b.shape, a.output) for a, b in pairs if a.shape != b.shape]
    return Padding(asked, tuple(resized))
