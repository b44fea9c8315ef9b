"""How kernels of an op are called and checked: what an op gives to dispatch and verification."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.ops.tolerance import Tolerance


def imported_when_called(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that is imported when it is first called: one that works on arrays imports NumPy."""

    def call(*arguments: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*arguments, **options)

    return call


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a problem: its logical shape, and where its elements lie (strides in elements).

    An output is `updated` if its old contents count: the kernel changes it in place.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    output: bool = False
    updated: bool = False


@dataclass(frozen=True, slots=True)
class Preparation:
    """What must be done to an input before a kernel can take it: `apply` maps a NumPy array to the array to upload."""

    tensor: str
    what: str  # a sentence for people
    apply: Callable[[Any], Any]


def one_kernel(problem: Any, chosen: tuple[Any, ...]) -> Any | None:
    """The stages of a problem that one kernel computes: the problem itself, then nothing more."""
    return None if chosen else problem


def _no_preparations(config: Any, problem: Any) -> tuple[Preparation, ...]:  # noqa: ARG001
    return ()


def _no_padding(config: Any, problem: Any, arch: Arch) -> None:  # noqa: ARG001
    return None


def _whole_config(config: Any, problem: Any) -> Hashable:  # noqa: ARG001
    return config  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How kernels of an op are called and checked. Problems and configs are those of the op.

    Tensors are always in the order of `tensors`. Functions that take or give arrays are `imported_when_called`.
    """

    tensors: Callable[[Any], tuple[Tensor, ...]]
    # The problem with the strides that tensors really have, by name; an error where the layout cannot have them.
    with_strides: Callable[[Any, Mapping[str, tuple[int, ...]]], Any]
    # The C struct of the op's abi.h for a problem, without pointers.
    arguments: Callable[[Any], ctypes.Structure]
    # For a problem, the function that puts the addresses of its tensors into such a struct (struct, addresses).
    point: Callable[[Any], Callable[[Any, Sequence[int]], None]]
    # The problem of the next kernel to launch, or None if there is none (problem, configs of the kernels chosen so
    # far). Tensors of stages are matched by name. Those that the whole problem lacks live in memory of the plan.
    next_stage: Callable[[Any, tuple[Any, ...]], Any | None] = one_kernel
    # What a kernel needs done to its inputs (config, problem); empty for most.
    preparations: Callable[[Any, Any], tuple[Preparation, ...]] = _no_preparations
    # The nearest larger problem that a kernel supports, where it does not support this one (config, problem, arch).
    padded: Callable[[Any, Any, Arch], Any | None] = _no_padding
    # Random inputs of a problem, and old contents of what it updates, as NumPy arrays by name (problem, seed, arch).
    inputs: Callable[[Any, int, Arch], Mapping[str, Any]]
    # Outputs in float64 (or exact integers) by name, from inputs by name (problem, inputs, arch).
    reference: Callable[[Any, Mapping[str, Any], Arch], Mapping[str, Any]]
    # How far elements of each output may be off (config, problem, inputs, reference outputs, arch). For a problem of
    # several kernels the first argument is the tuple of their configs.
    tolerance: Callable[[Any, Any, Mapping[str, Any], Mapping[str, Any], Arch], Mapping[str, Tolerance]]
    # What of a config the tolerance depends on (config, problem): kernels that are alike in it share one. All of it,
    # unless an op says less.
    tolerance_basis: Callable[[Any, Any], Hashable] = _whole_config
    # Problems that try a kernel's edges: sizes of 1, primes, around a tile, tails, splits (config, arch).
    trials: Callable[[Any, Arch], tuple[Any, ...]]
