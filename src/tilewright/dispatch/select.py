"""Which kernels can compute a problem, in which order to prefer them, and why the others cannot.

`select` is for what one kernel computes; `staging` puts these together for problems of several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright.arch.spec import Arch
from tilewright.base.errors import UnsupportedError
from tilewright.ops import op_named
from tilewright.ops.kernel import Kernel
from tilewright.ops.op import Op
from tilewright.ops.problem_text import problem_text, short_text
from tilewright.ops.rule import violations

# What `kernel=` takes: a kernel or its name, or several, for a problem of several kernels.
Named = Kernel | str | Sequence[Kernel | str] | None
# How many refused kernels an error names: enough to see a pattern, few enough to read.
NEAREST = 3


@dataclass(frozen=True, slots=True)
class Choice:
    """A kernel that can compute the problem. `padded` is the larger problem it needs instead, if it needs one."""

    kernel: Kernel
    score: float  # higher is better; what it counts is up to the selector
    why: str
    padded: Any = None

    def __str__(self) -> str:
        return f"{self.kernel.slug}: {self.why}"


@dataclass(frozen=True, slots=True)
class Rejection:
    """A kernel that cannot, with all reasons. `padding_helps`: it could compute a padded problem."""

    kernel: Kernel
    reasons: tuple[str, ...]
    padding_helps: bool = False

    def __str__(self) -> str:
        return f"{self.kernel.slug}: {'; '.join(self.reasons)}"


@dataclass(frozen=True, slots=True)
class Selection:
    """Every kernel of the GPU, either among `choices`, best first, or among `rejected`, nearest first.

    For a problem of several kernels `parts` has the selection of each stage, and this is about the kernel to begin
    with. A stage's problem depends on the kernels taken before it. So where a stage has no choice, the parts end there.
    """

    problem: Any
    arch: str
    choices: tuple[Choice, ...]
    rejected: tuple[Rejection, ...]
    parts: tuple[Selection, ...] = ()

    @property
    def stages(self) -> tuple[Selection, ...]:
        """A selection for each launch; the best choices of all are what is run."""
        return self.parts or (self,)

    @property
    def best(self) -> Choice:
        """The first choice; `UnsupportedError` with the nearest kernels if there is none, or none for a later stage."""
        if self.choices:
            return self.choices[0]
        raise UnsupportedError(self._missing_stage() if self.parts else self._refusal())

    def __len__(self) -> int:
        return len(self.choices)

    def __iter__(self) -> Iterator[Choice]:
        return iter(self.choices)

    def __str__(self) -> str:
        if self.parts:
            missing = "" if self.choices else f", and no kernel for stage {len(self.parts)}"
            lines = [f"{short_text(self.problem)} on {self.arch}: {len(self.parts)} stages{missing}"]
            return "\n".join([*lines, *(f"stage {number}: {part}" for number, part in enumerate(self.parts, 1))])
        lines = [f"{short_text(self.problem)} on {self.arch}: {len(self.choices)} can, {len(self.rejected)} cannot"]
        lines += [f"  {rank}. {choice}" for rank, choice in enumerate(self.choices, 1)]
        lines += [f"  –  {rejection}" for rejection in self.rejected]
        return "\n".join(lines)

    def _missing_stage(self) -> str:
        *before, last = self.parts
        after = " after " + ", ".join(part.best.kernel.slug for part in before) if before else ""
        return f"{short_text(self.problem)} lacks a kernel for stage {len(self.parts)}{after}: {last._refusal()}"

    def _refusal(self) -> str:
        count = len(self.rejected)
        kernels = f"{count} kernel{'s' if count != 1 else ''} for {self.arch}"
        named = [f"  {rejection}" for rejection in self.rejected[:NEAREST]]
        more = [f"  … and {count - NEAREST} more"] if count > NEAREST else []
        help_ = " With pad=True a larger problem is computed and cut: some of these kernels can do that."
        paddable = any(rejection.padding_helps for rejection in self.rejected)
        return "\n".join(
            [
                f"none of {kernels} can compute {short_text(self.problem)}." + (help_ if paddable else ""),
                *named,
                *more,
            ]
        )


class Selector(Protocol):
    """What puts kernels into an order. It gets those that can compute the problem, and may leave none out unsaid."""

    def rank(self, problem: Any, arch: Arch, candidates: Sequence[Choice]) -> tuple[Choice, ...]:
        """The candidates, best first, each with a score and why. They come ordered by priority and registration."""


@dataclass(frozen=True, slots=True)
class FirstFit:
    """The order in which the candidates come: unpadded first, higher priority first, then as registered."""

    def rank(self, problem: Any, arch: Arch, candidates: Sequence[Choice]) -> tuple[Choice, ...]:  # noqa: ARG002
        return tuple(candidates)


FIRST_FIT = FirstFit()


def select(
    problem: Any,
    arch: Arch,
    kernels: Sequence[Kernel],
    priorities: Mapping[Kernel, int] | None = None,
    *,
    pad: bool = False,
    selector: Selector = FIRST_FIT,
    unusable: Mapping[Kernel, str] | None = None,
) -> Selection:
    """Rank the kernels of a GPU for a problem. `unusable` names kernels that are out for another reason, with it."""
    out = unusable or {}
    ordered = _by_priority(kernels, priorities or {})
    fitting: list[Choice] = []
    padded: list[Choice] = []
    rejected: list[Rejection] = []
    for kernel, priority in ordered:
        said = f"priority {priority}, " if priority else ""
        reasons, larger = _judge(kernel, problem, arch)
        if kernel in out:
            rejected.append(Rejection(kernel, (out[kernel], *reasons)))
        elif not reasons:
            fitting.append(Choice(kernel, float(priority), f"{said}supports the problem as it is"))
        elif larger is not None and pad:
            fault = "; ".join(reasons)
            why = f"{said}supports {problem_text(larger, kernel.config)}, not this one: {fault}"
            padded.append(Choice(kernel, float(priority), why, larger))
        else:
            rejected.append(Rejection(kernel, reasons, larger is not None))
    choices = selector.rank(problem, arch, (*fitting, *padded))
    # Where padding would help, a kernel is near; else the fewer reasons, the nearer. Sorting keeps the order of equals.
    rejected.sort(key=lambda rejection: (not rejection.padding_helps, len(rejection.reasons)))
    return Selection(problem, arch.name, choices, tuple(rejected))


def rank(
    problem: Any, arch: Arch, kernels: Sequence[Kernel], priorities: Mapping[Kernel, int] | None = None
) -> tuple[Choice, ...]:
    """The kernels that can compute a problem as it is, best first: first fit."""
    return select(problem, arch, kernels, priorities).choices


def _by_priority(kernels: Sequence[Kernel], priorities: Mapping[Kernel, int]) -> list[tuple[Kernel, int]]:
    """Higher priority first; equal ones as they were registered."""
    numbered = [(kernel, priorities.get(kernel, 0)) for kernel in kernels]
    return sorted(numbered, key=lambda pair: -pair[1])


def _judge(kernel: Kernel, problem: Any, arch: Arch) -> tuple[tuple[str, ...], Any]:
    """Why a kernel cannot compute a problem, and the larger problem that it can; (), None when it can."""
    op = op_named(kernel.op)
    if type(problem) is not op.problem_type:
        return (f"it is a kernel of {op.name}, and the problem a {type(problem).__qualname__}",), None
    reasons = tuple(str(fault) for fault in violations(op.fit_rules, kernel.config, problem, arch))
    return reasons, _padded(op, kernel, problem, arch) if reasons else None


def _padded(op: Op, kernel: Kernel, problem: Any, arch: Arch) -> Any:
    """The larger problem that the op proposes, if the kernel really supports it."""
    larger = op.execution.padded(kernel.config, problem, arch) if op.execution is not None else None
    if larger is None or violations(op.fit_rules, kernel.config, larger, arch):
        return None
    return larger
