"""Selections: kernels that support a problem, best first, and rejected ones with reasons; and the simplest selector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, overload

from tilewright.arch.spec import Arch
from tilewright.base.errors import UnsupportedError
from tilewright.ops.kernel import Kernel
from tilewright.ops.problem_text import format_short_problem

# The argument `kernel=`: a kernel or its name, or several for a problem that needs several.
KernelArg = Kernel | str | Sequence[Kernel | str] | None
# The step of a selection that keeps the given order.
FIRST_FIT_STEP = "first fit"
# Number of rejected kernels in an error message.
NEAREST = 3
Item_co = TypeVar("Item_co", covariant=True)


class LazySequence(Sequence[Item_co]):
    """A sequence whose items are created on access: of a thousand kernels, usually only one is used."""

    def __init__(self, count: int, make: Callable[[int], Item_co]) -> None:
        self._count = count
        self._make = make
        self._made: dict[int, Item_co] = {}

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Item_co: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Item_co, ...]: ...
    def __getitem__(self, place: int | slice) -> Item_co | tuple[Item_co, ...]:
        if isinstance(place, slice):
            return tuple(self[each] for each in range(*place.indices(self._count)))
        if not -self._count <= place < self._count:
            raise IndexError(f"index {place} of {self._count}")
        place %= self._count
        found = self._made.get(place)
        if found is None:
            found = self._made[place] = self._make(place)
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel that supports the problem. `padded` is the larger problem that it computes instead, if it must.

    `us` is the expected time and `terms` its breakdown, if the selector estimates them.
    """

    kernel: Kernel
    score: float  # higher is better; the unit depends on the selector
    why: str
    padded: Any = None
    us: float | None = None
    terms: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kernel.slug}: {self.why}"


@dataclass(frozen=True, slots=True)
class RejectedKernel:
    """A kernel that does not support the problem, with all reasons. `padding_helps`: it supports a padded one."""

    kernel: Kernel
    reasons: tuple[str, ...]
    padding_helps: bool = False

    def __str__(self) -> str:
        return f"{self.kernel.slug}: {'; '.join(self.reasons)}"


@dataclass(frozen=True, slots=True)
class SelectorStep:
    """The effect of one step of a selector, or the reason why it was skipped."""

    name: str
    what: str

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"


@dataclass(frozen=True, slots=True)
class Ranking:
    """The candidates, best first, and the steps of the selector."""

    choices: Sequence[Candidate]
    steps: tuple[SelectorStep, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Selection:
    """Every kernel of the GPU, either among `choices`, best first, or among `rejected`, nearest first.

    If a problem needs several kernels, `parts` has the selection of each stage, and `choices` are those of the first
    stage. A stage's problem depends on the kernels chosen before it, so the parts end at a stage without choices.
    """

    problem: Any
    arch: str
    choices: Sequence[Candidate]
    rejected: Sequence[RejectedKernel]
    parts: tuple[Selection, ...] = ()
    steps: tuple[SelectorStep, ...] = ()

    @property
    def stages(self) -> tuple[Selection, ...]:
        """A selection for each launch; the best choice of each is run."""
        return self.parts or (self,)

    @property
    def best(self) -> Candidate:
        """The first choice; `UnsupportedError` with the nearest kernels if this or a later stage has none."""
        if self.choices:
            return self.choices[0]
        raise UnsupportedError(self._describe_missing_stage() if self.parts else self._describe_rejections())

    def __len__(self) -> int:
        return len(self.choices)

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self.choices)

    def __repr__(self) -> str:
        """One line; `str` has every kernel and its reason."""
        best = f"best {self.choices[0].kernel.slug}" if self.choices else "no kernel supports it"
        counts = f"{len(self.choices):,} supported, {len(self.rejected):,} rejected"
        stages = f"{len(self.parts)} stages, the first with " if self.parts else ""
        return f"Selection({format_short_problem(self.problem)} on {self.arch}: {stages}{counts}; {best})"

    def __str__(self) -> str:
        if self.parts:
            missing = "" if self.choices else f", and no kernel for stage {len(self.parts)}"
            lines = [f"{format_short_problem(self.problem)} on {self.arch}: {len(self.parts)} stages{missing}"]
            return "\n".join([*lines, *(f"stage {number}: {part}" for number, part in enumerate(self.parts, 1))])
        counts = f"{len(self.choices)} supported, {len(self.rejected)} rejected"
        lines = [f"{format_short_problem(self.problem)} on {self.arch}: {counts}"]
        lines += [f"  {rank}. {choice}" for rank, choice in enumerate(self.choices, 1)]
        lines += [f"  –  {rejection}" for rejection in self.rejected]
        return "\n".join(lines)

    def _describe_missing_stage(self) -> str:
        *before, last = self.parts
        after = " after " + ", ".join(part.best.kernel.slug for part in before) if before else ""
        stage = f"stage {len(self.parts)}{after}"
        return f"{format_short_problem(self.problem)} lacks a kernel for {stage}: {last._describe_rejections()}"

    def _describe_rejections(self) -> str:
        count = len(self.rejected)
        kernels = f"{count} kernel{'s' if count != 1 else ''} for {self.arch}"
        named = [f"  {rejection}" for rejection in self.rejected[:NEAREST]]
        more = [f"  … and {count - NEAREST} more"] if count > NEAREST else []
        help_ = " Some of these kernels support a larger problem, whose result is cut: pass pad=True."
        paddable = any(rejection.padding_helps for rejection in self.rejected)
        return "\n".join(
            [
                f"none of {kernels} supports {format_short_problem(self.problem)}." + (help_ if paddable else ""),
                *named,
                *more,
            ]
        )


class Selector(Protocol):
    """Ranks the kernels that support a problem. Must return every candidate."""

    def rank(self, problem: Any, arch: Arch, candidates: Sequence[Candidate]) -> Ranking:
        """The candidates, best first, each with a score and a reason. The input is ordered by priority and
        registration."""


@dataclass(frozen=True, slots=True)
class FirstFit:
    """Keeps the order of the candidates: unpadded first, then higher priority, then order of registration."""

    def rank(self, problem: Any, arch: Arch, candidates: Sequence[Candidate]) -> Ranking:  # noqa: ARG002
        return Ranking(candidates, (SelectorStep(FIRST_FIT_STEP, "priority, then the order of registration"),))


FIRST_FIT = FirstFit()
