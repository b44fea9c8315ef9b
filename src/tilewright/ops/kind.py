"""A kind of kernel: one value with the answers to all questions about one sort of an op's kernels.

GEMM's variants, the directions of a convolution and the kernels of attention are kinds. One config class has the fields
of all kinds of an op; a config may set only those optional fields that its kind has. Ops derive their own class from
`Kind`, with the facts that only they need.
"""

from __future__ import annotations

import functools
import importlib
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tilewright.arch.spec import Arch
from tilewright.ops.rule import Rule

if TYPE_CHECKING:
    from tilewright.ops.kernel import Kernel


def use_no_lds(config: object, arch: Arch) -> int:  # noqa: ARG001
    """For kernels that use registers only."""
    return 0


def use_no_matrix_instructions(config: object, arch: Arch) -> tuple[str, ...]:  # noqa: ARG001
    """For kernels without a GEMM."""
    return ()


def compiles_fast(config: object) -> bool:  # noqa: ARG001
    """For kernels without unrolled matrix operations."""
    return True


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Kind:
    """One sort of kernel.

    `context` returns the variables of the op's template. `fields` are the optional fields that its configs may set,
    None for all; the op's rules reject others. `rules` and `fit_rules` are those of this kind only, in addition to the
    op's. `launchers` are the files that its sources include after the op's headers, by name.
    """

    name: str
    doc: str
    context: Callable[[Kernel], Mapping[str, Any]]
    fields: tuple[str, ...] | None = None
    rules: tuple[Rule, ...] = ()
    fit_rules: tuple[Rule, ...] = ()
    launchers: tuple[str, ...] = ()
    lds_bytes: Callable[[Any, Arch], int] = use_no_lds
    # The matrix instruction of each GEMM of a config's kernels; their code must contain exactly these. An empty
    # string for a GEMM that the GPU has no instruction for.
    matrix_instructions: Callable[[Any, Arch], tuple[str, ...]] = use_no_matrix_instructions
    # Whether a config's kernel compiles fast enough for large samples.
    is_small: Callable[[Any], bool] = compiles_fast

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def has_field(self, name: str) -> bool:
        """Whether configs of this kind may set an optional field."""
        return self.fields is None or name in self.fields


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def combine_rules(shared: Iterable[Rule], of_kinds: Mapping[str, Iterable[Rule]], field: str) -> tuple[Rule, ...]:
    """Rules of all kinds and rules of single kinds, by the kinds' names, in the order of their codes.

    A rule of some kinds is limited to them by `field`, the config field with the name of the kind. Codes must be
    unique.
    """
    owners: dict[int, tuple[Rule, list[str]]] = {}
    for name, rules in of_kinds.items():
        for rule in rules:
            owners.setdefault(id(rule), (rule, []))[1].append(name)
    limited = [rule.limit(field, tuple(names)) for rule, names in owners.values()]
    found = sorted((*shared, *limited), key=lambda rule: rule.code)
    for rule, following in itertools.pairwise(found):
        if rule.code == following.code:
            raise ValueError(f"rule code {rule.code} is used twice: for {rule.slug} and for {following.slug}")
    return tuple(found)


def index_kinds(kinds: Iterable[N]) -> Mapping[str, N]:
    """Kinds by name. Two kinds with one name are an error."""
    found: dict[str, N] = {}
    for kind in kinds:
        if kind.name in found:
            raise ValueError(f"two kinds are called {kind.name}")
        found[kind.name] = kind
    return found


@functools.cache
def index_package(package: str) -> Mapping[str, Any]:
    """The `KINDS` of a package by name. It is imported on the first call, since kinds use the functions of their op."""
    return index_kinds(importlib.import_module(package).KINDS)
