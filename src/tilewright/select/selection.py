"""What selection gives: kernels that can compute a problem, best first, and why the others cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, overload

from tilewright.arch.spec import Arch
from tilewright.base.errors import UnsupportedError
from tilewright.ops.kernel import Kernel
from tilewright.ops.problem_text import short_text

# What `kernel=` takes: a kernel or its name, or several, for a problem of several kernels.
Named = Kernel | str | Sequence[Kernel | str] | None
# How many refused kernels an error names: enough to see a pattern, few enough to read.
NEAREST = 3
Item_co = TypeVar("Item_co", covariant=True)


class Deferred(Sequence[Item_co]):
    """A sequence whose items are made when they are looked at: of a thousand kernels, mostly one is."""

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
            raise IndexError(f"place {place} of {self._count}")
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
class Choice:
    """A kernel that can compute the problem. `padded` is the larger problem it needs instead, if it needs one.

    `us` is how long it should take, and `terms` what that is made of, where the selector estimates that.
    """

    kernel: Kernel
    score: float  # higher is better; what it counts is up to the selector
    why: str
    padded: Any = None
    us: float | None = None
    terms: Mapping[str, float] = field(default_factory=dict)

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
class Step:
    """What one step of a selector did, or why it did nothing."""

    name: str
    what: str

    def __str__(self) -> str:
        return f"{self.name}: {self.what}"


@dataclass(frozen=True, slots=True)
class Ranking:
    """The candidates, best first, and how a selector came to that."""

    choices: Sequence[Choice]
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Selection:
    """Every kernel of the GPU, either among `choices`, best first, or among `rejected`, nearest first.

    For a problem of several kernels `parts` has the selection of each stage, and this is about the kernel to begin
    with. A stage's problem depends on the kernels taken before it. So where a stage has no choice, the parts end there.
    """

    problem: Any
    arch: str
    choices: Sequence[Choice]
    rejected: Sequence[Rejection]
    parts: tuple[Selection, ...] = ()
    steps: tuple[Step, ...] = ()

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

    def rank(self, problem: Any, arch: Arch, candidates: Sequence[Choice]) -> Ranking:
        """The candidates, best first, each with a score and why. They come ordered by priority and registration."""
