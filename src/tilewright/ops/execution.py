"""How kernels of an op are called and checked: the interface between an op, dispatch and verification."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tilewright.arch.spec import Arch
from tilewright.ops.call_struct import CallStruct
from tilewright.ops.tolerance import Tolerance

P = TypeVar("P")  # a problem


def import_on_call(module: str, name: str) -> Callable[..., Any]:
    """A function whose module is imported on its first call. Functions that work on arrays import NumPy."""

    def call(*arguments: object, **options: object) -> Any:
        return getattr(importlib.import_module(module), name)(*arguments, **options)

    return call


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a problem: its logical shape, and its strides in elements.

    An output is `updated` if the kernel reads its old contents and changes them in place.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    output: bool = False
    updated: bool = False


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """A tensor that some problems of an op have: whether a problem has it, and the tensor.

    Slots of one name differ in being an output, or one that is updated.
    """

    name: str
    output: bool
    updated: bool
    is_present: Callable[[Any], bool]
    build: Callable[[Any], Tensor]


@dataclass(frozen=True, slots=True)
class Preparation:
    """A change to an input that a kernel requires: `apply` maps a NumPy array to the array to upload."""

    tensor: str
    what: str  # one sentence for the user
    apply: Callable[[Any], Any]


def plan_one_kernel(problem: P, chosen: tuple[object, ...]) -> P | None:
    """The only stage of a problem that one kernel computes: the problem itself. None after it."""
    return None if chosen else problem


def _no_preparations(config: object, problem: object) -> tuple[Preparation, ...]:  # noqa: ARG001
    return ()


def _no_padding(config: object, problem: object, arch: Arch) -> None:  # noqa: ARG001
    return None


def _whole_config(config: Hashable, problem: object) -> Hashable:  # noqa: ARG001
    return config


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How kernels of an op are called and checked. Problems and configs are those of the op.

    Tensors are always in the order of `tensors`. Functions that take or return arrays use `import_on_call`.
    """

    tensors: Callable[[Any], tuple[Tensor, ...]]
    # The problem with the actual strides of its tensors, by name. An error if the layout does not allow them.
    with_strides: Callable[[Any, Mapping[str, tuple[int, ...]]], Any]
    # The op's C struct for a problem, without pointers.
    arguments: Callable[[Any], ctypes.Structure]
    # For a problem, the function that writes the addresses of its tensors into this struct (struct, addresses).
    point: Callable[[Any], Callable[[Any, Sequence[int]], None]]
    # The problem of the next kernel to launch, or None if there is none (problem, configs of the kernels chosen so
    # far). Tensors of stages are matched by name. Tensors that the problem does not have are allocated by the plan.
    next_stage: Callable[[Any, tuple[Any, ...]], Any | None] = plan_one_kernel
    # The changes to its inputs that a kernel requires (config, problem); empty for most kernels.
    preparations: Callable[[Any, Any], tuple[Preparation, ...]] = _no_preparations
    # The nearest larger problem that a kernel supports, if it does not support this one (config, problem, arch).
    padded: Callable[[Any, Any, Arch], Any | None] = _no_padding
    # Random inputs of a problem, and old contents of updated outputs, as NumPy arrays by name (problem, seed, arch).
    inputs: Callable[[Any, int, Arch], Mapping[str, Any]]
    # Outputs in float64 (or exact integers) by name, from inputs by name (problem, inputs, arch).
    reference: Callable[[Any, Mapping[str, Any], Arch], Mapping[str, Any]]
    # The allowed error of each element of each output (config, problem, inputs, reference outputs, arch). For a
    # problem of several kernels the first argument is the tuple of their configs.
    tolerance: Callable[[Any, Any, Mapping[str, Any], Mapping[str, Any], Arch], Mapping[str, Tolerance]]
    # The part of a config that the tolerance depends on (config, problem): kernels with an equal part share the
    # tolerance. By default the whole config.
    tolerance_basis: Callable[[Any, Any], Hashable] = _whole_config
    # Problems that test a kernel's edge cases: sizes of 1, primes, around a tile, tails, splits (config, arch).
    trials: Callable[[Any, Arch], tuple[Any, ...]]
    # The declaration of this struct. With it, packs have the op's problems, fit rules and plans in C and C++; then
    # `tensors`, `next_stage` and the fit rules must be translatable (`ops.in_c`).
    call: CallStruct | None = None
    # All tensors that problems can have, one by one, for an op whose problems have many different lists of them. Lists
    # of names are in the order of each problem.
    slots: Callable[[], tuple[tuple[TensorSlot, ...], ...]] | None = None
    # A C++ header with the function `compute_reference` for programs that use packs.
    host_reference: Path | None = None


def make_execution(
    call: CallStruct,
    reference: str,
    *,
    tensors: Callable[[Any], tuple[Tensor, ...]],
    with_strides: Callable[[Any, Mapping[str, tuple[int, ...]]], Any],
    tolerance_basis: Callable[[Any, Any], Hashable] | None = None,
    padded: Callable[[Any, Any, Arch], Any | None] = _no_padding,
) -> Execution:
    """Make the execution of an op whose problems need one kernel each.

    The module `reference` has all functions that take or return arrays: `make_inputs`, `compute_reference`,
    `compute_tolerance` and `list_trials`, and `tolerance_basis` if it is not given.
    """
    return Execution(
        tensors=tensors,
        with_strides=with_strides,
        arguments=call.make_arguments,
        point=call.make_address_setter,
        call=call,
        padded=padded,
        inputs=import_on_call(reference, "make_inputs"),
        reference=import_on_call(reference, "compute_reference"),
        tolerance=import_on_call(reference, "compute_tolerance"),
        tolerance_basis=tolerance_basis or import_on_call(reference, "tolerance_basis"),
        trials=import_on_call(reference, "list_trials"),
    )
