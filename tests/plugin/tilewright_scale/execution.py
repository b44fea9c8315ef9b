"""How kernels of `scale` are called and checked."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewright.arch.spec import Arch
from tilewright.base.errors import InvalidValueError
from tilewright.ops.execution import Execution, Preparation, Tensor
from tilewright.ops.tolerance import Tolerance
from tilewright_scale.problem import Problem


class Args(ctypes.Structure):
    """`tw_scale_args` of abi.h."""

    _fields_ = (
        ("size", ctypes.c_uint64),
        ("x", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        ("n", ctypes.c_int64),
        ("stride_x", ctypes.c_int64),
        ("stride_y", ctypes.c_int64),
        ("workspace", ctypes.c_void_p),
        ("workspace_size", ctypes.c_uint64),
    )


def _tensors(problem: Problem) -> tuple[Tensor, ...]:
    return (
        Tensor("x", problem.dtype, (problem.n,), (problem.stride_x,)),
        Tensor("y", problem.dtype, (problem.n,), (problem.stride_y,), output=True),
    )


def _with_strides(problem: Problem, strides: Mapping[str, tuple[int, ...]]) -> Problem:
    return replace(problem, **{f"stride_{name}": stride for name, (stride,) in strides.items()})


def _arguments(problem: Problem) -> Args:
    size = ctypes.sizeof(Args)
    return Args(size=size, n=problem.n, stride_x=problem.stride_x, stride_y=problem.stride_y)


def _point(_: Problem) -> Callable[[Any, Sequence[int]], None]:
    return _put


def _put(args: Any, addresses: Sequence[int]) -> None:
    args.x, args.y = addresses


def _preparations(config: Any, _: Problem) -> tuple[Preparation, ...]:
    if not config.backwards:
        return ()
    return (Preparation("x", "x is turned round, its last element first", lambda x: x[::-1].copy()),)


def _padded(config: Any, problem: Problem, _: Arch) -> Problem | None:
    if config.dtype != problem.dtype:
        return None
    whole = -(-problem.n // config.threads) * config.threads
    # With a stride the padding lies behind the last element, at the same distance.
    return replace(problem, n=whole)


def _inputs(problem: Problem, seed: int, _: Arch) -> Mapping[str, Any]:
    import numpy as np

    kind = {"fp32": np.float32, "fp64": np.float64}[problem.dtype]
    return {"x": np.random.default_rng(seed).integers(-1000, 1000, problem.n).astype(kind)}


def _reference(problem: Problem, inputs: Mapping[str, Any], _: Arch) -> Mapping[str, Any]:
    import numpy as np

    if problem.times is None:
        raise InvalidValueError("a problem of scale that leaves its factor to the kernel has no one answer: say times")
    return {"y": problem.times * inputs["x"].astype(np.float64)}


def _tolerance(_: Any, problem: Problem, __: Any, reference: Mapping[str, Any], ___: Arch) -> Mapping[str, Any]:
    import numpy as np

    # Factor and x are whole numbers below 2^24, so their product is rounded once: by half a unit of the last place.
    digits = {"fp32": 24, "fp64": 53}[problem.dtype]
    limit = np.abs(reference["y"]) * 2.0**-digits
    return {"y": Tolerance(limit, limit / 3**0.5)}  # a rounding error is as likely anywhere within its limits


def _trials(config: Any, _: Arch) -> tuple[Problem, ...]:
    sizes = (1, config.threads, config.threads + 1)
    if config.whole:
        sizes = (config.threads, 3 * config.threads, 7 * config.threads)
    return tuple(Problem(n, config.dtype, times=config.factor) for n in sizes)


EXECUTION = Execution(
    tensors=_tensors,
    with_strides=_with_strides,
    arguments=_arguments,
    point=_point,
    preparations=_preparations,
    padded=_padded,
    inputs=_inputs,
    reference=_reference,
    tolerance=_tolerance,
    trials=_trials,
)
