"""How kernels of `axpb` are called and checked, and how a whole problem is made of two of them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError
from tilewright.ops.execution import Execution, Tensor
from tilewright.ops.tolerance import Tolerance
from tilewright_axpb.problem import ADD, SCALE, WHOLE, Problem

# For which the whole problem has room between its steps.
MOST_PARTS = 4


class Args(ctypes.Structure):
    """`tw_axpb_args` of abi.h."""

    _fields_ = (
        ("size", ctypes.c_uint64),
        *((name, ctypes.c_void_p) for name in ("x", "b", "parts", "y", "z")),
        ("n", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("factor", ctypes.c_double),
        ("onto", ctypes.c_int64),
    )


def _tensors(problem: Problem) -> tuple[Tensor, ...]:
    def line(name: str, **kind: bool) -> Tensor:
        return Tensor(name, "fp32", (problem.n,), (1,), **kind)

    shape, strides = (problem.count, problem.n), (problem.n, 1)
    results = [line("y", output=True, updated=problem.onto), *([line("z", output=True)] if problem.both else [])]
    if problem.step == SCALE:
        return line("x"), Tensor("parts", "fp32", shape, strides, output=True)
    if problem.step == ADD:
        return Tensor("parts", "fp32", shape, strides), line("b"), *results
    return line("x"), line("b"), *results


def _next_stage(problem: Problem, chosen: tuple[Any, ...]) -> Problem | None:
    if problem.step != WHOLE:
        return None if chosen else problem
    if not chosen:
        return Problem(SCALE, problem.n, problem.factor, count=MOST_PARTS)
    return replace(problem, step=ADD, count=chosen[0].parts) if len(chosen) == 1 else None


def _with_strides(problem: Problem, strides: Mapping[str, tuple[int, ...]]) -> Problem:
    raise InvalidValueError(f"tensors of axpb have no gaps: {', '.join(strides)}")


def _arguments(problem: Problem) -> Args:
    size = ctypes.sizeof(Args)
    return Args(size=size, n=problem.n, count=problem.count, factor=problem.factor, onto=problem.onto)


def _point(problem: Problem) -> Callable[[Any, Sequence[int]], None]:
    names = [tensor.name for tensor in _tensors(problem)]

    def put(args: Any, addresses: Sequence[int]) -> None:
        for name, address in zip(names, addresses, strict=True):
            setattr(args, name, address)

    return put


def _inputs(problem: Problem, seed: int, _: Arch) -> Mapping[str, Any]:
    import numpy as np

    draw = np.random.default_rng(seed)
    wanted = [tensor for tensor in _tensors(problem) if not tensor.output or tensor.updated]
    found = {tensor.name: draw.integers(-99, 99, tensor.shape).astype(np.float32) for tensor in wanted}
    for values in found.values():
        values[..., 0] = -np.inf
    return found


def _reference(problem: Problem, inputs: Mapping[str, Any], _: Arch) -> Mapping[str, Any]:
    import numpy as np

    wide = {name: values.astype(np.float64) for name, values in inputs.items()}
    if problem.step == SCALE:
        rest = np.zeros((problem.count - 1, problem.n))
        return {"parts": np.concatenate([problem.factor * wide["x"][None], rest])}
    products = problem.factor * wide["x"] if problem.step == WHOLE else wide["parts"].sum(axis=0)
    y = products + wide["b"] + (wide["y"] if problem.onto else 0.0)
    return {"y": y, "z": -y} if problem.both else {"y": y}


def _tolerance(
    config: Any, problem: Problem, inputs: Mapping[str, Any], expected: Mapping[str, Any], _: Arch
) -> Mapping[str, Any]:
    import numpy as np

    configs = config if problem.step == WHOLE else (config,)
    assert [each.step for each in configs] == ([SCALE, ADD] if problem.step == WHOLE else [problem.step])
    exact = {name: np.zeros(values.shape) for name, values in expected.items()}  # whole numbers
    return {name: Tolerance(none, none) for name, none in exact.items()}


def _trials(config: Any, _: Arch) -> tuple[Problem, ...]:
    sizes = (1, config.threads, config.threads + 1)
    return tuple(Problem(config.step, n, count=config.parts) for n in sizes)


EXECUTION = Execution(
    tensors=_tensors,
    with_strides=_with_strides,
    arguments=_arguments,
    point=_point,
    next_stage=_next_stage,
    inputs=_inputs,
    reference=_reference,
    tolerance=_tolerance,
    trials=_trials,
)
