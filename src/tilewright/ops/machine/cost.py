"""What an op gives so that its kernels can be ranked before any is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.machine.c_numbers import CNumbers
from tilewright.ops.machine.numbers import Number

# Numbers of a problem or of a kernel by name, read as attributes: each a `Number`.
Facts = SimpleNamespace


@dataclass(frozen=True, slots=True)
class Use:
    """What a compiled kernel takes of a unit, as its code object says: of several device kernels the largest."""

    vgprs: int
    agprs: int
    sgprs: int
    lds_bytes: int
    scratch_bytes: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long a kernel takes for a problem, and what that is made of.

    `terms` are microseconds by name, each the time if that alone were to be done; `shape` are further numbers that
    tell how the work lies on the machine (blocks, rounds, how full the last one is).
    """

    us: Number
    terms: Mapping[str, Number]
    shape: Mapping[str, Number]


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """How an op's kernels are estimated. Names are the same for all problems and all kernels of the op.

    `estimate` and `features` are arithmetic of `numbers` alone, so that they serve one kernel, columns and C.
    """

    # Plain numbers of a problem (problem).
    problem_numbers: Callable[[Any], Mapping[str, float]]
    # Plain numbers of a kernel (config, arch, what its code object says or None); a flag is 0 or 1.
    kernel_numbers: Callable[[Any, Arch, Use | None], Mapping[str, float]]
    # The estimate from the numbers of problem and kernel (problem, kernel, arch).
    estimate: Callable[[Facts, Facts, Arch], Estimate]
    # What a learned model sees, by name (problem, kernel, estimate, arch). A change of names or meaning needs a new
    # `features_version`.
    features: Callable[[Facts, Facts, Estimate, Arch], Mapping[str, Number]]
    features_version: int = 1
    # `problem_numbers` in C; without it packs keep the order of their kernels.
    in_c: CNumbers | None = None
